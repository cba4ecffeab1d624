package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// Addresses of an arena beside those of its world.
const (
	arenaMetadata = "169.254.169.254"
	arenaNAT64    = "64:ff9b::a4d:1" // 10.77.0.1, as a NAT64 has it
)

// arena is a world whose servers know what must not reach them. What does, they
// keep under the name of the attempt that it came from.
type arena struct {
	*world
	registry string // a host that a preset opens for reading
	changed  atomic.Int64
	rebound  atomic.Int32

	evidenceMu sync.Mutex
	evidence   map[string][]string
	streams    map[string]bool // attempts whose stream has begun
	ownCerts   map[string]tls.Certificate
}

func newArena(t testing.TB) *arena {
	t.Helper()
	a := &arena{world: newWorld(t), registry: presetFirst(t, "npm"), evidence: map[string][]string{}, streams: map[string]bool{}}
	var err error
	a.in(func() { err = a.furnish() })
	if err != nil {
		t.Fatal(err)
	}
	a.names()
	a.certificates()
	a.serveCDN()
	a.serveCanaries()
	a.serveHostile()
	a.serveStream()
	a.serveAlteredDNS()
	return a
}

// furnish adds addresses that nobody may reach, and a way to all of IPv6.
func (a *arena) furnish() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, s := range []string{arenaMetadata + "/32", arenaNAT64 + "/128"} {
		addr, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
	}
	_, all, err := net.ParseCIDR("2000::/3")
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all})
}

// found keeps what reached a server, for the attempt that it came from.
func (a *arena) found(attempt, format string, args ...any) {
	a.evidenceMu.Lock()
	defer a.evidenceMu.Unlock()
	a.evidence[attempt] = append(a.evidence[attempt], fmt.Sprintf(format, args...))
}

func (a *arena) foundBy(attempt string) string {
	a.evidenceMu.Lock()
	defer a.evidenceMu.Unlock()
	return strings.Join(a.evidence[attempt][:min(3, len(a.evidence[attempt]))], "; ")
}

func (a *arena) names() {
	for name, addrs := range map[string][]string{
		"front.example": {worldA}, "other.example": {worldA}, "evil.example": {worldA}, "api.example": {worldA},
		"endless.example": {worldA}, "later.example": {worldA}, "unread.example": {worldA}, "paths.example": {worldA}, a.registry: {worldA},
		"wrong.example": {worldA}, "expired.example": {worldA}, "nul.example": {worldA}, "unsigned.example": {worldA},
		"dns.google": {worldA}, "hostile.example": {worldC}, "stream.example": {worldC}, "ns.public.example": {worldB},
		"private.wild.example": {worldLocal}, "both.wild.example": {worldA, worldLocal}, "loop.wild.example": {"127.0.0.1"},
		"meta.wild.example": {arenaMetadata}, "zero.wild.example": {"0.0.0.0"}, "cname.wild.example": {"inside.corp.example", worldLocal},
		// A resolver that is asked for another type first may not say that it does not exist.
		"inside.corp.example": {worldLocal},
		"nat64.wild.example":  {arenaNAT64}, "forged.wild.example": {worldA}, "rebind.wild.example": {worldA},
		"10.77.1": {worldLocal}, "dns-types.wild.example": {worldA},
	} {
		a.resolve(name, addrs...)
	}
}

// certificates are those of hosts that have the wrong ones.
func (a *arena) certificates() {
	past := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.ownCerts = map[string]tls.Certificate{
		"wrong.example":   a.certificate(nil, "right.example", "*.wrong.example"),
		"expired.example": a.certificate(past, "expired.example"),
		"nul.example":     a.certificate(nil, "nul.example\x00.evil.example"),
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"unsigned.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	raw, err := x509.CreateCertificate(rand.Reader, own, own, &key.PublicKey, key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.ownCerts["unsigned.example"] = tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// serveCDN serves many names at one address, as an edge does that asks no
// questions: whoever gets there gets whatever host they name.
func (a *arena) serveCDN() {
	all := a.certificate(nil, "front.example", "other.example", "evil.example", "api.example", "endless.example", "later.example",
		"unread.example", "paths.example", "dns.google", a.registry)
	config := &tls.Config{
		Certificates: []tls.Certificate{all},
		NextProtos:   []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if slices.Contains(h.Extensions, 0xfe0d) {
				a.found("hidden-hello", "a hello that hides a name, and shows %s", h.ServerName)
			}
			if own, ok := a.ownCerts[h.ServerName]; ok {
				return &own, nil
			}
			return &all, nil
		},
	}
	handler := http.HandlerFunc(a.cdn)
	clear, encrypted := &http.Server{Handler: handler}, &http.Server{Handler: handler, TLSConfig: config}
	l80, l443 := a.listen(worldA+":80"), a.listen(worldA+":443")
	go clear.Serve(l80)                 // it ends with the test
	go encrypted.ServeTLS(l443, "", "") // likewise
	a.t.Cleanup(func() { clear.Close(); encrypted.Close() })
}

// attemptNames is what is looked for in what comes to a canary.
var attemptNames = []string{
	"rebinding", "cname-to-private", "wrapped-addresses", "metadata-and-loopback", "by-number", "host-loopback",
	"connect-relay", "dns-forged", "dns-elsewhere",
}

// serveCanaries listens where nothing may arrive.
func (a *arena) serveCanaries() {
	var tcp, udp []string
	for _, host := range []string{worldLocal, "127.0.0.1", "::1", arenaMetadata, arenaNAT64} {
		tcp = append(tcp, net.JoinHostPort(host, "80"))
	}
	for _, port := range []string{"53", "80", "443", "853", "9999"} {
		tcp, udp = append(tcp, net.JoinHostPort(worldB, port)), append(udp, net.JoinHostPort(worldB, port))
	}
	tcp = append(tcp, net.JoinHostPort(worldDNS, "53"), net.JoinHostPort(worldDNS, "853"))
	for _, address := range tcp {
		l := a.listen(address)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go a.canary(c, address)
			}
		}()
	}
	for _, address := range udp {
		var pc net.PacketConn
		var err error
		a.in(func() { pc, err = net.ListenPacket("udp", address) })
		if err != nil {
			a.t.Fatal(err)
		}
		a.t.Cleanup(func() { pc.Close() })
		go func() {
			buf := make([]byte, 2048)
			for {
				n, _, err := pc.ReadFrom(buf)
				if err != nil {
					return
				}
				a.note(buf[:n], "udp "+address)
			}
		}()
	}
}

