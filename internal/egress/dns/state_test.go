package dns_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/egress/dns"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

func TestCache(t *testing.T) {
	z := newZone(t, "short.test. 1 A 203.0.113.1", "long.test. 999999 A 203.0.113.1", "mid.test. 100 CNAME a.test.", "a.test. 300 A 203.0.113.1", "old.test. 2147483649 A 203.0.113.1")
	tests := []struct {
		host string
		ttl  int // as it is told
	}{
		{"short.test", 5},
		{"long.test", 3600},
		{"mid.test", 100},
		{"old.test", 5},
		{"none.test", 60}, // by the zone's authority
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			w := newWorld(t, allow("*.test"), z)
			z.questions()
			first := w.ask(t, tt.host, wire.TypeA)
			if len(first.Answer) > 0 && int(first.Answer[0].Header().Ttl) != tt.ttl {
				t.Errorf("TTL = %d, want %d", first.Answer[0].Header().Ttl, tt.ttl)
			}
			w.clock.Add(int64(tt.ttl) - 1)
			again := w.ask(t, tt.host, wire.TypeA)
			if again.Rcode != first.Rcode || len(again.Answer) > 0 && again.Answer[0].Header().Ttl != 1 {
				t.Errorf("a second before its end: %v", again)
			}
			if got := z.questions(); len(got) != 1 {
				t.Errorf("asked %q, want one question", got)
			}
			w.clock.Add(1)
			if w.ask(t, tt.host, wire.TypeA); len(z.questions()) != 1 {
				t.Error("at its end it was not asked for again")
			}
		})
	}
}

func TestNoNameCountsForAllTypes(t *testing.T) {
	z := newZone(t)
	w := newWorld(t, allow("none.test"), z)
	w.ask(t, "none.test.", wire.TypeA)
	if m := w.ask(t, "none.test.", wire.TypeAAAA); m.Rcode != wire.RcodeNameError {
		t.Errorf("AAAA: %s", wire.RcodeToString[m.Rcode])
	}
	if got := z.questions(); len(got) != 1 {
		t.Errorf("asked %q, want one question", got)
	}
}

func TestCacheIsBounded(t *testing.T) {
	z := newZone(t)
	p := allow()
	p.p.DNS.QueriesPerMinute = 1 << 20
	for i := range dns.MaxCached + 1 {
		h := fmt.Sprintf("h%d.test", i)
		p.p.Rules[0].Hosts = append(p.p.Rules[0].Hosts, h)
		z.add(t, h+". 3600 A 203.0.113.1")
	}
	w := newWorld(t, p, z)
	for _, h := range p.p.Rules[0].Hosts {
		w.ask(t, h, wire.TypeA)
	}
	z.questions()
	w.ask(t, fmt.Sprintf("h%d.test.", dns.MaxCached), wire.TypeA)
	if got := z.questions(); len(got) != 0 {
		t.Errorf("the last is not kept: %q", got)
	}
	w.ask(t, "h0.test.", wire.TypeA)
	if got := z.questions(); len(got) != 1 {
		t.Errorf("the first is still kept: %q", got)
	}
}

// Equal questions at the same time are one upstream.
func TestOneFlight(t *testing.T) {
	z := newZone(t)
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	z.handle("www.test", func(w wire.ResponseWriter, r *wire.Msg) {
		arrived <- struct{}{}
		<-release
		m := new(wire.Msg).SetReply(r)
		m.Answer = []wire.RR{&wire.A{Hdr: wire.RR_Header{Name: r.Question[0].Name, Rrtype: wire.TypeA, Class: wire.ClassINET, Ttl: 60}, A: []byte{203, 0, 113, 1}}}
		_ = w.WriteMsg(m)
	})
	w := newWorld(t, allow("www.test"), z)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got := addrs(w.ask(t, "www.test.", wire.TypeA)); len(got) != 1 {
				t.Errorf("answer = %v", got)
			}
		})
	}
	<-arrived
	close(release)
	wg.Wait()
	if got := z.questions(); len(got) != 1 {
		t.Errorf("asked %q, want one question", got)
	}
}

