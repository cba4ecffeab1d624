package dns_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/egress/dns"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// A guest's client over the network: datagrams, and TCP where they are cut
// off.
func TestServe(t *testing.T) {
	z := newZone(t)
	for i := range 25 {
		z.add(t, fmt.Sprintf("many.test. 60 AAAA 2001:db8::%x", i+1))
	}
	w := newWorld(t, allow("many.test"), z).serve(t)
	tests := []struct {
		name, network string
		size          uint16 // announced; 0 for none
		cut           bool
	}{
		{"udp-512", "udp", 0, true},
		{"udp-tiny", "udp", 100, true},
		{"udp-1232", "udp", 1232, false},
		{"udp-huge", "udp", 65535, false},
		{"tcp", "tcp", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := new(wire.Msg).SetQuestion("many.test.", wire.TypeAAAA)
			if tt.size > 0 {
				m.SetEdns0(tt.size, false)
			}
			r, _, err := (&wire.Client{Net: tt.network}).Exchange(m, w.addr)
			if err != nil {
				t.Fatal(err)
			}
			if r.Truncated != tt.cut || !tt.cut && len(r.Answer) != 25 || (r.IsEdns0() != nil) != (tt.size > 0) {
				t.Errorf("cut off: %v, %d addresses, options: %v", r.Truncated, len(r.Answer), r.IsEdns0())
			}
		})
	}
	t.Run("go-resolver", func(t *testing.T) {
		res := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, w.addr)
		}}
		got, err := res.LookupNetIP(t.Context(), "ip6", "many.test")
		if err != nil || len(got) != 25 {
			t.Errorf("%d addresses, %v", len(got), err)
		}
		if got, err := res.LookupNetIP(t.Context(), "ip4", "evil.test."); err != nil || got[0].Unmap() != sink4 {
			t.Errorf("a refused name: %v, %v", got, err)
		}
		if _, err := res.LookupTXT(t.Context(), "secret.evil.test."); err == nil {
			t.Error("a text was found")
		}
	})
}

