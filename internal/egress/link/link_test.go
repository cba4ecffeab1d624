package link_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// elsewhere4 and elsewhere6 are addresses that are nobody's on this machine.
const (
	elsewhere4 = "198.51.100.7:443"
	elsewhere6 = "[2001:db8::7]:443"
)

func TestTCP(t *testing.T) {
	asked := make(chan *link.TCPRequest, 4)
	h := echo()
	accept := h.tcp
	h.tcp = func(r *link.TCPRequest) { asked <- r; accept(r) }
	w := newWorld(t, h)
	for _, to := range []string{elsewhere4, elsewhere6, hostPort(link.Sink4, 80), hostPort(link.Sink6, 80), hostPort(link.Gate4, 9)} {
		t.Run(to, func(t *testing.T) {
			c := w.mustDial("tcp", to)
			r := <-asked
			if got := r.To.String(); got != to {
				t.Errorf("to %s, want %s", got, to)
			}
			if a := r.From.Addr(); a != link.Guest4 && a != link.Guest6 {
				t.Errorf("from %s", a)
			}
			if got, want := c.LocalAddr().String(), r.From.String(); got != want {
				t.Errorf("from %s, want %s", want, got)
			}
			ping(t, c, "hello")
		})
	}
}

// What is written to a corked connection goes out together once it is not.
func TestCork(t *testing.T) {
	corked, off := make(chan struct{}), make(chan struct{})
	w := newWorld(t, &handler{tcp: func(r *link.TCPRequest) {
		c, err := r.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte("before"))
		<-off
		c.(*link.Conn).Cork(true)
		for range 3 {
			_, _ = c.Write(bytes.Repeat([]byte("x"), 16<<10))
		}
		corked <- struct{}{}
		<-off
		c.(*link.Conn).Cork(false)
		<-off
	}})
	c := w.mustDial("tcp", elsewhere4)
	got := make([]byte, 48<<10)
	if _, err := io.ReadFull(c, got[:6]); err != nil || string(got[:6]) != "before" {
		t.Fatalf("%q, %v", got[:6], err)
	}
	off <- struct{}{}
	<-corked
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := c.Read(got); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("corked: read %d bytes, %v", n, err)
	}
	off <- struct{}{}
	_ = c.SetReadDeadline(time.Now().Add(patience.For(5 * time.Second)))
	if n, err := c.Read(got); n != len(got) || err != nil {
		t.Errorf("read %d bytes of %d at once, %v", n, len(got), err)
	}
	close(off)
}

// atOnce has f take less than the second after which a kernel asks again. A
// busy machine may hold f up once or twice, and an answer that comes late or
// only when asked again is late each time: so one of five has to be quick.
func atOnce(t *testing.T, what string, f func()) {
	t.Helper()
	var took []time.Duration
	for range 5 {
		start := time.Now()
		f()
		d := time.Since(start)
		if d < time.Second {
			return
		}
		took = append(took, d)
	}
	t.Errorf("%s: took %v", what, took)
}

func TestTCPRefusedAtOnce(t *testing.T) {
	w := newWorld(t, &handler{tcp: func(r *link.TCPRequest) { r.Refuse() }})
	for _, to := range []string{elsewhere4, elsewhere6, hostPort(link.Gate4, 9)} {
		atOnce(t, to, func() {
			_, err := w.dial("tcp", to)
			mustFailWith(t, err, syscall.ECONNREFUSED)
		})
	}
	waitFor(t, "all places to be given back", func() bool { open, _ := w.stack.Open(); return open == 0 })
}

// What is no host's address is refused as well, though nothing can answer from
// there.
func TestTCPToNowhere(t *testing.T) {
	w := newWorld(t, echo())
	for _, to := range []string{"0.0.0.1:80", "240.0.0.1:80", "255.255.255.254:443"} {
		atOnce(t, to, func() {
			_, err := w.dial("tcp", to)
			mustFailWith(t, err, syscall.EHOSTUNREACH)
		})
	}
}

func TestUDP(t *testing.T) {
	w := newWorld(t, echo())
	for _, to := range []string{elsewhere4, elsewhere6} {
		t.Run(to, func(t *testing.T) {
			c := w.mustDial("udp", to)
			for _, s := range []string{"first", "second", strings.Repeat("long", 16000)} {
				ping(t, c, s)
			}
		})
	}
}