// A policy that changes while a question is outside decides about its answer.
func TestPolicyChangesInFlight(t *testing.T) {
	z := newZone(t)
	w := newWorld(t, allow("www.test"), z)
	z.handle("www.test", func(rw wire.ResponseWriter, r *wire.Msg) {
		w.policy.Store(allow("other.test"))
		m := new(wire.Msg).SetReply(r)
		m.Answer = []wire.RR{&wire.A{Hdr: wire.RR_Header{Name: r.Question[0].Name, Rrtype: wire.TypeA, Class: wire.ClassINET, Ttl: 60}, A: []byte{203, 0, 113, 1}}}
		_ = rw.WriteMsg(m)
	})
	if got := addrs(w.ask(t, "www.test.", wire.TypeA)); !slices.Equal(got, []string{sink4.String()}) {
		t.Errorf("answer = %v, want the sink", got)
	}
	w.policy.Store(allow("www.test"))
	if got := w.Names(netip.MustParseAddr("203.0.113.1")); len(got) != 0 {
		t.Errorf("pinned to %q", got)
	}
}

func TestPins(t *testing.T) {
	z := newZone(t, "a.test. 60 A 203.0.113.1", "b.test. 3000 A 203.0.113.1", "c.test. AAAA 2001:db8::1")
	w := newWorld(t, allow("a.test", "b.test", "c.test"), z)
	addr := netip.MustParseAddr("203.0.113.1")
	check := func(when string, a netip.Addr, want ...string) {
		t.Helper()
		if got := w.Names(a); !slices.Equal(got, want) {
			t.Errorf("%s: Names(%s) = %q, want %q", when, a, got, want)
		}
	}
	check("at first", addr)
	w.ask(t, "A.test.", wire.TypeA)
	check("asked for", addr, "a.test")
	check("asked for", netip.MustParseAddr("::ffff:203.0.113.1"), "a.test")
	check("asked for", netip.MustParseAddr("203.0.113.2"))
	w.ask(t, "b.test.", wire.TypeA)
	check("both", addr, "b.test", "a.test")
	w.Flush()
	check("after a flush", addr, "b.test", "a.test")
	w.policy.Store(allow("b.test"))
	check("no longer allowed", addr, "b.test")
	w.policy.Store(allow("a.test", "b.test", "c.test"))
	check("allowed again", addr, "b.test", "a.test")
	w.clock.Add(599)
	check("the least time", addr, "b.test", "a.test")
	w.clock.Add(1)
	check("after the least time", addr, "b.test")
	w.ask(t, "a.test.", wire.TypeA)
	check("asked for again", addr, "a.test", "b.test")
	w.clock.Add(2400)
	check("after the TTL", addr)
	if _, _, err := w.Resolve(t.Context(), "c.test"); err != nil {
		t.Fatal(err)
	}
	check("by Resolve", netip.MustParseAddr("2001:db8::1"), "c.test")
}

func TestPinsAreBounded(t *testing.T) {
	z := newZone(t)
	p := allow("first.test")
	p.p.DNS.QueriesPerMinute = 1 << 20
	z.add(t, "first.test. 3600 A 203.0.113.1")
	const perName = dns.MaxRecords
	for i := range dns.MaxPinned / perName {
		h := fmt.Sprintf("h%d.test", i)
		p.p.Rules[0].Hosts = append(p.p.Rules[0].Hosts, h)
		for j := range perName {
			z.add(t, fmt.Sprintf("%s. 3600 A 198.18.%d.%d", h, i, j))
		}
	}
	w := newWorld(t, p, z)
	w.ask(t, "first.test.", wire.TypeA)
	first := netip.MustParseAddr("203.0.113.1")
	if got := w.Names(first); len(got) != 1 {
		t.Fatalf("names = %q", got)
	}
	for _, h := range p.p.Rules[0].Hosts[1:] {
		w.ask(t, h, wire.TypeA)
	}
	if got := w.Names(first); len(got) != 0 {
		t.Errorf("the oldest pin is still there: %q", got)
	}
	if got := w.Names(netip.MustParseAddr("198.18.127.31")); len(got) != 1 {
		t.Errorf("the newest pin is %q", got)
	}
	for i := range dns.MaxNames + 3 {
		h := fmt.Sprintf("same%d.test", i)
		p.p.Rules[0].Hosts = append(p.p.Rules[0].Hosts, h)
		z.add(t, h+". A 203.0.113.2")
	}
	w.policy.Store(&rules{p.p})
	for _, h := range p.p.Rules[0].Hosts[len(p.p.Rules[0].Hosts)-dns.MaxNames-3:] {
		w.ask(t, h, wire.TypeA)
	}
	if got := w.Names(netip.MustParseAddr("203.0.113.2")); len(got) != dns.MaxNames || got[0] != fmt.Sprintf("same%d.test", dns.MaxNames+2) {
		t.Errorf("%d names, the first %q", len(got), got)
	}
}