func (a *arena) canary(c net.Conn, address string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience.For(5 * time.Second)))
	buf := make([]byte, 4096)
	n, _ := c.Read(buf)
	a.note(buf[:n], address)
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\ncanary\n")
}

func (a *arena) note(what []byte, where string) {
	for _, name := range attemptNames {
		if bytes.Contains(what, []byte(name)) {
			a.found(name, "%s received %.60q", where, what)
		}
	}
}

// serveHostile answers what it was not asked yet.
func (a *arena) serveHostile() {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"
	l := a.listen(worldC + ":443")
	config := &tls.Config{Certificates: []tls.Certificate{a.certificate(nil, "hostile.example")}, NextProtos: []string{"http/1.1"}}
	var count atomic.Int32
	serve := func(raw net.Conn, early bool) {
		defer raw.Close()
		c := tls.Server(raw, config)
		buf := make([]byte, 4096)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			_, _ = io.WriteString(c, answer+"poison\n")
			if early {
				_, _ = io.WriteString(c, answer+"poison\n")
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, count.Add(1)%2 == 0)
		}
	}()
}

// serveStream takes any bytes.
func (a *arena) serveStream() {
	l := a.listen(worldC + ":9000")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go a.drain("open-stream", c)
		}
	}()
	a.t.Cleanup(func() { l.Close() })
}

// drain reads what comes, and keeps what does although it should have ended.
func (a *arena) drain(attempt string, r io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			a.began(attempt)
			grace := patience.For(1500 * time.Millisecond) // for what is under way
			if at := a.changed.Load(); at != 0 && time.Since(time.Unix(0, at)) > grace {
				a.found(attempt, "%d bytes, %v after the policy was changed", n, time.Since(time.Unix(0, at)))
			}
		}
		if err != nil {
			return
		}
	}
}

func (a *arena) began(attempt string) {
	a.evidenceMu.Lock()
	defer a.evidenceMu.Unlock()
	a.streams[attempt] = true
}

func (a *arena) bothBegan() bool {
	a.evidenceMu.Lock()
	defer a.evidenceMu.Unlock()
	return a.streams["open-stream"] && a.streams["open-request"]
}

// serveAlteredDNS is the resolver of sandboxes with rules: its answers for one
// name change, and somebody forges those for another.
func (a *arena) serveAlteredDNS() {
	var pc net.PacketConn
	var err error
	a.in(func() { pc, err = net.ListenPacket("udp", worldC+":53") })
	if err != nil {
		a.t.Fatal(err)
	}
	server := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		name := strings.ToLower(q.Question[0].Name)
		switch {
		case name == "forged.wild.example." && q.Question[0].Qtype == dns.TypeA:
			forged := q.Copy()
			forged.Question[0].Name = "harmless.wild.example."
			m := new(dns.Msg).SetReply(forged)
			head := dns.RR_Header{Name: q.Question[0].Name, Class: dns.ClassINET, Rrtype: dns.TypeA, Ttl: 60}
			m.Answer = append(m.Answer, &dns.A{Hdr: head, A: net.ParseIP(worldB)})
			_ = rw.WriteMsg(m)
		case name == "rebind.wild.example.":
			a.rebind(rw, q)
			return
		case name == "mapped.wild.example." && q.Question[0].Qtype == dns.TypeAAAA:
			m := new(dns.Msg).SetReply(q)
			head := dns.RR_Header{Name: q.Question[0].Name, Class: dns.ClassINET, Rrtype: dns.TypeAAAA, Ttl: 60}
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: head, AAAA: net.ParseIP(worldLocal).To16()})
			_ = rw.WriteMsg(m)
			return
		}
		a.net.ServeDNS(rw, q)
	})}
	go server.ActivateAndServe() // it ends with the test
	a.t.Cleanup(func() { pc.Close() })
}

// rebind leads to a server at first, and then into the network of the host.
func (a *arena) rebind(rw dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	if q.Question[0].Qtype == dns.TypeA {
		to := worldA
		if a.rebound.Add(1) > 1 {
			to = worldLocal
		}
		head := dns.RR_Header{Name: q.Question[0].Name, Class: dns.ClassINET, Rrtype: dns.TypeA}
		m.Answer = append(m.Answer, &dns.A{Hdr: head, A: net.ParseIP(to)})
	}
	_ = rw.WriteMsg(m)
}