func TestUDPWaitsForTheVerdict(t *testing.T) {
	decided := make(chan struct{})
	h := echo()
	accept := h.udp
	h.udp = func(r *link.UDPRequest) { <-decided; accept(r) }
	w := newWorld(t, h)
	c := w.mustDial("udp", elsewhere4)
	for _, s := range []string{"one", "two", "three"} {
		if _, err := c.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	close(decided)
	got := map[string]bool{}
	for range 3 {
		b := make([]byte, 10)
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got[string(b[:n])] = true
	}
	if len(got) != 3 {
		t.Errorf("got %v", got)
	}
}

func TestUDPRefusedAtOnce(t *testing.T) {
	w := newWorld(t, &handler{})
	for _, to := range []string{elsewhere4, elsewhere6, hostPort(link.Gate4, 9)} {
		c := w.mustDial("udp", to)
		atOnce(t, to, func() {
			if _, err := c.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			_, err := c.Read(make([]byte, 10))
			mustFailWith(t, err, syscall.ECONNREFUSED)
		})
	}
	waitFor(t, "all places to be given back", func() bool { return w.stack.Flows() == 0 })
}

func TestListeners(t *testing.T) {
	w := newWorldWith(t, link.Options{Handler: &handler{}}, func(s *link.Stack) {
		l, err := s.ListenTCP(link.PortProxy)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ListenTCP(link.PortProxy); err == nil {
			t.Error("listened twice on one port")
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
			}
		}()
		p, err := s.ListenUDP(link.PortDNS)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			b := make([]byte, 2000)
			for {
				n, from, err := p.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = p.WriteTo(b[:n], from)
			}
		}()
	})
	for _, a := range []string{link.Gate4.String(), "[" + link.Gate6.String() + "]"} {
		ping(t, w.mustDial("tcp", a+":3128"), "over TCP")
		// A connected socket hears only from the address that it asked.
		ping(t, w.mustDial("udp", a+":53"), "over UDP")
	}
	// The listeners are the gate's alone.
	_, err := w.dial("tcp", "198.51.100.7:3128")
	mustFailWith(t, err, syscall.ECONNREFUSED)
}

func TestPacketConnDeadlines(t *testing.T) {
	var p net.PacketConn
	w := newWorldWith(t, link.Options{Handler: &handler{}}, func(s *link.Stack) {
		var err error
		if p, err = s.ListenUDP(53); err != nil {
			t.Fatal(err)
		}
	})
	b := make([]byte, 10)
	_ = p.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, _, err := p.ReadFrom(b)
	if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
		t.Errorf("got %v, want a timeout", err)
	}
	_ = p.SetReadDeadline(time.Time{})
	c := w.mustDial("udp", hostPort(link.Gate4, 53))
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, _, err := p.ReadFrom(b); n != 1 || err != nil {
		t.Errorf("after the deadline was taken back: %d, %v", n, err)
	}
	got := make(chan error, 1)
	go func() { _, _, err := p.ReadFrom(b); got <- err }()
	p.Close()
	mustFailWith(t, <-got, net.ErrClosed)
}

func TestHalfClose(t *testing.T) {
	// The guest ends its half first, and hears the rest after that.
	heard := make(chan string, 1)
	w := newWorld(t, &handler{tcp: func(r *link.TCPRequest) {
		c, err := r.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b, _ := io.ReadAll(c)
		heard <- string(b)
		_, _ = c.Write([]byte("an answer"))
	}})
	c := w.mustDial("tcp", elsewhere4).(*net.TCPConn)
	_, _ = c.Write([]byte("a question"))
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "a question" {
		t.Errorf("heard %q", got)
	}
	if b, err := io.ReadAll(c); string(b) != "an answer" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestReset(t *testing.T) {
	accepted := make(chan net.Conn, 1)
	w := newWorld(t, &handler{tcp: func(r *link.TCPRequest) {
		if c, err := r.Accept(); err == nil {
			accepted <- c
		}
	}})
	t.Run("by-the-gate", func(t *testing.T) {
		c := w.mustDial("tcp", elsewhere4)
		gate := <-accepted
		gate.(*link.Conn).Reset()
		_, err := c.Read(make([]byte, 1))
		mustFailWith(t, err, syscall.ECONNRESET)
		_, err = gate.Write([]byte("x"))
		mustFailWith(t, err, net.ErrClosed)
	})
	t.Run("by-the-guest", func(t *testing.T) {
		c := w.mustDial("tcp", elsewhere4).(*net.TCPConn)
		gate := <-accepted
		defer gate.Close()
		_ = c.SetLinger(0)
		c.Close()
		_, err := gate.Read(make([]byte, 1))
		mustFailWith(t, err, syscall.ECONNRESET)
	})
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, echo())
	var wg sync.WaitGroup
	for i := range 64 {
		to := elsewhere4
		if i%2 == 1 {
			to = elsewhere6
		}
		wg.Go(func() {
			c := w.mustDial("tcp", to)
			defer c.Close()
			transfer(t, c, 1<<20, uint64(i))
		})
	}
	wg.Wait()
	waitFor(t, "all places to be given back", func() bool { open, spare := w.stack.Open(); return open == 0 && spare == 64<<20 })
}

func TestBigTransfer(t *testing.T) {
	w := newWorld(t, echo())
	for _, to := range []string{elsewhere4, elsewhere6} {
		transfer(t, w.mustDial("tcp", to), 64<<20, 1)
	}
}

// transfer sends n bytes to an echo and wants them back.
func transfer(t *testing.T, c net.Conn, n int64, seed uint64) {
	t.Helper()
	if raceDetector {
		n /= 16 // as it takes about as many times as long
	}
	sent := sha256.New()
	done := make(chan error, 1)
	go func() {
		source := io.LimitReader(rand.NewChaCha8([32]byte{byte(seed)}), n)
		_, err := io.Copy(c, io.TeeReader(source, sent))
		done <- err
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got := sha256.New()
	read, err := io.Copy(got, c)
	if err := <-done; err != nil {
		t.Errorf("send: %v", err)
	}
	if err != nil || read != n || !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
		t.Errorf("got %d bytes of %d, %v; equal: %v", read, n, err, bytes.Equal(got.Sum(nil), sent.Sum(nil)))
	}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(soon); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

func TestCreateStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if d, err := link.Create(ctx); err == nil {
		d.Close()
		t.Error("created for a context that was over")
	}
}
