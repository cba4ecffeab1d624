package learn_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/learn"
)

var began = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// numbered gives records what a writer gives them.
func numbered(records ...api.NetRecord) []api.NetRecord {
	for i := range records {
		records[i].Seq, records[i].Time, records[i].Sandbox = uint64(i)+1, began.Add(time.Duration(i)*time.Second), "box"
	}
	return records
}

func dns(name, addr string) api.NetRecord {
	return api.NetRecord{Verdict: "allow", Rule: "default", Protocol: "dns", Method: "A", Host: name, Result: "NOERROR " + addr}
}

func request(method, host, path string) api.NetRecord {
	return api.NetRecord{Verdict: "allow", Rule: "default", Protocol: "https", Method: method, Host: host, Address: "1.2.3.4:443", Path: path, Status: 200}
}

func stream(protocol, host, addr string) api.NetRecord {
	return api.NetRecord{Verdict: "allow", Rule: "default", Protocol: protocol, Host: host, Address: addr}
}

func refused(r api.NetRecord, code policy.Code) api.NetRecord {
	r.Verdict, r.Code, r.Rule = "deny", string(code), ""
	return r
}

func by(rule string, r api.NetRecord, secrets ...string) api.NetRecord {
	r.Rule, r.Secrets = rule, secrets
	return r
}

