package link_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
)

// rawSocket is what a guest that has broken its kernel writes frames with.
func (w *world) rawSocket() int {
	w.t.Helper()
	fd := -1
	err := w.inside(func() error {
		eth, err := net.InterfaceByName(link.Interface)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: eth.Index})
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { unix.Close(fd) })
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(soon / time.Second)})
	return fd
}

// A count is a handler that counts what reached it, and refuses it.
func counting() (*handler, *atomic.Int32) {
	var n atomic.Int32
	return &handler{
		tcp:  func(*link.TCPRequest) { n.Add(1) },
		udp:  func(*link.UDPRequest) { n.Add(1) },
		told: make(chan link.Drop, 1000),
	}, &n
}

// Each hostile frame is dropped and told, and reaches nobody; the same frame
// without its one fault does.
func TestHostileFrames(t *testing.T) {
	for _, s := range samples() {
		if len(s.frame) < 15 || s.chatter {
			continue // the guest's kernel doesn't send less; the rest leaves no trace to wait for
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			h, reached := counting()
			w := newWorld(t, h)
			fd := w.rawSocket()
			_, err := unix.Write(fd, s.frame)
			if s.want == link.DropOversized {
				mustFailWith(t, err, unix.EMSGSIZE) // the guest's kernel is in the way
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s.want != "" {
				if d := h.await(t, s.want); d.Count != 1 {
					t.Errorf("told %+v", d)
				}
				if n := reached.Load(); n != 0 {
					t.Errorf("%d requests came through", n)
				}
				return
			}
			if bytes.HasPrefix([]byte(s.name), []byte("ping")) {
				return // TestPing
			}
			waitFor(t, "the request", func() bool { return reached.Load() == 1 })
		})
	}
}

// An MTU that the guest ignores: its interface is set to more, and what it
// sends then is not taken.
func TestMTUIgnored(t *testing.T) {
	needRoot(t)
	h, reached := counting()
	w := newWorld(t, h)
	err := w.inside(func() error {
		ifr, err := unix.NewIfreq(link.Interface)
		if err != nil {
			return err
		}
		ifr.SetUint32(65521)
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.IoctlIfreq(fd, unix.SIOCSIFMTU, ifr)
	})
	if err != nil {
		t.Fatal(err)
	}
	fd := w.rawSocket()
	send := func(n int) {
		if _, err := unix.Write(fd, packet(link.Guest4, remote4, 17, udpPayload(40000, 443, string(make([]byte, n))))); err != nil {
			t.Fatal(err)
		}
	}
	send(link.MTU - 28) // the most that may be
	waitFor(t, "the request", func() bool { return reached.Load() == 1 })
	send(link.MTU - 27)
	h.await(t, link.DropOversized)
	if n := reached.Load(); n != 1 {
		t.Errorf("%d requests came through", n)
	}
}

// Many alike are told as one, and no guest fills a record with kinds.
func TestDropsAreBounded(t *testing.T) {
	h, _ := counting()
	w := newWorld(t, h)
	fd := w.rawSocket()
	start := time.Now()
	for i := range 2000 {
		to := netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})
		if _, err := unix.Write(fd, packet(link.Guest4, to, 132, make([]byte, 20))); err != nil {
			t.Fatal(err)
		}
	}
	total, told := 0, 0
	for total < 400 { // at least so many the interface's queue holds
		total += h.await(t, link.DropProtocol).Count
		told++
	}
	if most := (2 + int(time.Since(start)/time.Second)) * (link.DropKinds + 1); told > most {
		t.Errorf("told %d times, want %d at most", told, most)
	}
}

func TestPing(t *testing.T) {
	h := &handler{told: make(chan link.Drop, 10)}
	w := newWorld(t, h)
	for _, c := range []struct {
		name string
		to   netip.Addr
		want error
	}{
		{"gate-4", link.Gate4, nil},
		{"gate-6", link.Gate6, nil},
		{"elsewhere-4", remote4, syscall.EHOSTUNREACH},
		{"elsewhere-6", remote6, syscall.EACCES},
		{"sink-4", link.Sink4, syscall.EHOSTUNREACH},
	} {
		t.Run(c.name, func(t *testing.T) {
			atOnce(t, c.name, func() {
				if err := w.ping(c.to); !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
			})
			if c.want != nil {
				h.await(t, link.DropEcho)
			}
		})
	}
}

