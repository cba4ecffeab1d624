package dns_test

import (
	"net"
	"testing"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/egress/dns"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
)

func benchWorld(b *testing.B, z *zone) *world {
	p := allow("www.test")
	p.p.DNS.QueriesPerMinute = 1 << 40
	return newWorld(b, p, z, func(o *dns.Options) { o.Record = func(netlog.Record) {} })
}

func packed(b *testing.B, name string) []byte {
	msg, err := new(wire.Msg).SetQuestion(name, wire.TypeA).SetEdns0(1232, false).Pack()
	if err != nil {
		b.Fatal(err)
	}
	return msg
}

// BenchmarkCached is an answer from the cache, without a network.
func BenchmarkCached(b *testing.B) {
	w := benchWorld(b, newZone(b, "www.test. A 203.0.113.1"))
	msg := packed(b, "www.test.")
	b.ReportAllocs()
	for b.Loop() {
		if w.Handle(b.Context(), msg) == nil {
			b.Fatal("no answer")
		}
	}
}

// BenchmarkRefused is the sink's address for a name that is refused.
func BenchmarkRefused(b *testing.B) {
	w := benchWorld(b, nil)
	msg := packed(b, "evil.test.")
	b.ReportAllocs()
	for b.Loop() {
		if w.Handle(b.Context(), msg) == nil {
			b.Fatal("no answer")
		}
	}
}

// BenchmarkServed is a cached answer over a socket; BenchmarkUpstream is the
// same question to the zone itself, which is what it is measured against.
func BenchmarkServed(b *testing.B) {
	w := benchWorld(b, newZone(b, "www.test. A 203.0.113.1"))
	w.serve(b)
	exchange(b, w.addr)
}

func BenchmarkUpstream(b *testing.B) {
	exchange(b, newZone(b, "www.test. A 203.0.113.1").addr.String())
}

func exchange(b *testing.B, addr string) {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	msg, buf := packed(b, "www.test."), make([]byte, 2048)
	for b.Loop() {
		if _, err := conn.Write(msg); err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUncached is a question that goes to the zone each time.
func BenchmarkUncached(b *testing.B) {
	w := benchWorld(b, newZone(b, "www.test. A 203.0.113.1"))
	msg := packed(b, "www.test.")
	for b.Loop() {
		w.Flush()
		if w.Handle(b.Context(), msg) == nil {
			b.Fatal("no answer")
		}
	}
}