// learned derives, writes and proves.
func learned(t testing.TB, records []api.NetRecord, o learn.Options) (policy.Policy, string, *learn.Proof) {
	t.Helper()
	l, err := learn.From(records, o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := l.Text()
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	proof, err := l.Prove(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, string(text), proof
}

func proven(t testing.TB, text string, proof *learn.Proof) {
	t.Helper()
	if !proof.OK() {
		t.Errorf("%s, of\n%s", proof.Text(), text)
	}
}

func many(n int, format string) (out []api.NetRecord) {
	for i := range n {
		out = append(out, request("GET", "a.example", fmt.Sprintf(format, i)))
	}
	return out
}

func exactly(paths ...string) (out []policy.Value) {
	for _, p := range paths {
		out = append(out, policy.Value{Type: "exact", Value: p})
	}
	return out
}

// What is learned of paths is as the documentation says.
func TestPaths(t *testing.T) {
	hash := func(i int) string { return fmt.Sprintf("/blob/%040x", i) }
	var hashes []api.NetRecord
	for i := range 20 {
		hashes = append(hashes, request("GET", "a.example", hash(i)))
	}
	regex := func(s string) []policy.Value { return []policy.Value{{Type: "regex", Value: s}} }
	tests := []struct {
		name    string
		records []api.NetRecord
		want    []policy.Value
	}{
		{"few", many(2, "/x/%d"), exactly("/x/0", "/x/1")},
		{"the-most", many(16, "/%02d"), exactly("/00", "/01", "/02", "/03", "/04", "/05", "/06", "/07", "/08", "/09", "/10", "/11", "/12", "/13", "/14", "/15")},
		{"numbers", many(17, "/x/%d/y"), regex("/x/[0-9]+/y")},
		{"hashes", hashes, regex("/blob/[0-9a-f]{40}")},
		{"versions", many(17, "/m/@v/v1.%d.0"), regex(`/m/@v/v?[0-9]+(\.[0-9]+)+([-+.][0-9A-Za-z.+-]+)?`)},
		{"below", many(20, "/simple/p%dx/"), []policy.Value{{Type: "prefix", Value: "/simple"}}},
		{"below-and-one", append(many(20, "/simple/p%dx/"), request("GET", "a.example", "/other")), append(exactly("/other"), policy.Value{Type: "prefix", Value: "/simple"})},
		{"longest", append(many(20, "/a/b/p%dx"), request("GET", "a.example", "/a/c")), append(exactly("/a/c"), policy.Value{Type: "prefix", Value: "/a/b"})},
		{"shape", many(20, "/p%dx/-/p.tgz"), regex(`/p[^/]+x/-/p\.tgz`)},
		{"nothing-in-common", slices.Concat(many(1, "/a"), shapes(20)), []policy.Value{{Type: "prefix", Value: "/"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, text, proof := learned(t, numbered(tt.records...), learn.Options{})
			proven(t, text, proof)
			if diff := cmp.Diff(tt.want, p.Rules[0].Matches[0].Paths); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// shapes are paths that have nothing in common, not even their lengths.
func shapes(n int) (out []api.NetRecord) {
	for i := range n {
		out = append(out, request("GET", "a.example", "/"+string(rune('a'+i))+strings.Repeat("/x", i+1)))
	}
	return out
}

func TestDerived(t *testing.T) {
	base, err := policy.Parse([]byte(`
rules:
  - id: api
    hosts: ["*.api.example"]
    matches: [{methods: [GET, POST]}]
    secrets: [{name: TOKEN, header: Authorization}]
    limits: {requests_per_minute: 60}
  - id: inner
    hosts: [inner.example]
    addresses: [10.0.0.0/8]
    ports: [443]
  - id: git
    hosts: [git.example]
    matches:
      - {methods: [GET], paths: [{type: regex, value: "/[^/]+/info/refs"}], query: [{name: service, value: git-upload-pack}]}
      - {methods: [POST], paths: [{value: /x}]}
  - id: no-mail
    action: deny
    addresses: ["0.0.0.0/0"]
    ports: [25]
  - id: unused
    hosts: [unused.example]
`))
	if err != nil {
		t.Fatal(err)
	}
	inner := by("inner", request("GET", "inner.example", "/"))
	inner.Address = "10.1.2.3:443"
	p, text, proof := learned(t, numbered(
		dns("one.api.example", "1.2.3.4"), by("api", request("POST", "one.api.example", "/v1"), "TOKEN"),
		inner,
		by("git", request("GET", "git.example", "/r/info/refs")),
		dns("nobody.example", "1.1.1.1"),
		request("GET", "web.example", "/"), request("HEAD", "web.example", "/"), request("PUT", "web.example", "/"),
		request("GET", "web.example", "/@scope%2fname"),
		stream("tls", "pinned.example", "1.2.3.5:443"), stream("tcp", "db.example", "1.2.3.6:5432"), stream("udp", "", "1.2.3.7:123"),
		refused(dns("evil.example", ""), policy.CodeNotAllowed), refused(request("POST", "evil.example", "/x"), policy.CodeNotAllowed),
	), learn.Options{Base: &base, Secrets: []string{"TOKEN"}})
	proven(t, text, proof)
	if proof.Replayed != 11 || proof.LeftOut != 1 || proof.Refused != 2 {
		t.Errorf("%+v", proof)
	}
	want := []policy.Rule{
		{ID: "1.2.3.7", Addresses: []string{"1.2.3.7"}, Ports: []string{"123"}, Protocol: "udp"},
		{ID: "db.example", Hosts: []string{"db.example"}, Ports: []string{"5432"}, Protocol: "tcp"},
		{ID: "pinned.example", Hosts: []string{"pinned.example"}, Ports: []string{"443"}, Protocol: "tls"},
		{ID: "web.example", Hosts: []string{"web.example"}, Ports: []string{"443"}, Matches: []policy.Match{
			{Methods: []string{"GET"}}, {Methods: []string{"HEAD"}, Paths: exactly("/")}, {Methods: []string{"PUT"}, Paths: exactly("/")},
		}},
		{
			ID: "api", Hosts: []string{"one.api.example"}, Ports: []string{"443"}, Matches: []policy.Match{{Methods: []string{"POST"}, Paths: exactly("/v1")}},
			Secrets: []policy.Secret{{Name: "TOKEN", Header: "Authorization", Scheme: "Bearer"}}, Limits: policy.Limits{RequestsPerMinute: 60},
		},
		{ID: "git", Hosts: []string{"git.example"}, Ports: []string{"443"}, Matches: []policy.Match{
			{Methods: []string{"GET"}, Paths: exactly("/r/info/refs"), Query: []policy.Field{{Name: "service", Type: "exact", Value: "git-upload-pack"}}},
		}},
		{ID: "inner", Hosts: []string{"inner.example"}, Addresses: []string{"10.1.2.3"}, Ports: []string{"443"}, Matches: []policy.Match{{Methods: []string{"GET"}, Paths: exactly("/")}}},
		{ID: "no-mail", Action: "deny", Addresses: []string{"0.0.0.0/0"}, Ports: []string{"25"}},
	}
	if diff := cmp.Diff(want, p.Rules); diff != "" {
		t.Errorf("(-want +got)\n%s\n%s", diff, text)
	}
	for _, words := range []string{"# sends data: PUT, 1 request", "# wide: every path for GET", "nobody.example", "dns \"evil.example\": not_allowed", "unused", "added-by"} {
		if strings.Contains(text, words) == (words == "added-by") {
			t.Errorf("about %q:\n%s", words, text)
		}
	}
}

// What a person allowed is asked about by what is learned, too, and no wider than it was.
func TestAsked(t *testing.T) {
	base := &policy.Policy{Rules: []policy.Rule{{ID: "api", Action: policy.ActionAsk, Hosts: []string{"api.example"}}}}
	records := numbered(by("api", request("POST", "api.example", "/v1")))
	p, text, proof := learned(t, records, learn.Options{Base: base})
	proven(t, text, proof)
	want := []policy.Rule{{
		ID: "api", Action: policy.ActionAsk, Hosts: []string{"api.example"}, Ports: []string{"443"},
		Matches: []policy.Match{{Methods: []string{"POST"}, Paths: exactly("/v1")}},
	}}
	if diff := cmp.Diff(want, p.Rules); diff != "" {
		t.Errorf("(-want +got)\n%s\n%s", diff, text)
	}
}

func TestPresets(t *testing.T) {
	host := policy.Presets()[slices.IndexFunc(policy.Presets(), func(p policy.Preset) bool { return p.Name == "npm" })].Rules[0].Hosts[0]
	records := numbered(request("GET", host, "/a"), request("POST", host, "/-/npm/v1/security/advisories/bulk"))
	p, text, proof := learned(t, records, learn.Options{})
	proven(t, text, proof)
	if len(p.Presets) != 0 || len(p.Rules) != 1 {
		t.Errorf("it takes more than it needs:\n%s", text)
	}
	p, text, proof = learned(t, records, learn.Options{Presets: true})
	proven(t, text, proof)
	if len(p.Presets) != 1 || len(p.Rules) != 0 || !strings.Contains(text, "# npm covers "+host+" (2 requests)") {
		t.Errorf("no preset:\n%s", text)
	}
	// One that does not cover all is none.
	records = numbered(request("GET", host, "/a"), request("PUT", host, "/a"))
	if p, text, _ = learned(t, records, learn.Options{Presets: true}); len(p.Presets) != 0 {
		t.Errorf("a preset that refuses some:\n%s", text)
	}
}

// Hosts whose rules say the same share one, and hosts of a preset that is not known are no
// reason for another.
func TestShared(t *testing.T) {
	p, text, proof := learned(t, numbered(request("GET", "b.example", "/x"), request("GET", "a.example", "/x"), request("GET", "c.example", "/y")), learn.Options{})
	proven(t, text, proof)
	if len(p.Rules) != 2 || !slices.Equal(p.Rules[0].Hosts, []string{"a.example", "b.example"}) {
		t.Errorf("%s", text)
	}
}

// Without a whole record nothing is claimed.
func TestNotProven(t *testing.T) {
	whole := func() []api.NetRecord { return numbered(many(5, "/%d")...) }
	long := whole()
	long[1].Path = "/" + strings.Repeat("x", 1000) + "…"
	odd := whole()
	odd[1].Method = "get"
	lost := whole()
	lost[4] = api.NetRecord{Seq: 5, Verdict: "deny", Code: "records_lost", Protocol: "", Count: 7}
	for name, tt := range map[string]struct {
		records []api.NetRecord
		want    string
	}{
		"beginning": {whole()[2:], "2 of 5 records are gone"},
		"middle":    {slices.Delete(whole(), 1, 2), "1 of 5 records are gone"},
		"unwritten": {lost, "7 could not be written"},
		"long":      {long, "longer than the record keeps"},
		"odd":       {odd, "its method is none that a rule can name"},
	} {
		_, text, proof := learned(t, tt.records, learn.Options{})
		if proof.OK() || !strings.Contains(proof.Text(), tt.want) {
			t.Errorf("%s: %s, of\n%s", name, proof.Text(), text)
		}
	}
	_, text, proof := learned(t, whole(), learn.Options{})
	proven(t, text, proof)
}

// What was cut because the command had ended was let through until then; a request that
// was under way is not known well enough.
func TestOver(t *testing.T) {
	cut := stream("tls", "a.example", "1.2.3.4:443")
	cut.Verdict, cut.Code, cut.Reason = "deny", "cut", "a.example:443 is denied by rule carboy/learning-is-over"
	after := refused(request("GET", "late.example", "/"), policy.CodeDenied)
	after.Rule = "carboy/learning-is-over"
	p, text, proof := learned(t, numbered(cut, after), learn.Options{})
	proven(t, text, proof)
	if len(p.Rules) != 1 || p.Rules[0].Protocol != "tls" || strings.Contains(text, "late.example") {
		t.Errorf("%s", text)
	}
	if _, _, proof := learned(t, numbered(cut), learn.Options{Open: 2}); proof.OK() || !strings.Contains(proof.Text(), "2 connections did not end") {
		t.Errorf("with connections that are open: %s", proof.Text())
	}
	under := request("GET", "a.example", "/")
	under.Verdict, under.Code, under.Rule = "deny", "cut", "carboy/learning-is-over"
	if _, _, proof := learned(t, numbered(under), learn.Options{}); proof.OK() || !strings.Contains(proof.Text(), "was under way") {
		t.Errorf("with a request under way: %s", proof.Text())
	}
	set, err := policy.Compile(learn.Over(policy.Policy{Default: policy.DefaultRead}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"1.2.3.4:22", "[2606:4700::1]:443"} {
		if v := set.Connect(policy.Conn{Addr: netip.MustParseAddrPort(addr), Names: []string{"a.example"}}); v.Allowed() {
			t.Errorf("%s: %+v", addr, v)
		}
	}
}

// The proof is no formality: it sees what a policy does not let through, and what it lets
// through that nobody asked for.
func TestProofFails(t *testing.T) {
	records := numbered(request("GET", "a.example", "/x"), refused(request("POST", "b.example", "/"), policy.CodeNotAllowed))
	l, err := learn.From(records, learn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":      {"rules: []", "a.example is not allowed"},
		"other-path":   {`rules: [{hosts: [a.example], matches: [{paths: [{value: /y}]}]}]`, "none of the requests"},
		"unread":       {`rules: [{hosts: [a.example], protocol: tls}]`, "its requests would not be read"},
		"everything":   {"default: public-read", "added by hand"},
		"once-refused": {`rules: [{hosts: [a.example, b.example]}]`, "was refused (not_allowed), and would be allowed now"},
	} {
		p, err := policy.Parse([]byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		proof, err := l.Prove(p)
		if err != nil || proof.OK() || !strings.Contains(proof.Text(), tt.want) {
			t.Errorf("%s: %v, %v", name, proof, err)
		}
	}
}

func TestTooMany(t *testing.T) {
	var records []api.NetRecord
	for i := range 1001 {
		records = append(records, request("GET", fmt.Sprintf("h%d.example", i), fmt.Sprintf("/%d", i)))
	}
	if _, err := learn.From(numbered(records...), learn.Options{}); err == nil || !strings.Contains(err.Error(), "1001 rules: 1000 are the most") {
		t.Errorf("error %v", err)
	}
	unknown := numbered(by("who", request("GET", "a.example", "/"), "TOKEN"))
	if _, err := learn.From(unknown, learn.Options{}); err == nil || !strings.Contains(err.Error(), "--policy and --allow") {
		t.Errorf("error %v", err)
	}
}

// What was called of services is called again, and no other.
func TestServices(t *testing.T) {
	call := func(path string) api.NetRecord {
		return api.NetRecord{Verdict: "allow", Protocol: "service", Method: "GET", Host: policy.GateHost, Address: "192.0.0.1:80", Path: path, Status: 200}
	}
	away := call("/away/a")
	away.Verdict, away.Code, away.Status = "deny", "no_such_service", 404
	base := &policy.Policy{Services: []string{"docs", "git", "mail"}}
	p, text, proof := learned(t, numbered(call("/git/a"), call("/docs"), call("/git/b"), away), learn.Options{Base: base})
	if !slices.Equal(p.Services, []string{"docs", "git"}) || len(p.Rules) > 0 || !strings.Contains(text, "services") {
		t.Errorf("learned\n%s", text)
	}
	if proof.Replayed != 3 || proof.Passed != 3 || len(proof.Problems) > 0 {
		t.Errorf("proved %+v", proof)
	}
	l, err := learn.From(numbered(call("/git/a")), learn.Options{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	if proof, err := l.Prove(policy.Policy{}); err != nil || len(proof.Problems) != 1 {
		t.Errorf("a policy without it proves as %+v, %v", proof, err)
	}
}