// ping sends an echo request as an unprivileged program does.
func (w *world) ping(to netip.Addr) error {
	return w.inside(func() error {
		family, protocol, request := unix.AF_INET, unix.IPPROTO_ICMP, echoRequest(false)
		if to.Is6() {
			family, protocol, request = unix.AF_INET6, unix.IPPROTO_ICMPV6, echoRequest(true)
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
		var sa unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(to.AsSlice()[:4])}
		level, option := unix.IPPROTO_IP, unix.IP_RECVERR
		if to.Is6() {
			sa = &unix.SockaddrInet6{Addr: to.As16()}
			level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
		}
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			return err
		}
		if err := unix.Connect(fd, sa); err != nil {
			return err
		}
		if _, err := unix.Write(fd, request); err != nil {
			return err
		}
		_, err = unix.Read(fd, make([]byte, 100))
		return err
	})
}

// A flood of half-open connections is bounded, is reset beyond that, and
// leaves open ones alone.
func TestSYNFlood(t *testing.T) {
	h := echo()
	h.told = make(chan link.Drop, 100)
	const pending = 50
	w := newWorldWith(t, link.Options{Handler: h, MaxPending: pending}, func(*link.Stack) {})
	before := w.mustDial("tcp", elsewhere4)
	ping(t, before, "hello")
	fd := w.rawSocket()
	const flood = 2000
	for i := range flood {
		// The guest's kernel knows none of these ports, and would end each
		// connection with a reset. This sender is nobody's.
		if _, err := unix.Write(fd, packet(link.Guest4, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), 6, syn(uint16(1024+i), 443))); err != nil {
			t.Fatal(err)
		}
	}
	h.await(t, link.DropLimit)
	if open, _ := w.stack.Open(); open > pending+1 {
		t.Errorf("%d connections count, want %d at most", open, pending+1)
	}
	ping(t, before, "still here")
	waitFor(t, "all places to be given back", func() bool { open, _ := w.stack.Open(); return open == 1 })
	ping(t, w.mustDial("tcp", elsewhere4), "and again")
}

// What exceeds the number of connections is reset at once.
func TestTooMany(t *testing.T) {
	h := echo()
	h.told = make(chan link.Drop, 100)
	w := newWorldWith(t, link.Options{Handler: h, MaxTCP: 3, MaxUDP: 2}, func(*link.Stack) {})
	var conns []net.Conn
	for range 3 {
		c := w.mustDial("tcp", elsewhere4)
		ping(t, c, "hello")
		conns = append(conns, c)
	}
	_, err := w.dial("tcp", elsewhere6)
	mustFailWith(t, err, syscall.ECONNREFUSED)
	if d := h.await(t, link.DropLimit); d.Protocol != "tcp" || d.To.String() != elsewhere6 {
		t.Errorf("told %+v", d)
	}
	conns[0].Close()
	waitFor(t, "a place", func() bool { open, _ := w.stack.Open(); return open == 2 })
	ping(t, w.mustDial("tcp", elsewhere6), "there is room")

	for range 2 {
		ping(t, w.mustDial("udp", elsewhere4), "hello")
	}
	c := w.mustDial("udp", elsewhere4)
	_, _ = c.Write([]byte("one too many"))
	_, err = c.Read(make([]byte, 10))
	mustFailWith(t, err, syscall.ECONNREFUSED)
}

// A guest that never reads holds no more than its share, and no place for
// ever: its connection ends with Reset.
func TestNeverReads(t *testing.T) {
	written := make(chan int64, 1)
	w := newWorldWith(t, link.Options{Buffers: 1 << 20, Handler: &handler{tcp: func(r *link.TCPRequest) {
		c, err := r.Accept()
		if err != nil {
			return
		}
		_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := io.Copy(c, zeros{})
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		c.(*link.Conn).Reset()
		written <- n
	}}}, func(*link.Stack) {})
	c := w.mustDial("tcp", elsewhere4)
	if n := <-written; n > 16<<20 {
		t.Errorf("%d bytes went into buffers", n)
	}
	waitFor(t, "the place", func() bool { open, spare := w.stack.Open(); return open == 0 && spare == 1<<20 })
	c.Close()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// Segments that answer nobody get a reset: after the gate's death the guest's
// connections end at once, when it is back.
func TestUnknownSegments(t *testing.T) {
	w := newWorld(t, &handler{})
	fd := w.rawSocket()
	ack := syn(40000, 443)
	ack[13] = 0x10
	if _, err := unix.Write(fd, packet(link.Guest4, remote4, 6, ack)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 2000)
	for {
		n, err := unix.Read(fd, b)
		if err != nil {
			t.Fatalf("no reset: %v", err)
		}
		f := b[:n]
		if n >= 54 && slices.Equal(f[:6], link.GuestMAC[:]) && binary.BigEndian.Uint16(f[12:]) == 0x0800 && f[23] == 6 && f[47]&4 != 0 {
			return
		}
	}
}
