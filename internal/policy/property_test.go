package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

var (
	someHosts = []string{"a.example", "b.example", "x.a.example", "y.x.a.example", "*.a.example", "*.x.a.example", "www.bücher.example"}
	someNames = []string{"a.example", "b.example", "x.a.example", "y.x.a.example", "z.a.example", "www.xn--bcher-kva.example", "c.example"}
	someAddrs = []string{server, "10.0.0.5", "10.1.2.3", server6, "64:ff9b::5db8:d822", "127.0.0.1", "169.254.169.254", "8.8.8.8"}
	someNets  = []string{server, "93.184.0.0/16", "10.0.0.5", "10.0.0.0/8", "0.0.0.0/0", "::/0", "127.0.0.0/8", "2606:2800::/32"}
	somePorts = []uint16{22, 53, 80, 443, 853, 5432, 8443}
	somePaths = []string{"/", "/v1", "/v1/a", "/v1/a/b", "/v2", "/v1/../v2", "/v1//a", "/V1/a"}
)

func pick[T any](t *rapid.T, from []T, what string) T { return rapid.SampledFrom(from).Draw(t, what) }

func drawMatch(t *rapid.T) policy.Match {
	var m policy.Match
	if rapid.Bool().Draw(t, "methods?") {
		m.Methods = []string{pick(t, []string{"GET", "POST", "PUT"}, "method")}
	}
	if len(m.Methods) == 0 || rapid.Bool().Draw(t, "paths?") {
		m.Paths = []policy.Value{{
			Type:  pick(t, []policy.MatchType{"exact", "prefix"}, "type"),
			Value: pick(t, []string{"/", "/v1", "/v1/a", "/v2"}, "path"),
		}}
	}
	return m
}

func drawRule(t *rapid.T, id string) policy.Rule {
	r := policy.Rule{ID: id}
	for range rapid.IntRange(0, 2).Draw(t, "hosts") {
		r.Hosts = append(r.Hosts, pick(t, someHosts, "host"))
	}
	if len(r.Hosts) == 0 || rapid.IntRange(0, 3).Draw(t, "addresses?") == 0 {
		r.Addresses = []string{pick(t, someNets, "address")}
	}
	if rapid.IntRange(0, 3).Draw(t, "deny?") == 0 {
		r.Action = policy.ActionDeny
		if rapid.Bool().Draw(t, "matches?") {
			r.Matches = []policy.Match{drawMatch(t)}
		}
		return r
	}
	r.Protocol = pick(t, []policy.Protocol{"http", "http", "tls", "tcp", "udp"}, "protocol")
	if r.Protocol == "tcp" || r.Protocol == "udp" || rapid.Bool().Draw(t, "ports?") {
		r.Ports = []string{pick(t, []string{"22", "443", "1-65535", "5432"}, "port")}
	}
	if r.Protocol == "http" && rapid.Bool().Draw(t, "matches?") {
		r.Matches = []policy.Match{drawMatch(t)}
	}
	return r
}

func drawPolicy(t *rapid.T) policy.Policy {
	p := policy.Policy{Default: pick(t, []policy.Default{"deny", "public"}, "default")}
	for i := range rapid.IntRange(0, 5).Draw(t, "rules") {
		p.Rules = append(p.Rules, drawRule(t, fmt.Sprintf("r%d", i)))
	}
	return p
}

// questions asks a set everything about one destination, and returns the
// answers without their reasons, and without the rules where those do not
// matter.
func questions(t *rapid.T, name, addr string, port uint16, path string) func(*policy.Set) []policy.Verdict {
	dst := netip.AddrPortFrom(netip.MustParseAddr(addr), port)
	udp, tls := rapid.Bool().Draw(t, "udp"), rapid.Bool().Draw(t, "tls")
	method := pick(t, []string{"GET", "POST", "PUT"}, "asked method")
	names := []string{name}
	if rapid.Bool().Draw(t, "by number") {
		names = nil
	}
	return func(s *policy.Set) []policy.Verdict {
		c := policy.Conn{UDP: udp, Addr: dst, Names: names}
		stream := policy.Conn{Addr: dst, Names: names}
		r := ask(nopTB{}, method, "https://host.example"+path, "192.0.2.1")
		r.Addr, r.Name, r.TLS = dst, name, tls
		return []policy.Verdict{
			s.Name(name), s.Address(dst.Addr()), s.Connect(c),
			s.Stream(policy.Stream{Conn: stream, Name: name, TLS: tls}), s.Stream(policy.Stream{Conn: stream, TLS: tls}),
			s.Request(r),
		}
	}
}

// nopTB is a testing.TB for what can't fail.
type nopTB struct{ testing.TB }

func (nopTB) Helper() {}

func drawn(t *rapid.T) func(*policy.Set) []policy.Verdict {
	return questions(t, pick(t, someNames, "name"), pick(t, someAddrs, "addr"), pick(t, somePorts, "asked port"), pick(t, somePaths, "asked path"))
}

