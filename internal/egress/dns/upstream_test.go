package dns_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/egress/dns"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// What arrives upstream holds nothing of what a guest wrote but the name.
func TestQuestionsAreOurOwn(t *testing.T) {
	z := newZone(t, "www.test. A 203.0.113.1")
	w := newWorld(t, allow("www.test"), z)
	ids, cases := map[uint16]bool{}, map[string]bool{}
	for range 20 {
		m := new(wire.Msg).SetQuestion("www.test.", wire.TypeA)
		m.Id, m.RecursionDesired, m.CheckingDisabled, m.AuthenticatedData, m.Zero = 4242, false, true, true, true
		m.SetEdns0(4096, true)
		m.IsEdns0().Option = []wire.EDNS0{
			&wire.EDNS0_SUBNET{Code: wire.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: net.IPv4(10, 0, 0, 7)},
			&wire.EDNS0_LOCAL{Code: 65001, Data: []byte("secret")},
			&wire.EDNS0_COOKIE{Code: wire.EDNS0COOKIE, Cookie: "0011223344556677"},
		}
		if got := w.send(t, m); !slices.Equal(addrs(got), []string{"203.0.113.1"}) || len(got.IsEdns0().Option) != 0 || got.Id != 4242 {
			t.Fatalf("answer = %v", got)
		}
		w.Flush()
	}
	for _, m := range z.messages() {
		opt := m.IsEdns0()
		if opt == nil || len(opt.Option) != 0 || opt.Do() || opt.UDPSize() != dns.MaxDatagram || len(m.Extra) != 1 || len(m.Answer)+len(m.Ns) != 0 {
			t.Errorf("arrived: %v", m)
		}
		if !m.RecursionDesired || m.CheckingDisabled || m.AuthenticatedData || m.Zero {
			t.Errorf("flags arrived: %v", m.MsgHdr)
		}
		ids[m.Id], cases[m.Question[0].Name] = true, true
	}
	if len(ids) < 15 || len(cases) < 5 || ids[4242] {
		t.Errorf("20 questions had %d ids and %d spellings", len(ids), len(cases))
	}
}

// forger is a socket that gets a question and sends what it likes.
func forger(t *testing.T, send func(query []byte, answer func([]byte))) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = pc.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 2048)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			send(buf[:n], func(b []byte) { _, _ = pc.WriteTo(b, from) })
		}
	}()
	return netip.MustParseAddrPort(pc.LocalAddr().String())
}

// honest is the answer to a query, with one address.
func honest(query []byte, addr string) []byte {
	var m wire.Msg
	if err := m.Unpack(query); err != nil {
		panic(err)
	}
	r := new(wire.Msg).SetReply(&m)
	r.Answer = []wire.RR{&wire.A{Hdr: wire.RR_Header{Name: m.Question[0].Name, Rrtype: wire.TypeA, Class: wire.ClassINET, Ttl: 60}, A: net.ParseIP(addr)}}
	b, err := r.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

const forged, genuine = "203.0.113.66", "203.0.113.1"

// Each row sends a forged answer and then the true one. The control sends the
// forged one as it would have to be: then it is believed.
func TestForgedAnswers(t *testing.T) {
	edit := func(f func(b []byte)) func([]byte) []byte {
		return func(q []byte) []byte { b := honest(q, forged); f(b); return b }
	}
	tests := []struct {
		name  string
		forge func(query []byte) []byte
		want  string
	}{
		{"control", edit(func([]byte) {}), forged},
		{"id", edit(func(b []byte) { b[0]++ }), genuine},
		{"no-response", edit(func(b []byte) { b[2] &^= 0x80 }), genuine},
		{"operation", edit(func(b []byte) { b[2] |= 0x20 }), genuine},
		{"question", edit(func(b []byte) { b[13] ^= 1 }), genuine},
		{"type", edit(func(b []byte) { b[12+10+1] = byte(wire.TypeAAAA) }), genuine},
		{"class", edit(func(b []byte) { b[12+10+3] = byte(wire.ClassCHAOS) }), genuine},
		{"no-question", edit(func(b []byte) { b[5] = 0 }), genuine},
		{"two-questions", edit(func(b []byte) { b[5] = 2 }), genuine},
		{"short", func([]byte) []byte { return []byte{1, 2, 3} }, genuine},
		{"empty", func([]byte) []byte { return nil }, genuine},
		{"header-only", edit(func(b []byte) { clear(b[12:]) }), genuine},
		{"other-source", nil, genuine},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			up := forger(t, func(q []byte, answer func([]byte)) {
				if tt.forge != nil {
					answer(tt.forge(q))
				}
				answer(honest(q, genuine))
			})
			w := newWorld(t, allow("www.test"), nil, func(o *dns.Options) {
				o.Upstreams = []netip.AddrPort{up}
				if tt.forge == nil {
					o.Dial = forgeFromElsewhere(t)
				}
			})
			if got := addrs(w.ask(t, "www.test.", wire.TypeA)); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("answer = %v, want %s", got, tt.want)
			}
		})
	}
}