// Several questions on one connection, answered in turn; then one that is too
// long to be one ends it.
func TestConnections(t *testing.T) {
	w := newWorld(t, allow(), nil).serve(t)
	conn := dial(t, w.addr)
	for i := range 3 {
		m := new(wire.Msg).SetQuestion("a.test.", wire.TypeA)
		m.Id = uint16(i)
		if err := (&wire.Conn{Conn: conn}).WriteMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if m, err := (&wire.Conn{Conn: conn}).ReadMsg(); err != nil || int(m.Id) != i {
			t.Fatalf("answer %d: %v, %v", i, m, err)
		}
	}
	if _, err := conn.Write(binary.BigEndian.AppendUint16(nil, dns.MaxQuestion+1)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes after a message that is too long", n)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t, allow(), nil)
	w.SetTimes(time.Second, time.Second, patience.For(3*time.Second)) // all of them are open before the first is closed
	w.serve(t)
	ask := func(c net.Conn) error {
		if err := (&wire.Conn{Conn: c}).WriteMsg(new(wire.Msg).SetQuestion("a.test.", wire.TypeA)); err != nil {
			return err
		}
		_, err := (&wire.Conn{Conn: c}).ReadMsg()
		return err
	}
	var conns []net.Conn
	for range dns.MaxConns {
		c := dial(t, w.addr)
		if err := ask(c); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if err := ask(dial(t, w.addr)); err == nil {
		t.Error("one more connection than the bound was served")
	}
	// Who writes a byte now and then keeps nothing open.
	for _, c := range conns {
		if _, err := c.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range conns {
		if _, err := io.ReadAll(c); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Log("closed:", err)
		}
	}
	if err := ask(dial(t, w.addr)); err != nil {
		t.Error("afterwards:", err)
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// More questions at once than there is room for are refused at once; the
// others get their answers.
func TestQuestionsAtOnceAreBounded(t *testing.T) {
	z := newZone(t)
	release := make(chan struct{})
	var hosts []string
	var arrived sync.WaitGroup
	arrived.Add(dns.MaxSlots)
	for i := range dns.MaxSlots + 1 {
		h := fmt.Sprintf("h%d.test", i)
		hosts = append(hosts, h)
		z.handle(h, func(w wire.ResponseWriter, r *wire.Msg) {
			arrived.Done()
			<-release
			_ = w.WriteMsg(new(wire.Msg).SetReply(r))
		})
	}
	w := newWorld(t, allow(hosts...), z)
	w.SetTimes(time.Hour, time.Hour, time.Minute) // none is asked twice
	w.serve(t)
	var done sync.WaitGroup
	for _, h := range hosts[:dns.MaxSlots] {
		done.Go(func() {
			m, _, err := (&wire.Client{Timeout: patience.For(time.Minute)}).Exchange(new(wire.Msg).SetQuestion(h+".", wire.TypeA), w.addr)
			if err != nil || m.Rcode != wire.RcodeSuccess {
				t.Errorf("%s: %v, %v", h, m, err)
			}
		})
	}
	arrived.Wait()
	m, _, err := (&wire.Client{Timeout: patience.For(20 * time.Second)}).Exchange(new(wire.Msg).SetQuestion(hosts[dns.MaxSlots]+".", wire.TypeA), w.addr)
	if err != nil || m.Rcode != wire.RcodeRefused {
		t.Errorf("one more: %v, %v", m, err)
	}
	close(release)
	done.Wait()
	if n := len(z.questions()); n != dns.MaxSlots {
		t.Errorf("%d questions arrived, want %d", n, dns.MaxSlots)
	}
}

// Serve gives up when its socket fails for good, and not before.
func TestServeFails(t *testing.T) {
	w := newWorld(t, allow(), nil)
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = pc.Close()
	if err := w.Serve(t.Context(), pc, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve = %v, want closed", err)
	}
}

// message is a header, and what follows it.
func message(flags uint16, counts [4]uint16, rest string) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0xab, 0xcd}, flags)
	for _, c := range counts {
		b = binary.BigEndian.AppendUint16(b, c)
	}
	return append(b, rest...)
}

// Messages that no client sends. The name in each is allowed, and the control
// is the same message as it should be.
func TestHostileMessages(t *testing.T) {
	const q = "\x03www\x04test\x00\x00\x01\x00\x01"
	opt := func(version byte, options string) string {
		return "\x00\x00\x29\x10\x00\x00" + string(version) + "\x00\x00" + string(binary.BigEndian.AppendUint16(nil, uint16(len(options)))) + options
	}
	tests := []struct {
		name   string
		msg    []byte
		rcode  int // negative: no answer
		leaves bool
	}{
		{"control", message(0x0100, [4]uint16{1}, q), wire.RcodeSuccess, true},
		{"control-options", message(0x0100, [4]uint16{1, 0, 0, 1}, q+opt(0, "")), wire.RcodeSuccess, true},
		{"empty", nil, -1, false},
		{"short", []byte("hello"), -1, false},
		{"response", message(0x8180, [4]uint16{1}, q), -1, false},
		{"no-question", message(0x0100, [4]uint16{}, ""), wire.RcodeFormatError, false},
		{"missing-question", message(0x0100, [4]uint16{1}, ""), wire.RcodeFormatError, false},
		{"half-question", message(0x0100, [4]uint16{1}, q[:7]), wire.RcodeFormatError, false},
		{"two-questions", message(0x0100, [4]uint16{2}, q+q), wire.RcodeFormatError, false},
		{"many-questions", message(0x0100, [4]uint16{65535}, q), wire.RcodeFormatError, false},
		{"answer-inside", message(0x0100, [4]uint16{1, 1}, q+"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x01"), wire.RcodeFormatError, false},
		{"record-inside", message(0x0100, [4]uint16{1, 0, 0, 1}, q+"\xc0\x0c\x00\x10\x00\x01\x00\x00\x00\x3c\x00\x04\x03abc"), wire.RcodeFormatError, false},
		{"loop", message(0x0100, [4]uint16{1}, "\xc0\x0c\x00\x01\x00\x01"), wire.RcodeFormatError, false},
		{"loop-of-two", message(0x0100, [4]uint16{1}, "\x01a\xc0\x0c\x00\x01\x00\x01"), wire.RcodeFormatError, false},
		{"pointer-past-end", message(0x0100, [4]uint16{1}, "\xc3\xff\x00\x01\x00\x01"), wire.RcodeFormatError, false},
		{"reserved-label", message(0x0100, [4]uint16{1}, "\x41a\x00\x00\x01\x00\x01"), wire.RcodeFormatError, false},
		{"long-name", message(0x0100, [4]uint16{1}, strings.Repeat("\x3f"+strings.Repeat("a", 63), 4)+"\x00\x00\x01\x00\x01"), wire.RcodeFormatError, false},
		{"over-long", message(0x0100, [4]uint16{1}, q+strings.Repeat("x", 2000)), wire.RcodeFormatError, false},
		{"options-junk", message(0x0100, [4]uint16{1, 0, 0, 1}, q+opt(0, "\x00\x08\xff\xff\x00")), wire.RcodeFormatError, false},
		{"options-of-private-use", message(0x0100, [4]uint16{1, 0, 0, 1}, q+opt(0, "\xfd\xe9\x00\x06secret")), wire.RcodeSuccess, true},
		{"options-version", message(0x0100, [4]uint16{1, 0, 0, 1}, q+opt(1, "")), wire.RcodeBadVers, false},
		{"notify", message(0x2100, [4]uint16{1}, q), wire.RcodeNotImplemented, false},
		{"update", message(0x2800, [4]uint16{1}, q), wire.RcodeNotImplemented, false},
		{"status", message(0x1000, [4]uint16{1}, q), wire.RcodeNotImplemented, false},
		{"chaos", message(0x0100, [4]uint16{1}, q[:len(q)-1]+"\x03"), wire.RcodeRefused, false},
		{"any-class", message(0x0100, [4]uint16{1}, q[:len(q)-1]+"\xff"), wire.RcodeRefused, false},
		{"type-none", message(0x0100, [4]uint16{1}, q[:len(q)-3]+"\x00\x00\x01"), wire.RcodeRefused, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			z := newZone(t, "www.test. A 203.0.113.1")
			w := newWorld(t, allow("www.test"), z)
			answer := w.Handle(t.Context(), tt.msg)
			if len(w.told()) == 0 {
				t.Error("there is no record")
			}
			if asked := z.messages(); (len(asked) > 0) != tt.leaves {
				t.Errorf("asked outside: %v, want %v", asked, tt.leaves)
			} else if tt.leaves && slices.ContainsFunc(asked[0].IsEdns0().Option, func(wire.EDNS0) bool { return true }) {
				t.Errorf("options left: %v", asked[0])
			}
			if tt.rcode < 0 {
				if answer != nil {
					t.Errorf("answered with %x", answer)
				}
				return
			}
			var m wire.Msg
			if err := m.Unpack(answer); err != nil || m.Rcode != tt.rcode || m.Id != 0xabcd || !m.Response {
				t.Errorf("answer = %v, %v; want %s", &m, err, wire.RcodeToString[tt.rcode])
			}
		})
	}
}