func mustCompile(t *rapid.T, p policy.Policy) *policy.Set {
	s, err := policy.Compile(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDenialsWin: a rule that denies, wherever it stands, only ever takes
// away, and what it is about is refused.
func TestDenialsWin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		deny := policy.Rule{ID: "deny", Action: policy.ActionDeny}
		name := pick(t, someNames, "name")
		addr := pick(t, someAddrs, "addr")
		if rapid.Bool().Draw(t, "deny name") {
			deny.Hosts = []string{name}
		} else {
			deny.Addresses = []string{addr}
		}
		q := questions(t, name, addr, pick(t, somePorts, "port"), pick(t, somePaths, "path"))
		before := q(mustCompile(t, p))
		at := rapid.IntRange(0, len(p.Rules)).Draw(t, "at")
		p.Rules = slices.Insert(slices.Clone(p.Rules), at, deny)
		after := q(mustCompile(t, p))
		for i := range after {
			if after[i].Allowed() && !before[i].Allowed() {
				t.Fatalf("question %d: a denial allows: %+v, before %+v", i, after[i], before[i])
			}
		}
		if r := after[len(after)-1]; r.Allowed() {
			t.Fatalf("request: %+v", r)
		}
		if deny.Hosts != nil && after[0].Allowed() || deny.Addresses != nil && (after[1].Allowed() || after[2].Allowed()) {
			t.Fatalf("got %+v", after)
		}
	})
}

// TestOrderIsOnlyForTies: with rules in another order the same things are
// allowed.
func TestOrderIsOnlyForTies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		q := drawn(t)
		before := q(mustCompile(t, p))
		p.Rules = rapid.Permutation(p.Rules).Draw(t, "order")
		after := q(mustCompile(t, p))
		for i := range after {
			if after[i].Mode != before[i].Mode {
				t.Fatalf("question %d: %+v, before %+v", i, after[i], before[i])
			}
		}
	})
}

// TestAllowingAddsUp: under a default of deny, a rule that allows takes
// nothing away, in whatever way it is carried.
func TestAllowingAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		p.Default = policy.DefaultDeny
		more := drawRule(t, "more")
		if more.Action == policy.ActionDeny {
			t.Skip("not an allowing rule")
		}
		name, addr := pick(t, someNames, "name"), netip.MustParseAddr(pick(t, someAddrs, "addr"))
		r := ask(nopTB{}, pick(t, []string{"GET", "POST"}, "method"), "https://host.example"+pick(t, somePaths, "path"), "192.0.2.1")
		r.Addr, r.Name = netip.AddrPortFrom(addr, pick(t, somePorts, "port")), name
		before := mustCompile(t, p)
		p.Rules = append(p.Rules, more)
		after := mustCompile(t, p)
		if before.Name(name).Allowed() && !after.Name(name).Allowed() || before.Address(addr).Allowed() && !after.Address(addr).Allowed() {
			t.Fatalf("%s and %s: less than before", name, addr)
		}
		if b, a := before.Request(r), after.Request(r); b.Allowed() && !a.Allowed() {
			t.Fatalf("got %+v, before %+v", a, b)
		}
	})
}

// TestClosedStaysClosed: whatever is said of names, and of ranges that are no
// part of it, a closed address lets nobody in.
func TestClosedStaysClosed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		for i := range p.Rules {
			p.Rules[i].Addresses = slices.DeleteFunc(p.Rules[i].Addresses, func(a string) bool { return strings.HasPrefix(a, "10.") })
			if len(p.Rules[i].Addresses)+len(p.Rules[i].Hosts) == 0 {
				p.Rules[i].Hosts = []string{"a.example"}
			}
		}
		q := questions(t, pick(t, someNames, "name"), "10.0.0.5", pick(t, somePorts, "port"), pick(t, somePaths, "path"))
		for i, v := range q(mustCompile(t, p))[1:] {
			if v.Allowed() {
				t.Fatalf("question %d: %+v", i+1, v)
			}
		}
	})
}

// TestSpellingsAreOne: case, a final dot and IDNA's forms change nothing, in
// the question or in the rule.
func TestSpellingsAreOne(t *testing.T) {
	spellings := func(t *rapid.T, s string) string {
		s = strings.ReplaceAll(s, "xn--bcher-kva", pick(t, []string{"xn--bcher-kva", "bücher", "BÜCHER", "bu\u0308cher"}, "form"))
		if rapid.Bool().Draw(t, "upper") {
			s = strings.ToUpper(s)
		}
		if rapid.Bool().Draw(t, "dot") {
			s += "."
		}
		return s
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		name := pick(t, someNames, "name")
		addr := netip.MustParseAddr(pick(t, someAddrs, "addr"))
		plain := mustCompile(t, p)
		for i := range p.Rules {
			for j, h := range p.Rules[i].Hosts {
				p.Rules[i].Hosts[j] = spellings(t, h)
			}
		}
		spelt := mustCompile(t, p)
		other := spellings(t, name)
		ask := func(s *policy.Set, name string, pinned string) []policy.Verdict {
			c := policy.Conn{Addr: netip.AddrPortFrom(addr, 443), Names: []string{pinned}}
			return []policy.Verdict{s.Name(name), s.Connect(c), s.Stream(policy.Stream{Conn: c, Name: name, TLS: true})}
		}
		before, after := ask(plain, name, name), ask(spelt, other, name)
		for i := range after {
			if after[i].Mode != before[i].Mode || after[i].Code != before[i].Code || after[i].Rule != before[i].Rule {
				t.Fatalf("%q, question %d: %+v, before %+v", other, i, after[i], before[i])
			}
		}
	})
}
