package link_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
)

// A gate that died is followed by another, which takes the interface up where
// it was: the sockets that were bound to it never saw it go.
func TestAttach(t *testing.T) {
	w := newWorld(t, echo())
	old := w.mustDial("tcp", elsewhere4)
	ping(t, old, "hello")
	fd := w.rawSocket()

	if tap, err := link.Attach(w.dev.NetNS); err == nil {
		tap.Close()
		t.Fatal("two hold the TAP")
	} else {
		mustFailWith(t, err, unix.EBUSY)
	}

	if err := w.stack.Close(); err != nil {
		t.Fatal(err)
	}
	// Nobody holds it: what is sent is lost, and no sender is told that the
	// network is down.
	if _, err := unix.Write(fd, goodUDP4); err != nil {
		t.Errorf("send a frame meanwhile: %v", err)
	}
	c := w.mustDial("udp", elsewhere4)
	if _, err := c.Write([]byte("lost")); err != nil {
		t.Errorf("send a datagram meanwhile: %v", err)
	}

	tap, err := link.Attach(w.dev.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	h, reached := counting()
	h.tcp = echo().tcp
	next, err := link.NewStack(tap, link.Options{Handler: h})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	next.Start()

	if _, err := unix.Write(fd, goodUDP4); err != nil {
		t.Errorf("send a frame afterwards: %v", err)
	}
	waitFor(t, "the frame", func() bool { return reached.Load() == 1 })
	if _, err := old.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_, err = old.Read(make([]byte, 1))
	mustFailWith(t, err, syscall.ECONNRESET)
	ping(t, w.mustDial("tcp", elsewhere4), "again")
	ping(t, w.mustDial("tcp", elsewhere6), "again")
}

func TestAttachWithoutTAP(t *testing.T) {
	needRoot(t)
	var ns *os.File
	err := link.Elsewhere(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	_, err = link.Attach(ns)
	mustFailWith(t, err, unix.ENODEV)
}

// What runsc reads of an interface, and what it needs of it.
func TestInterface(t *testing.T) {
	w := newWorld(t, echo())
	err := w.inside(func() error {
		eth, err := netlink.LinkByName(link.Interface)
		if err != nil {
			return err
		}
		if a := eth.Attrs(); a.MTU != link.MTU || a.HardwareAddr.String() != net.HardwareAddr(link.GuestMAC[:]).String() {
			t.Errorf("MTU %d, address %s", a.MTU, a.HardwareAddr)
		}
		got := map[string]bool{}
		addrs, err := netlink.AddrList(eth, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			got["address "+a.IPNet.String()] = true
		}
		routes, err := netlink.RouteList(eth, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		for _, r := range routes {
			got[fmt.Sprintf("route %s via %s", r.Dst, r.Gw)] = true
		}
		neighbours, err := netlink.NeighList(eth.Attrs().Index, 0)
		if err != nil {
			return err
		}
		for _, n := range neighbours {
			if n.State == netlink.NUD_PERMANENT {
				got["neighbour "+n.IP.String()] = true
			}
		}
		want := []string{
			"address 192.0.0.2/29", "address fd63:6172:626f:7900::2/64",
			"route 192.0.0.1/32 via <nil>", "route fd63:6172:626f:7900::1/128 via <nil>",
			"route 0.0.0.0/0 via 192.0.0.1", "route ::/0 via fd63:6172:626f:7900::1",
			"neighbour 192.0.0.1", "neighbour fd63:6172:626f:7900::1",
		}
		for _, s := range want {
			if !got[s] {
				t.Errorf("no %s", s)
			}
			delete(got, s)
		}
		if len(got) > 0 {
			t.Errorf("and more: %v", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Two sandboxes have the same addresses, and nothing of each other.
func TestLinksAreApart(t *testing.T) {
	a, b := newWorld(t, echo()), newWorld(t, &handler{})
	ping(t, a.mustDial("tcp", elsewhere4), "hello")
	_, err := b.dial("tcp", elsewhere4)
	mustFailWith(t, err, syscall.ECONNREFUSED)
}

// A link leaves no descriptor, no thread in another namespace and no
// goroutine.
func TestNothingIsLeft(t *testing.T) {
	needRoot(t)
	round := func() {
		w := newWorld(t, echo())
		c := w.mustDial("tcp", elsewhere4)
		ping(t, c, "hello")
		c.Close()
		u := w.mustDial("udp", elsewhere4)
		ping(t, u, "hello")
		u.Close()
		if err := w.stack.Close(); err != nil {
			t.Error(err)
		}
		if err := w.stack.Wait(); err != nil {
			t.Errorf("after Close: %v", err)
		}
		w.dev.NetNS.Close()
	}
	round()
	fds := count(t, "/proc/self/fd/*")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				round()
			}
		})
	}
	wg.Wait()
	waitFor(t, "all descriptors to be closed", func() bool { return count(t, "/proc/self/fd/*") <= fds })
	waitFor(t, "all threads to be in one namespace", func() bool {
		ours, _ := os.Readlink("/proc/self/ns/net")
		spaces, _ := filepath.Glob("/proc/self/task/*/ns/net")
		for _, s := range spaces {
			if ns, err := os.Readlink(s); err == nil && ns != ours {
				return false
			}
		}
		return true
	})
}

func count(t *testing.T, pattern string) int {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// A stack that was never started closes, and one whose TAP fails says so.
func TestEnds(t *testing.T) {
	needRoot(t)
	dev, err := link.Create(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.NetNS.Close()
	s, err := link.NewStack(dev.TAP, link.Options{Handler: echo()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if s, err = link.NewStack(r, link.Options{Handler: echo()}); err != nil {
		t.Fatal(err)
	}
	s.Start()
	wr.Close()
	done := make(chan error, 1)
	go func() { done <- s.Wait() }()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "read network link") {
			t.Errorf("got %v", err)
		}
	case <-time.After(soon):
		t.Error("it does not see that the TAP has gone")
	}
	s.Close()
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]link.Options{
		"no-handler":       {},
		"negative-bound":   {Handler: echo(), MaxTCP: -1},
		"negative-buffers": {Handler: echo(), Buffers: -1},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if s, err := link.NewStack(r, o); err == nil {
				s.Close()
				t.Error("accepted")
			}
			if _, err := r.Stat(); err == nil {
				t.Error("the descriptor is open still")
			}
		})
	}
}