// forgeFromElsewhere dials, and has a stranger answer at once what is sent.
func forgeFromElsewhere(t *testing.T) func(context.Context, string, netip.AddrPort) (net.Conn, error) {
	stranger, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stranger.Close() })
	return func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, to.String())
		if err != nil {
			return nil, err
		}
		return strange{c, stranger}, nil
	}
}

type strange struct {
	net.Conn
	from net.PacketConn
}

func (s strange) Write(b []byte) (int, error) {
	_, _ = s.from.WriteTo(honest(b, forged), s.LocalAddr())
	return s.Conn.Write(b)
}

// A resolver that does not keep the case is asked over TCP, where guessing
// does not help. So is one whose answers were drowned in forged ones, or are
// too long.
func TestOverTCP(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("many.test. 60 AAAA 2001:db8::%x", i))
	}
	tests := []struct {
		name, host string
		qtype      uint16
		udp        func(q []byte, answer func([]byte))
		want       int
	}{
		{"case", "www.test", wire.TypeA, func(q []byte, answer func([]byte)) {
			b := honest(q, forged)
			section := b[12 : 12+9]
			if lower := bytes.ToLower(section); !bytes.Equal(section, lower) {
				copy(section, lower)
			} else {
				copy(section, bytes.ToUpper(section))
			}
			answer(b)
		}, 1},
		{"drowned", "www.test", wire.TypeA, func(q []byte, answer func([]byte)) {
			for i := range 64 {
				b := honest(q, forged)
				binary.BigEndian.PutUint16(b, binary.BigEndian.Uint16(q)+uint16(i)+1)
				answer(b)
			}
		}, 1},
		{"cut-off", "many.test", wire.TypeAAAA, func(q []byte, answer func([]byte)) {
			b := honest(q, forged)
			b[2] |= 2
			answer(b[:30])
		}, dns.MaxRecords},
		{"over-long", "many.test", wire.TypeAAAA, func(q []byte, answer func([]byte)) {
			answer(append(honest(q, forged), make([]byte, 2000)...))
		}, dns.MaxRecords},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			z := newZone(t, append(many, "www.test. A 203.0.113.1")...)
			up := forger(t, tt.udp)
			w := newWorld(t, allow("*.test"), z, func(o *dns.Options) {
				o.Dial = func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
					if network == "udp" {
						to = up
					}
					return new(net.Dialer).DialContext(ctx, network, to.String())
				}
			})
			got := addrs(w.ask(t, tt.host, tt.qtype))
			if len(got) != tt.want || slices.Contains(got, forged) {
				t.Errorf("answer = %v, want %d addresses", got, tt.want)
			}
			if asked := z.questions(); len(asked) != 1 || !strings.HasPrefix(asked[0], "tcp ") {
				t.Errorf("asked %q, want one question over TCP", asked)
			}
		})
	}
}