func TestResolve(t *testing.T) {
	z := newZone(t, "www.test. A 203.0.113.1", "www.test. AAAA 2001:db8::1", "four.test. A 203.0.113.4", "text.test. TXT x", "half.test. A 10.0.0.7", "half.test. AAAA 2001:db8::7")
	tests := []struct {
		name string
		want []string
		code policy.Code
		err  error
	}{
		{name: "www.test", want: []string{"203.0.113.1", "2001:db8::1"}},
		{name: "WWW.Test.", want: []string{"203.0.113.1", "2001:db8::1"}},
		{name: "four.test", want: []string{"203.0.113.4"}},
		{name: "half.test", want: []string{"2001:db8::7"}},
		{name: "text.test", err: dns.ErrNoData},
		{name: "none.test", err: dns.ErrNoName},
		{name: "gate.carboy.internal", want: []string{gate4.String(), gate6.String()}},
		{name: "evil.example", code: policy.CodeNotAllowed},
		{name: "metadata.google.internal", code: policy.CodeNotAllowed},
		{name: "203.0.113.1", code: policy.CodeBadDestination},
		{name: "::1", code: policy.CodeBadDestination},
		{name: "3405803777", code: policy.CodeBadDestination},
		{name: "0xcb.0x0.0x71.0x1", code: policy.CodeBadDestination},
		{name: "www.test..", code: policy.CodeBadDestination},
		{name: "www..test", code: policy.CodeBadDestination},
		{name: "www.test\r\nX: y", code: policy.CodeBadDestination},
		{name: "bücher.test", code: policy.CodeBadDestination},
		{name: "", code: policy.CodeBadDestination},
	}
	w := newWorld(t, allow("*.test"), z)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addrs, v, err := w.Resolve(t.Context(), tt.name)
			var got []string
			for _, a := range addrs {
				got = append(got, a.String())
			}
			if !slices.Equal(got, tt.want) || v.Code != tt.code || v.Allowed() != (tt.code == "") || !errors.Is(err, tt.err) {
				t.Errorf("Resolve = %v, %+v, %v; want %v, %q, %v", got, v, err, tt.want, tt.code, tt.err)
			}
		})
	}
}

// A server that never answers for AAAA does not hold up the rest.
func TestResolveWaitsNotForLong(t *testing.T) {
	z := newZone(t)
	end := make(chan struct{})
	z.handle("www.test", func(w wire.ResponseWriter, r *wire.Msg) {
		if r.Question[0].Qtype == wire.TypeAAAA {
			<-end
			return
		}
		m := new(wire.Msg).SetReply(r)
		m.Answer = []wire.RR{&wire.A{Hdr: wire.RR_Header{Name: r.Question[0].Name, Rrtype: wire.TypeA, Class: wire.ClassINET, Ttl: 60}, A: []byte{203, 0, 113, 1}}}
		_ = w.WriteMsg(m)
	})
	t.Cleanup(func() { close(end) })
	w := newWorld(t, allow("www.test"), z)
	addrs, _, err := w.Resolve(t.Context(), "www.test")
	if err != nil || len(addrs) != 1 {
		t.Errorf("Resolve = %v, %v", addrs, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := w.Resolve(t.Context(), "www.test"); err != nil {
		t.Errorf("Resolve from the cache after Close = %v", err)
	}
}

func TestNoIPv6(t *testing.T) {
	z := newZone(t, "www.test. A 203.0.113.1", "www.test. AAAA 2001:db8::1")
	w := newWorld(t, allow("www.test"), z, func(o *dns.Options) { o.NoIPv6 = true })
	if m := w.ask(t, "www.test.", wire.TypeAAAA); m.Rcode != wire.RcodeSuccess || len(m.Answer) != 0 {
		t.Errorf("AAAA: %v", m)
	}
	if got, _, err := w.Resolve(t.Context(), "www.test"); err != nil || len(got) != 1 {
		t.Errorf("Resolve = %v, %v", got, err)
	}
	if got := addrs(w.ask(t, "evil.test.", wire.TypeAAAA)); !slices.Equal(got, []string{sink6.String()}) {
		t.Errorf("a refused name: %v", got)
	}
}
