package link_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// soon bounds what takes no time when all is well.
var soon = patience.For(20 * time.Second)

// A handler is made of functions. What has none is refused.
type handler struct {
	tcp func(*link.TCPRequest)
	udp func(*link.UDPRequest)

	mu    sync.Mutex
	drops []link.Drop
	told  chan link.Drop
}

func (h *handler) TCP(r *link.TCPRequest) {
	if h.tcp != nil {
		h.tcp(r)
	}
}

func (h *handler) UDP(r *link.UDPRequest) {
	if h.udp != nil {
		h.udp(r)
	}
}

func (h *handler) Dropped(d link.Drop) {
	h.mu.Lock()
	h.drops = append(h.drops, d)
	h.mu.Unlock()
	if h.told != nil {
		select {
		case h.told <- d:
		default:
		}
	}
}

// echo accepts every connection and flow, and sends back what comes.
func echo() *handler {
	return &handler{
		tcp: func(r *link.TCPRequest) {
			c, err := r.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if _, err := io.Copy(c, c); err == nil {
				_ = c.(*link.Conn).CloseWrite()
			}
		},
		udp: func(r *link.UDPRequest) {
			c, err := r.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			b := make([]byte, 1<<16)
			for {
				_ = c.SetReadDeadline(time.Now().Add(soon))
				n, err := c.Read(b)
				if err != nil {
					return
				}
				_, _ = c.Write(b[:n])
			}
		},
	}
}

// A world is a link with a stack, and a guest's side that a kernel serves.
type world struct {
	t     testing.TB
	dev   *link.Device
	stack *link.Stack
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun")
	}
}

func newWorld(t testing.TB, h link.Handler) *world {
	t.Helper()
	return newWorldWith(t, link.Options{Handler: h}, func(*link.Stack) {})
}

func newWorldWith(t testing.TB, o link.Options, listen func(*link.Stack)) *world {
	t.Helper()
	needRoot(t)
	dev, err := link.Create(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.NetNS.Close() })
	s, err := link.NewStack(dev.TAP, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	listen(s)
	s.Start()
	return &world{t, dev, s}
}

// inside calls f on a thread in the guest's network namespace.
func (w *world) inside(f func() error) error {
	return link.Elsewhere(func() error {
		if err := link.Enter(w.dev.NetNS); err != nil {
			return err
		}
		return f()
	})
}

// dial connects from inside.
func (w *world) dial(network, address string) (c net.Conn, err error) {
	err = w.inside(func() error {
		c, err = (&net.Dialer{Timeout: soon}).Dial(network, address)
		return err
	})
	return c, err
}

func (w *world) mustDial(network, address string) net.Conn {
	w.t.Helper()
	c, err := w.dial(network, address)
	if err != nil {
		w.t.Fatalf("dial %s %s: %v", network, address, err)
	}
	_ = c.SetDeadline(time.Now().Add(soon))
	w.t.Cleanup(func() { c.Close() })
	return c
}

// ping says s over c, and wants to hear it again.
func ping(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatalf("write: %v", err)
	}
	b := make([]byte, len(s))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("read: %v", err)
	}
	if string(b) != s {
		t.Fatalf("got %q, want %q", b, s)
	}
}

// await waits for a drop of a reason.
func (h *handler) await(t testing.TB, want link.Reason) link.Drop {
	t.Helper()
	timer := time.NewTimer(soon)
	defer timer.Stop()
	for {
		select {
		case d := <-h.told:
			if d.Reason == want {
				return d
			}
		case <-timer.C:
			t.Fatalf("no drop for reason %q; told %+v", want, h.drops)
		}
	}
}

func hostPort(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

func mustFailWith(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
