package dns_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Names that no rule is about stay here. Each is asked twice: under a policy
// that does not allow it, and, as the control, under one that does: then the
// question arrives.
func TestRefusedNamesNeverLeave(t *testing.T) {
	z := newZone(t, "secret.evil.test. A 203.0.113.66", "xn--bcher-kva.test. A 203.0.113.66", "other.good.test. A 203.0.113.66", "good.test. A 203.0.113.1")
	tests := []struct {
		name, question string
		allowed        string // the host of the control's rule
	}{
		{"not-named", "secret.evil.test.", "secret.evil.test"},
		{"case", "SeCrEt.EVIL.test.", "secret.evil.test"},
		{"idn", "xn--bcher-kva.test.", "xn--bcher-kva.test"},
		{"idn-case", "XN--Bcher-KVA.test.", "xn--bcher-kva.test"},
		{"above-a-rule", "other.good.test.", "*.good.test"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for qtype, sink := range map[uint16]string{wire.TypeA: sink4.String(), wire.TypeAAAA: sink6.String()} {
				w := newWorld(t, allow("good.test"), z)
				m := w.ask(t, tt.question, qtype)
				if got := addrs(m); m.Rcode != wire.RcodeSuccess || !slices.Equal(got, []string{sink}) {
					t.Errorf("%s: %s %v, want the sink", wire.Type(qtype), wire.RcodeToString[m.Rcode], got)
				} else if m.Answer[0].Header().Ttl != 0 || m.Answer[0].Header().Name != tt.question {
					t.Errorf("answer = %v, want a TTL of 0 and the name as it was asked for", m.Answer[0])
				}
				if code, text := ede(m); code != 15 || !strings.HasPrefix(text, "not_allowed: ") {
					t.Errorf("extended error %d %q, want 15 and the reason", code, text)
				}
				if got := z.questions(); len(got) != 0 {
					t.Errorf("left the host: %q", got)
				}
				if names := w.Names(sink4); len(names) != 0 {
					t.Errorf("the sink is pinned to %q", names)
				}
			}
			w := newWorld(t, allow(tt.allowed), z)
			w.ask(t, tt.question, wire.TypeA)
			if got, want := z.questions(), []string{"udp " + strings.ToLower(tt.question) + " A"}; !slices.Equal(got, want) {
				t.Errorf("control: the zone was asked %q, want %q", got, want)
			}
		})
	}
}

func TestTypes(t *testing.T) {
	z := newZone(t, "good.test. A 203.0.113.1", `good.test. TXT "v=1"`, "good.test. MX 10 mail.test.", `evil.test. TXT "x"`)
	tests := []struct {
		name, question string
		qtype          uint16
		types          []string
		rcode          int
		code           string // of the extended error
		records        int
		leaves         bool
	}{
		{name: "txt", question: "good.test.", qtype: wire.TypeTXT, rcode: wire.RcodeRefused, code: "type_closed"},
		{name: "txt-named", question: "good.test.", qtype: wire.TypeTXT, types: []string{"TXT"}, records: 1, leaves: true},
		{name: "mx-named", question: "good.test.", qtype: wire.TypeMX, types: []string{"MX"}, records: 1, leaves: true},
		{name: "txt-named-refused-name", question: "evil.test.", qtype: wire.TypeTXT, types: []string{"TXT"}, rcode: wire.RcodeRefused, code: "not_allowed"},
		{name: "null", question: "good.test.", qtype: wire.TypeNULL, rcode: wire.RcodeRefused, code: "type_closed"},
		{name: "any", question: "good.test.", qtype: wire.TypeANY, rcode: wire.RcodeRefused, code: "type_closed"},
		{name: "any-cannot-be-named", question: "good.test.", qtype: wire.TypeANY, types: []string{"ANY", "NULL", "AXFR"}, rcode: wire.RcodeRefused, code: "type_closed"},
		{name: "axfr", question: "good.test.", qtype: wire.TypeAXFR, rcode: wire.RcodeRefused, code: "type_closed"},
		{name: "ixfr", question: "good.test.", qtype: wire.TypeIXFR, rcode: wire.RcodeRefused, code: "type_closed"},
		{name: "private-use", question: "good.test.", qtype: 65400, rcode: wire.RcodeRefused, code: "type_closed"},
		{name: "https", question: "good.test.", qtype: wire.TypeHTTPS},
		{name: "svcb", question: "good.test.", qtype: wire.TypeSVCB},
		{name: "https-refused-name", question: "evil.test.", qtype: wire.TypeHTTPS, rcode: wire.RcodeRefused, code: "not_allowed"},
		{name: "a", question: "good.test.", qtype: wire.TypeA, records: 1, leaves: true},
		{name: "aaaa", question: "good.test.", qtype: wire.TypeAAAA, leaves: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := allow("good.test")
			p.p.DNS.Types = tt.types
			m := newWorld(t, p, z).ask(t, tt.question, tt.qtype)
			if m.Rcode != tt.rcode || len(m.Answer) != tt.records {
				t.Errorf("%s with %v, want %s and %d records", wire.RcodeToString[m.Rcode], m.Answer, wire.RcodeToString[tt.rcode], tt.records)
			}
			if _, text := ede(m); !strings.HasPrefix(text, tt.code) || tt.code == "" && text != "" {
				t.Errorf("extended error %q, want %q", text, tt.code)
			}
			if got := z.questions(); (len(got) > 0) != tt.leaves {
				t.Errorf("asked outside: %q, want %v", got, tt.leaves)
			}
		})
	}
}