func TestUpstreamsInTurn(t *testing.T) {
	good := newZone(t, "www.test. A 203.0.113.1", "a.test. A 203.0.113.2")
	refusing := newZone(t)
	for _, h := range []string{"www.test", "a.test"} {
		refusing.handle(h, func(w wire.ResponseWriter, r *wire.Msg) {
			_ = w.WriteMsg(new(wire.Msg).SetRcode(r, wire.RcodeServerFailure))
		})
	}
	silent := forger(t, func([]byte, func([]byte)) {})
	junk := forger(t, func(q []byte, answer func([]byte)) {
		b := honest(q, forged)
		answer(b[:len(b)-3])
	})
	looping := forger(t, func(q []byte, answer func([]byte)) {
		b := message(0x8180, [4]uint16{1, 1}, string(q[12:len(q)-11]))
		copy(b, q[:2])
		b = append(b, 0xc0, byte(len(b))) // a name that begins where it begins
		answer(append(b, "\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xcb\x00\x71\x42"...))
	})
	closed := netip.MustParseAddrPort("127.0.0.1:1")
	for name, first := range map[string]netip.AddrPort{"failing": refusing.addr, "silent": silent, "unreadable": junk, "looping": looping, "closed": closed} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, allow("*.test"), nil, func(o *dns.Options) { o.Upstreams = []netip.AddrPort{first, good.addr} })
			w.SetTimes(patience.For(500*time.Millisecond), patience.For(5*time.Second), time.Second)
			if got := addrs(w.ask(t, "www.test.", wire.TypeA)); !slices.Equal(got, []string{"203.0.113.1"}) {
				t.Errorf("answer = %v, want the second one's", got)
			}
			refusing.questions()
			if got := addrs(w.ask(t, "a.test.", wire.TypeA)); !slices.Equal(got, []string{"203.0.113.2"}) {
				t.Errorf("answer = %v", got)
			}
			if got := refusing.questions(); len(got) != 0 {
				t.Errorf("the one that failed was asked first again: %q", got)
			}
		})
	}
	for name, tt := range map[string]struct {
		ups  []netip.AddrPort
		code int
	}{
		"all-failing": {[]netip.AddrPort{refusing.addr, junk}, int(wire.ExtendedErrorCodeNetworkError)},
		"all-silent":  {[]netip.AddrPort{silent, silent}, int(wire.ExtendedErrorCodeNoReachableAuthority)},
		"none":        {nil, int(wire.ExtendedErrorCodeNetworkError)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, allow("*.test"), nil, func(o *dns.Options) { o.Upstreams = tt.ups })
			w.SetTimes(20*time.Millisecond, 100*time.Millisecond, time.Second)
			m := w.ask(t, "www.test.", wire.TypeA)
			if code, text := ede(m); m.Rcode != wire.RcodeServerFailure || code != tt.code || strings.Contains(text, "127.0.0.1") {
				t.Errorf("%s, extended error %d %q, want SERVFAIL and %d", wire.RcodeToString[m.Rcode], code, text, tt.code)
			}
			if r := w.told(); len(r) != 1 || r[0].Code != "upstream_failed" || r[0].Verdict != "allow" {
				t.Errorf("records = %+v", r)
			}
			if _, _, err := w.Resolve(t.Context(), "www.test"); err != dns.ErrUpstream {
				t.Errorf("Resolve = %v, want ErrUpstream", err)
			}
		})
	}
}

// The policy's upstreams are asked, and no other, and its change counts at
// once.
func TestUpstreamsOfThePolicy(t *testing.T) {
	machine, own := newZone(t, "www.test. A 203.0.113.1"), newZone(t, "www.test. A 203.0.113.2")
	w := newWorld(t, allow("www.test"), machine)
	if got := addrs(w.ask(t, "www.test.", wire.TypeA)); !slices.Equal(got, []string{"203.0.113.1"}) {
		t.Fatalf("answer = %v", got)
	}
	p := allow("www.test")
	p.p.DNS.Upstreams = []string{own.addr.String()}
	w.policy.Store(p)
	if got := addrs(w.ask(t, "www.test.", wire.TypeA)); !slices.Equal(got, []string{"203.0.113.2"}) {
		t.Errorf("answer = %v, want that of the policy's resolver", got)
	}
	bad := allow("www.test")
	bad.p.DNS.Upstreams = []string{"resolver.test"}
	w.policy.Store(bad)
	machine.questions()
	if m := w.ask(t, "www.test.", wire.TypeA); m.Rcode != wire.RcodeServerFailure || len(machine.questions()) != 0 {
		t.Errorf("%s, want SERVFAIL and nobody else asked", wire.RcodeToString[m.Rcode])
	}
}
