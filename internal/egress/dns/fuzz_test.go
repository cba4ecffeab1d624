package dns_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/egress/dns"
)

// FuzzHandle sends a guest's messages, whatever they are. What comes back is a
// response that can be read, to the same id, with no record but what the
// question is about; and nothing leaves the host but questions for names that
// are allowed, of types that are open.
func FuzzHandle(f *testing.F) {
	for _, s := range []struct {
		name  string
		qtype uint16
	}{{"www.test.", wire.TypeA}, {"evil.test.", wire.TypeAAAA}, {"www.test.", wire.TypeTXT}, {"localhost.", wire.TypeA}, {".", wire.TypeNS}} {
		m := new(wire.Msg).SetQuestion(s.name, s.qtype)
		b, _ := m.Pack()
		f.Add(b)
		m.SetEdns0(4096, true)
		b, _ = m.Pack()
		f.Add(b)
	}
	f.Add(message(0x0100, [4]uint16{1}, "\x01a\xc0\x0c\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		w := newWorld(t, allow("*.test"), nil, func(o *dns.Options) {
			o.Upstreams = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53")}
			o.Dial = func(context.Context, string, netip.AddrPort) (net.Conn, error) { return &canary{t: t}, nil }
		})
		w.SetTimes(time.Second, time.Second, time.Second)
		answer := w.Handle(t.Context(), msg)
		if answer == nil {
			return
		}
		var m wire.Msg
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("answer %x: %v", answer, err)
		}
		if !m.Response || len(msg) < 2 || answer[0] != msg[0] || answer[1] != msg[1] || len(m.Ns) != 0 || len(m.Extra) > 1 || len(answer) > dns.MaxDatagram {
			t.Errorf("answer = %v", &m)
		}
		for _, rr := range m.Answer {
			if !strings.EqualFold(rr.Header().Name, m.Question[0].Name) {
				t.Errorf("answer = %v", rr)
			}
		}
	})
}

// canary is an upstream's connection that looks at what is sent, and says
// nothing.
type canary struct {
	net.Conn
	t *testing.T
}

func (c *canary) Write(b []byte) (int, error) {
	var m wire.Msg
	if err := m.Unpack(b); err != nil {
		c.t.Errorf("sent %x: %v", b, err)
		return len(b), nil
	}
	q := m.Question[0]
	if name := strings.ToLower(q.Name); !strings.HasSuffix(name, ".test.") || len(name) > 129 || q.Qtype != wire.TypeA && q.Qtype != wire.TypeAAAA || q.Qclass != wire.ClassINET {
		c.t.Errorf("left the host: %v", &m)
	}
	return len(b), nil
}

func (*canary) Read([]byte) (int, error)    { return 0, errors.New("nothing") }
func (*canary) Close() error                { return nil }
func (*canary) SetDeadline(time.Time) error { return nil }

// FuzzReply reads what came from upstream, whatever it is: as it came, which
// answers nothing but by chance, and with the id and the question put right.
func FuzzReply(f *testing.F) {
	const name = "www.test"
	query, err := dns.NewQuery(name, wire.TypeA)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(honest(query, genuine))
	f.Add([]byte{})
	for _, rest := range []string{
		"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x01",
		"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x02\xc0\x0c",
		"\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x04\x01a\xc0\x10",
		"\xc0\x0c\x00\x05\x00\x01\xff\xff\xff\xff\x00\x03\x01\x00\x00",
	} {
		f.Add(append(message(0x8180, [4]uint16{1, 1}, string(query[12:len(query)-11])), rest...))
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		_, _, _, _ = dns.ReadReply(query, msg, name, wire.TypeA)
		section := query[12 : len(query)-11]
		if len(msg) < 12+len(section) {
			return
		}
		copy(msg, query[:2])
		msg[2], msg[4], msg[5] = msg[2]&^0x78|0x80, 0, 1
		copy(msg[12:], section)
		_, ttl, n, err := dns.ReadReply(query, msg, name, wire.TypeA)
		if errors.Is(err, dns.ErrForged) {
			t.Errorf("%x is taken for forged", msg)
		}
		if err == nil && (ttl < 5*time.Second || ttl > time.Hour || n > dns.MaxRecords) {
			t.Errorf("TTL %v, %d records", ttl, n)
		}
	})
}

// FuzzCanonical holds that a name's form is one that DNS can carry, that it is
// its own, and that no program reads it as an address.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"www.test", "WWW.test.", "127.1", "0x7f.1", "a..b", ".", "xn--bcher-kva.test", "1.2.3.4.in-addr.arpa"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, ok := dns.Canonical(s)
		if !ok {
			return
		}
		if again, ok := dns.Canonical(name); !ok || again != name {
			t.Errorf("%q becomes %q, and that %q, %v", s, name, again, ok)
		}
		if _, ok := wire.IsDomainName(name); !ok || strings.ToLower(name) != name || strings.HasSuffix(name, ".") {
			t.Errorf("%q becomes %q", s, name)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Errorf("%q is an address", name)
		}
		_ = dns.Shape(name)
	})
}