// A record of an upstream's that is text full of control characters goes to
// the guest as it is, and to nobody's terminal.
func TestTextOfOthers(t *testing.T) {
	z := newZone(t, `www.test. TXT "\027[2Jhello"`)
	p := allow("www.test")
	p.p.DNS.Types = []string{"TXT"}
	w := newWorld(t, p, z)
	m := w.ask(t, "www.test.", wire.TypeTXT)
	if len(m.Answer) != 1 || m.Answer[0].(*wire.TXT).Txt[0] != `\027[2Jhello` {
		t.Errorf("answer = %v", m.Answer)
	}
	for _, r := range w.told() {
		if strings.Contains(r.Result+r.Reason, "hello") {
			t.Errorf("record = %+v", r)
		}
	}
}

func TestUpstreamsAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]string{"192.0.2.1": "192.0.2.1:53", "192.0.2.1:5353": "192.0.2.1:5353", "2001:db8::1": "[2001:db8::1]:53", "[2001:db8::1]": "[2001:db8::1]:53", "[2001:db8::1]:5353": "[2001:db8::1]:5353"} {
		p := allow("www.test")
		p.p.DNS.Upstreams = []string{text}
		var got []netip.AddrPort
		w := newWorld(t, p, nil, func(o *dns.Options) {
			o.Dial = func(_ context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
				got = append(got, to)
				return nil, errors.New("no network")
			}
		})
		w.ask(t, "www.test.", wire.TypeA)
		if len(got) == 0 || got[0].String() != want {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
}
