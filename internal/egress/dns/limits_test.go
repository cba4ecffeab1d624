package dns_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/egress/dns"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Names below a wildcard carry data to whoever answers for the zone. The
// control of each is the same name in a rule of its own.
func TestShapes(t *testing.T) {
	hex := strings.Repeat("0123456789abcdef", 4)
	tests := []struct {
		name, host string
		refused    bool
	}{
		{"short", "www.cdn.test", false},
		{"load-balancer", "internal-k8s-default-ingress-0a1b2c3d4e-1234567890.eu-west-1.elb.cdn.test", false},
		{"content-address", hex[:59] + ".ipfs.cdn.test", false},
		{"bucket", "images-prod." + hex[:32] + ".r2.cdn.test", false},
		{"signed", "e1234.dsca.a1.b2.c3.d4.e5.f6.cdn.test", false},
		{"two-long-labels", hex[:41] + "." + hex[:41] + ".cdn.test", true},
		{"long-name", strings.Repeat(hex[:30]+".", 4) + "cdn.test", true},
		{"many-labels", strings.Repeat("a.", 9) + "cdn.test", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			z := newZone(t, tt.host+". A 203.0.113.1")
			w := newWorld(t, allow("*.cdn.test"), z)
			m := w.ask(t, tt.host, wire.TypeA)
			if left := len(z.questions()) > 0; left == tt.refused {
				t.Errorf("left the host: %v, want %v", left, !tt.refused)
			}
			if _, text := ede(m); tt.refused && (!slices.Equal(addrs(m), []string{sink4.String()}) || !strings.HasPrefix(text, "name_suspicious: ")) {
				t.Errorf("answer = %v %q, want the sink and why", addrs(m), text)
			}
			w.policy.Store(allow("*.cdn.test", tt.host))
			w.ask(t, tt.host, wire.TypeA)
			if got := z.questions(); tt.refused && len(got) != 1 {
				t.Errorf("control: asked %q", got)
			}
		})
	}
}

// Names that do not exist, one after the other, below a wildcard.
func TestMissingNamesAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy *rules
		bound  int
	}{
		{"wildcard", allow("*.evil.test"), dns.NewMissing},
		{"default", &rules{policy.Policy{Default: policy.DefaultPublic}}, dns.NewMissing},
		{"control", nil, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.policy
			if p == nil {
				p = allow()
				for i := range 200 {
					p.p.Rules[0].Hosts = append(p.p.Rules[0].Hosts, fmt.Sprintf("data%d.evil.test", i))
				}
			}
			z := newZone(t, "www.evil.test. A 203.0.113.1")
			w := newWorld(t, p, z)
			for i := range 200 {
				w.ask(t, fmt.Sprintf("data%d.evil.test", i), wire.TypeA)
				w.ask(t, fmt.Sprintf("data%d.evil.test", i), wire.TypeAAAA)
			}
			if got := len(z.questions()); got != tt.bound {
				t.Errorf("%d questions arrived, want %d", got, tt.bound)
			}
			if tt.policy == nil {
				return
			}
			m := w.ask(t, "data199.evil.test", wire.TypeA)
			if _, text := ede(m); m.Rcode != wire.RcodeRefused || !strings.HasPrefix(text, "limit_reached: ") {
				t.Errorf("%s %q, want REFUSED and why", wire.RcodeToString[m.Rcode], text)
			}
			if n := len(slices.DeleteFunc(w.told(), func(r record) bool { return r.Code != "limit_reached" })); n > 2 {
				t.Errorf("%d records of the limit", n)
			}
			w.clock.Add(60)
			w.ask(t, "data199.evil.test", wire.TypeA)
			if got := len(z.questions()); got != 1 {
				t.Errorf("a minute later %d questions arrived, want 1", got)
			}
		})
	}
}

// Names that all exist carry as much: their length is what counts.
func TestNewNamesAreBounded(t *testing.T) {
	z := newZone(t)
	label := strings.Repeat("x", 50)
	for i := range 100 {
		z.add(t, fmt.Sprintf("%s%d.evil.test. A 203.0.113.1", label, i))
	}
	w := newWorld(t, allow("*.evil.test"), z)
	for i := range 100 {
		w.ask(t, fmt.Sprintf("%s%d.evil.test.", label, i), wire.TypeA)
	}
	n := 0
	for _, q := range z.questions() {
		n += len(q) - len("udp . A")
	}
	if n > dns.NewNameBytes || n < dns.NewNameBytes-100 {
		t.Errorf("names of %d characters arrived, want nearly %d", n, dns.NewNameBytes)
	}
	for range 5 {
		if m := w.ask(t, label+"0.evil.test.", wire.TypeA); len(addrs(m)) != 1 || m.Rcode != wire.RcodeSuccess {
			t.Errorf("a name that is known: %v", m)
		}
	}
	w.clock.Add(3601)
	w.Flush()
	if w.ask(t, label+"0.evil.test.", wire.TypeA); len(z.questions()) != 1 {
		t.Error("a name that was asked for before is not asked for again")
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	z := newZone(t, "www.test. A 203.0.113.1")
	p := allow("www.test", "more.test")
	p.p.DNS.QueriesPerMinute = 30
	w := newWorld(t, p, z)
	refused := 0
	for range 100 {
		if w.ask(t, "www.test.", wire.TypeA).Rcode == wire.RcodeRefused {
			refused++
		}
	}
	if refused != 70 {
		t.Errorf("%d of 100 questions were refused, want 70", refused)
	}
	if _, v, err := w.Resolve(t.Context(), "more.test"); err != nil || v.Code != dns.CodeLimit {
		t.Errorf("Resolve of what is not in the cache = %+v, %v, want the limit", v, err)
	}
	limits := slices.DeleteFunc(w.told(), func(r record) bool { return r.Code != "limit_reached" })
	if len(limits) != 1 || limits[0].Count != 1 {
		t.Errorf("records of the limit = %+v, want one", limits)
	}
	w.clock.Add(10)
	for i := range 6 {
		if m := w.ask(t, "www.test.", wire.TypeA); (m.Rcode == wire.RcodeSuccess) != (i < 5) {
			t.Errorf("question %d, 10 s later: %s", i, wire.RcodeToString[m.Rcode])
		}
	}
	if limits := w.told(); limits[len(limits)-1].Count != 70 {
		t.Errorf("last record = %+v, want the 70 others", limits[len(limits)-1])
	}
	if got := z.questions(); len(got) != 1 {
		t.Errorf("asked outside: %q, want one question", got)
	}
}
