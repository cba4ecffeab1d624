package learn_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/learn"
	"github.com/carboy-sandbox/carboy/test/long"
)

// someRecords are what a program might have done, of few words so that much is alike.
func someRecords(r *rand.Rand) []api.NetRecord {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	hosts := []string{"a.example", "b.example", "c.b.example"}
	var out []api.NetRecord
	for range 1 + r.IntN(120) {
		host := pick(hosts...)
		rec := request(pick("GET", "GET", "GET", "HEAD", "POST"), host, "")
		rec.Address = fmt.Sprintf("1.2.3.%d:%s", slices.Index(hosts, host)+1, pick("443", "443", "8443"))
		for range 1 + r.IntN(4) {
			rec.Path += "/" + pick("x", "y", "v1.2."+fmt.Sprint(r.IntN(30)), fmt.Sprint(r.IntN(40)), fmt.Sprintf("p%dq", r.IntN(60)), "a.b+(c", "%C3%BC", "")
		}
		if r.IntN(40) == 0 {
			rec.Path += "%2f"
		}
		switch r.IntN(30) {
		case 0:
			rec = stream("tcp", "d.example", "1.2.3.9:"+pick("22", "5432"))
		case 1:
			rec = stream("tls", "e.example", "1.2.3.10:443")
		case 2:
			rec = stream("udp", "", "1.2.4.1:"+pick("123", "124"))
		case 3:
			rec = dns(pick("a.example", "z.example"), "1.2.3.4")
		case 4:
			rec = refused(rec, policy.CodeNotAllowed)
			rec.Host, rec.Address = "f.example", "1.2.3.20:443"
		}
		out = append(out, rec)
	}
	return numbered(out...)
}

// smaller are the policies that are p without one of its parts.
func smaller(p policy.Policy) (out []policy.Policy) {
	without := func(f func(p *policy.Policy)) {
		c := *policy.Clone(&p)
		f(&c)
		out = append(out, c)
	}
	for i, r := range p.Rules {
		without(func(p *policy.Policy) { p.Rules = slices.Delete(p.Rules, i, i+1) })
		for j := range r.Hosts {
			if len(r.Hosts) > 1 {
				without(func(p *policy.Policy) { p.Rules[i].Hosts = slices.Delete(p.Rules[i].Hosts, j, j+1) })
			}
		}
		for j, m := range r.Matches {
			if len(r.Matches) > 1 {
				without(func(p *policy.Policy) { p.Rules[i].Matches = slices.Delete(p.Rules[i].Matches, j, j+1) })
			}
			for k := range m.Methods {
				if len(m.Methods) > 1 {
					without(func(p *policy.Policy) {
						p.Rules[i].Matches[j].Methods = slices.Delete(p.Rules[i].Matches[j].Methods, k, k+1)
					})
				}
			}
			for k := range m.Paths {
				if len(m.Paths) > 1 {
					without(func(p *policy.Policy) {
						p.Rules[i].Matches[j].Paths = slices.Delete(p.Rules[i].Matches[j].Paths, k, k+1)
					})
				}
			}
		}
	}
	return out
}

