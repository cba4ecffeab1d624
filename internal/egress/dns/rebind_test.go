package dns_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// An answer holds no address that the policy closes, whoever sent it. Each row
// is asked again, as the control, under a policy that opens the address.
func TestClosedAddresses(t *testing.T) {
	tests := []struct {
		name    string
		records []string
		qtype   uint16
		want    []string // nil: the sink
		opened  string   // by the control's rule, and then in its answer; "" where nothing can open it
	}{
		{"private", []string{"www.test. A 10.0.0.7"}, wire.TypeA, nil, "10.0.0.7"},
		{"loopback", []string{"www.test. A 127.0.0.1"}, wire.TypeA, nil, "127.0.0.1"},
		{"metadata", []string{"www.test. A 169.254.169.254"}, wire.TypeA, nil, "169.254.169.254"},
		{"loopback6", []string{"www.test. AAAA ::1"}, wire.TypeAAAA, nil, "::1"},
		{"unique-local", []string{"www.test. AAAA fd00::7"}, wire.TypeAAAA, nil, "fd00::7"},
		{"nat64", []string{"www.test. AAAA 64:ff9b::a00:7"}, wire.TypeAAAA, nil, "64:ff9b::a00:7"},
		{"mapped", []string{"www.test. AAAA ::ffff:10.0.0.7"}, wire.TypeAAAA, nil, ""},
		{"mapped-public", []string{"www.test. AAAA ::ffff:203.0.113.1"}, wire.TypeAAAA, nil, ""},
		{"gate", []string{"www.test. A 192.0.0.1"}, wire.TypeA, nil, ""},
		{"some", []string{"www.test. A 10.0.0.7", "www.test. A 203.0.113.1"}, wire.TypeA, []string{"203.0.113.1"}, "10.0.0.7"},
		{"alias-to-private", []string{"www.test. CNAME db.corp.test.", "db.corp.test. A 10.0.0.7"}, wire.TypeA, nil, "10.0.0.7"},
		{"alias-to-internal", []string{"www.test. CNAME metadata.google.internal.", "metadata.google.internal. A 169.254.169.254"}, wire.TypeA, nil, "169.254.169.254"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, allow("www.test"), newZone(t, tt.records...))
			m := w.ask(t, "www.test.", tt.qtype)
			want, code := tt.want, -1
			if want == nil {
				want, code = []string{sink4.String()}, 15
				if tt.qtype == wire.TypeAAAA {
					want = []string{sink6.String()}
				}
			}
			if got := addrs(m); !slices.Equal(got, want) {
				t.Errorf("answer = %v, want %v", got, want)
			}
			if got, text := ede(m); got != code || code == 15 && !strings.HasPrefix(text, "closed_address: ") {
				t.Errorf("extended error %d %q, want %d", got, text, code)
			}
			_, v, err := w.Resolve(t.Context(), "www.test")
			if tt.want == nil && (err != nil || v.Code != policy.CodeClosedAddress) {
				t.Errorf("Resolve = %+v, %v, want a closed address", v, err)
			}
			if tt.opened == "" {
				return
			}
			if names := w.Names(netip.MustParseAddr(tt.opened)); len(names) != 0 {
				t.Errorf("%s is pinned to %q", tt.opened, names)
			}
			p := allow("www.test")
			p.p.Rules[0].Addresses = []string{tt.opened}
			w.policy.Store(p)
			if got := addrs(w.ask(t, "www.test.", tt.qtype)); !slices.Contains(got, tt.opened) {
				t.Errorf("control: answer = %v, want %s in it", got, tt.opened)
			}
		})
	}
}

// A name that answers with a public address first, and with a private one when
// it is asked again.
func TestRebinding(t *testing.T) {
	z := newZone(t, "www.test. 1 A 203.0.113.1")
	w := newWorld(t, allow("www.test"), z)
	if got := addrs(w.ask(t, "www.test.", wire.TypeA)); !slices.Equal(got, []string{"203.0.113.1"}) {
		t.Fatalf("first answer = %v", got)
	}
	z.mu.Lock()
	z.records = map[string][]wire.RR{}
	z.mu.Unlock()
	z.add(t, "www.test. 1 A 10.0.0.7")
	if got := addrs(w.ask(t, "www.test.", wire.TypeA)); !slices.Equal(got, []string{"203.0.113.1"}) {
		t.Errorf("answer within the least TTL = %v, want the first", got)
	}
	w.clock.Add(6)
	if got := addrs(w.ask(t, "www.test.", wire.TypeA)); !slices.Equal(got, []string{sink4.String()}) {
		t.Errorf("answer afterwards = %v, want the sink", got)
	}
	if got := w.Names(netip.MustParseAddr("10.0.0.7")); len(got) != 0 {
		t.Errorf("10.0.0.7 is pinned to %q", got)
	}
}