func TestNamesThatAreNeverAskedFor(t *testing.T) {
	z := newZone(t)
	w := newWorld(t, &rules{policy.Policy{Default: policy.DefaultPublic}}, z)
	for name, rcode := range map[string]int{
		"printer.local.":                 wire.RcodeNameError,
		"expyuzz4wqqyqhjn.onion.":        wire.RcodeNameError,
		"metadata.google.internal.":      wire.RcodeNameError,
		"x.gate.carboy.internal.":        wire.RcodeNameError,
		"a.invalid.":                     wire.RcodeNameError,
		"nas.home.arpa.":                 wire.RcodeNameError,
		"name.alt.":                      wire.RcodeNameError,
		"use-application-dns.net.":       wire.RcodeNameError,
		".":                              wire.RcodeRefused,
		"127.0.0.1.":                     wire.RcodeRefused,
		"2130706433.":                    wire.RcodeRefused,
		"0x7f.1.":                        wire.RcodeRefused,
		"0177.0.0.01.":                   wire.RcodeRefused,
		"a.0x7f000001.":                  wire.RcodeRefused,
		`a\.b.test.`:                     wire.RcodeRefused,
		`a\000.test.`:                    wire.RcodeRefused,
		`\027[2Jx.test.`:                 wire.RcodeRefused,
		`a b.test.`:                      wire.RcodeRefused,
		`b\195\188cher.test.`:            wire.RcodeRefused,
		"user@host.test.":                wire.RcodeRefused,
		strings.Repeat("a.", 126) + "1.": wire.RcodeRefused,
	} {
		if m := w.ask(t, name, wire.TypeA); m.Rcode != rcode || len(m.Answer) != 0 {
			t.Errorf("%q: %s %v, want %s", name, wire.RcodeToString[m.Rcode], m.Answer, wire.RcodeToString[rcode])
		}
	}
	if got := z.questions(); len(got) != 0 {
		t.Errorf("left the host: %q", got)
	}
	for _, r := range w.told() {
		if r.Verdict != netlog.Deny || r.Code == "" || r.Reason == "" {
			t.Errorf("record = %+v, want a refusal with its reason", r)
		}
		if strings.ContainsFunc(r.Host, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("record's host = %q, want it escaped", r.Host)
		}
	}
	w.ask(t, "control.test.", wire.TypeA)
	if got := z.questions(); len(got) != 1 {
		t.Errorf("control: asked outside: %q", got)
	}
}

// Names of private networks are asked for where a rule is about them, and
// hidden services and links not even then.
func TestPrivateNamesByRule(t *testing.T) {
	for name, asked := range map[string]bool{
		"git.corp.internal": true, "nas.home.arpa": true,
		"printer.local": false, "expyuzz4wqqyqhjn.onion": false, "x.carboy.internal": false, "a.invalid": false,
	} {
		z := newZone(t, name+". A 203.0.113.1")
		newWorld(t, allow(name), z).ask(t, name, wire.TypeA)
		if got := z.questions(); (len(got) == 1) != asked {
			t.Errorf("%s: asked outside: %q, want %v", name, got, asked)
		}
	}
}

func TestNamesKnownHere(t *testing.T) {
	z := newZone(t)
	w := newWorld(t, allow(), z)
	tests := []struct {
		name  string
		qtype uint16
		want  []string
	}{
		{"gate.carboy.internal.", wire.TypeA, []string{gate4.String()}},
		{"Gate.Carboy.Internal.", wire.TypeAAAA, []string{gate6.String()}},
		{"gate.carboy.internal.", wire.TypeTXT, nil},
		{"localhost.", wire.TypeA, []string{"127.0.0.1"}},
		{"app.localhost.", wire.TypeAAAA, []string{"::1"}},
	}
	for _, tt := range tests {
		if m := w.ask(t, tt.name, tt.qtype); m.Rcode != wire.RcodeSuccess || !slices.Equal(addrs(m), tt.want) {
			t.Errorf("%s %s: %s %v, want %v", tt.name, wire.Type(tt.qtype), wire.RcodeToString[m.Rcode], addrs(m), tt.want)
		}
	}
	if got := z.questions(); len(got) != 0 {
		t.Errorf("left the host: %q", got)
	}
}

func TestRecords(t *testing.T) {
	z := newZone(t, "www.good.test. 300 CNAME cdn.other.test.", "cdn.other.test. 300 A 203.0.113.1")
	w := newWorld(t, allow("www.good.test"), z)
	w.ask(t, "WWW.good.test.", wire.TypeA)
	w.ask(t, "evil.test.", wire.TypeAAAA)
	w.ask(t, "evil.test.", wire.TypeTXT)
	w.ask(t, "good.test.", wire.TypeANY)
	type line struct {
		Verdict                         netlog.Verdict
		Code, Rule, Host, Type, Results string
	}
	var got []line
	for _, r := range w.told() {
		if r.Protocol != "dns" || r.Time.IsZero() {
			t.Errorf("record = %+v", r)
		}
		got = append(got, line{r.Verdict, r.Code, r.Rule, r.Host, r.Method, r.Result})
	}
	want := []line{
		{"allow", "", "r", "www.good.test", "A", "NOERROR cdn.other.test 203.0.113.1"},
		{"deny", "not_allowed", "", "evil.test", "AAAA", "NOERROR " + sink6.String()},
		{"deny", "not_allowed", "", "evil.test", "TXT", "REFUSED"},
		{"deny", "not_allowed", "", "good.test", "ANY", "REFUSED"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