// Whatever was recorded, what is learned of it lets it pass; and of no rule, host, match,
// method or path could it do without: some of it would be refused.
func TestLeast(t *testing.T) {
	for seed := range long.Rounds[int64](12, 40) {
		records := someRecords(rand.New(rand.NewPCG(uint64(seed), 1)))
		l, err := learn.From(records, learn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, text, proof := learned(t, records, learn.Options{})
		proven(t, text, proof)
		for _, less := range smaller(p) {
			proof, err := l.Prove(less)
			if err != nil {
				t.Fatal(err)
			}
			if proof.Passed == proof.Replayed {
				t.Fatalf("seed %d: it could do without a part:\n%s\nand be\n%s", seed, text, learn.Plain(&less))
			}
		}
		if again, _, _ := learned(t, records, learn.Options{}); !bytes.Equal(learn.Plain(&again), learn.Plain(&p)) {
			t.Fatalf("seed %d: it differs from one time to the next", seed)
		}
	}
}

// ofText are records whose words are somebody's.
func ofText(host, method, path, other string) []api.NetRecord {
	records := numbered(
		dns(host, "1.2.3.4"), request(method, host, path), request("GET", "a.example", path), request("GET", host, "/"+other),
		stream("tls", "tls."+host, "1.2.3.5:443"), stream("tcp", other, "1.2.3.4:22"),
		refused(request(method, other, path), policy.Code(other)), refused(dns(host, other), policy.CodeNotAllowed),
	)
	for i := range 20 {
		more := request("GET", "many.example", fmt.Sprintf("%s/%d%s", path, i, other))
		more.Seq, more.Time = records[len(records)-1].Seq+1, began
		records = append(records, more)
	}
	return records
}

// What a sandbox says can't become a rule, whatever it says: each host of a rule is one
// that was reached, and each line that is no comment is of the schema.
func FuzzWords(f *testing.F) {
	f.Add("a.example", "GET", "/x", "y")
	f.Add("a.example\nrules: [{hosts: [evil.example]}]", "GET", "/\n  - id: x", "#")
	f.Add("a.example", "GET", "/.*", `") | (.*`)
	f.Add("a.example", "GET # x", "/x: y", "\u2028- hosts: [evil.example]\r\n\x85")
	f.Add("*.example", "*", "*", "{a: &b [*c]}")
	f.Fuzz(func(t *testing.T, host, method, path, other string) {
		records := ofText(host, method, path, other)
		l, err := learn.From(records, learn.Options{})
		if err != nil {
			return
		}
		text, err := l.Text()
		if err != nil {
			t.Fatalf("%v of %.2000q", err, fmt.Sprint(records))
		}
		p, err := policy.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Rules {
			for _, h := range r.Hosts {
				if !slices.ContainsFunc(records, func(rec api.NetRecord) bool {
					clean, _, _ := policy.CleanHost(rec.Host)
					return clean == h && rec.Verdict == "allow"
				}) {
					t.Errorf("%q was never reached:\n%s", h, text)
				}
			}
		}
		for line := range strings.Lines(string(text)) {
			if i := strings.IndexFunc(line, func(c rune) bool { return c < ' ' && c != '\n' || c == '\u2028' || c == '\u2029' || c == 0x85 }); i >= 0 {
				t.Errorf("a line can be broken: %q", line)
			}
		}
		if proof, err := l.Prove(p); err != nil || len(proof.Problems) > 0 && !onlyUnsayable(proof.Problems) {
			t.Errorf("%v, %v of %.2000q", err, proof, fmt.Sprint(records))
		}
	})
}

var unsayable = regexp.MustCompile(`none that a rule can name$|longer than the record keeps$`)

func onlyUnsayable(problems []string) bool {
	return !slices.ContainsFunc(problems, func(p string) bool { return !unsayable.MatchString(p) })
}

// A record that was saved is read strictly, and what was read comes back as it was.
func FuzzRead(f *testing.F) {
	some, _ := json.Marshal(numbered(dns("a.example", "1.2.3.4"), request("GET", "a.example", "/")))
	f.Add(some)
	f.Add([]byte(`{"seq":1,"time":"2030-01-02T03:04:05Z","sandbox":"x","verdict":"allow","protocol":"dns","host":"a"}` + "\n\n" + `{"seq":3,"verdict":"deny","protocol":"tcp","address":"1.2.3.4:5"}`))
	f.Add([]byte(`[{"seq":1,"verdict":"allow","protocol":"dns","Host":"a"}]`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, err := learn.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		again, err := json.Marshal(records)
		if err != nil {
			return // a time that JSON can't have
		}
		if _, err := learn.Read(bytes.NewReader(again)); err != nil {
			t.Errorf("%v of %s", err, again)
		}
		if l, err := learn.From(records, learn.Options{}); err == nil {
			if _, err := l.Text(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		`[]`: "", ``: "",
		`{"seq":1,"verdict":"allow","protocol":"dns"}`:                                                "",
		`[{"seq":1,"verdict":"allow","protocol":"dns","hosts":"a"}]`:                                  `record 1: there is no field "hosts"`,
		`[{"seq":1,"verdict":"allow","protocol":"dns","Host":"a"}]`:                                   `record 1: there is no field "Host"`,
		`[{"seq":0,"verdict":"allow","protocol":"dns"}]`:                                              "record 1: it has no number",
		`[{"seq":1,"verdict":"maybe","protocol":"dns"}]`:                                              "record 1: its verdict",
		`[{"seq":1,"verdict":"allow","protocol":"ftp"}]`:                                              "record 1: its protocol",
		`[{"seq":1,"verdict":"allow","protocol":"tcp","address":"x"}]`:                                "record 1: its address",
		`[{"seq":1,"verdict":"allow","protocol":"tcp","sent":-1}]`:                                    "record 1: it counts less",
		`[{"seq":2,"verdict":"allow","protocol":"tcp"},{"seq":2,"verdict":"allow","protocol":"tcp"}]`: "record 2: its number 2 does not follow 2",
		`{"seq":1,"verdict":"allow","protocol":"dns","host":"` + strings.Repeat("x", 5000) + `"}`:     "record 1: one of its texts",
		"[1, 2": "not what carboy net log --json writes",
		"GET /": "record 1: ",
	} {
		_, err := learn.Read(strings.NewReader(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error %v, want %q", text, err, want)
		}
	}
}