// What was not asked for is not handed on, however it came.
func TestAnswersAreRebuilt(t *testing.T) {
	z := newZone(t)
	z.handle("www.test", func(w wire.ResponseWriter, r *wire.Msg) {
		m := new(wire.Msg).SetReply(r)
		m.AuthenticatedData, m.Authoritative = true, true
		for _, s := range []string{"other.test. 60 A 203.0.113.66", "www.test. 60 A 203.0.113.1", "www.test. 60 TXT \"x\"", "www.test. 60 CH A 203.0.113.67"} {
			rr, err := wire.NewRR(s)
			if err != nil {
				panic(err)
			}
			m.Answer = append(m.Answer, rr)
			m.Ns = append(m.Ns, rr)
			m.Extra = append(m.Extra, rr)
		}
		m.SetEdns0(4096, true)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &wire.EDNS0_COOKIE{Code: wire.EDNS0COOKIE, Cookie: "0011223344556677"})
		_ = w.WriteMsg(m)
	})
	w := newWorld(t, allow("www.test"), z)
	m := w.ask(t, "www.test.", wire.TypeA)
	if len(m.Answer) != 1 || addrs(m)[0] != "203.0.113.1" || len(m.Ns) != 0 || len(m.Extra) != 1 || m.AuthenticatedData || m.Authoritative {
		t.Errorf("answer = %v", m)
	}
	if o := m.IsEdns0(); o == nil || len(o.Option) != 0 {
		t.Errorf("options = %v, want none", o)
	}
	if got := w.Names(netip.MustParseAddr("203.0.113.66")); len(got) != 0 {
		t.Errorf("an address that was not asked for is pinned to %q", got)
	}
}

func TestChains(t *testing.T) {
	tests := []struct {
		name    string
		records []string
		half    bool // the upstream completes no chain
		rcode   int
		want    []string
		asked   int
	}{
		{"one", []string{"www.test. CNAME a.test.", "a.test. A 203.0.113.1"}, false, 0, []string{"203.0.113.1"}, 1},
		{"three", []string{"www.test. CNAME a.test.", "a.test. CNAME b.test.", "b.test. CNAME c.test.", "c.test. A 203.0.113.1"}, false, 0, []string{"203.0.113.1"}, 1},
		{"half", []string{"www.test. CNAME a.test.", "a.test. CNAME b.test.", "b.test. A 203.0.113.1"}, true, 0, []string{"203.0.113.1"}, 3},
		{"half-internal", []string{"www.test. CNAME db.internal.", "db.internal. A 203.0.113.1"}, true, 0, nil, 1},
		{"loop", []string{"www.test. CNAME a.test.", "a.test. CNAME www.test."}, false, wire.RcodeServerFailure, nil, 1},
		{"half-loop", []string{"www.test. CNAME a.test.", "a.test. CNAME www.test."}, true, wire.RcodeServerFailure, nil, 2},
		{"itself", []string{"www.test. CNAME www.test."}, true, wire.RcodeServerFailure, nil, 1},
		{"nowhere", []string{"www.test. CNAME a.test."}, false, wire.RcodeNameError, nil, 1},
		{"no-name", []string{`www.test. CNAME a\000b.test.`}, false, wire.RcodeServerFailure, nil, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			z := newZone(t, tt.records...)
			if tt.half {
				for _, r := range tt.records {
					rr, _ := wire.NewRR(r)
					z.handle(strings.TrimSuffix(rr.Header().Name, "."), func(w wire.ResponseWriter, r *wire.Msg) {
						m := new(wire.Msg).SetReply(r)
						m.Answer = []wire.RR{rr}
						_ = w.WriteMsg(m)
					})
				}
			}
			m := newWorld(t, allow("www.test"), z).ask(t, "www.test.", wire.TypeA)
			if got := addrs(m); m.Rcode != tt.rcode || !slices.Equal(got, tt.want) {
				t.Errorf("%s %v, want %s %v", wire.RcodeToString[m.Rcode], got, wire.RcodeToString[tt.rcode], tt.want)
			}
			if got := z.questions(); len(got) != tt.asked {
				t.Errorf("asked %q, want %d questions", got, tt.asked)
			}
		})
	}
}
