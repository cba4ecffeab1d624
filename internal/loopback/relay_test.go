package loopback_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/loopback"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// relay serves a port that leads to a server which answers, at the end of what it
// is sent, with all of that.
func relay(t *testing.T, owner uint32, slots int) *loopback.Listener {
	t.Helper()
	return relayMet(t, owner, slots, func() {})
}

// relayMet is relay, and calls met for each connection that has its place.
func relayMet(t *testing.T, owner uint32, slots int, met func()) *loopback.Listener {
	t.Helper()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				all, _ := io.ReadAll(c)
				_, _ = c.Write(all)
			}()
		}
	}()
	l, err := loopback.Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &loopback.Relay{
		Owner: owner, Slots: []loopback.Slots{loopback.NewSlots(slots)}, Log: slog.New(slog.DiscardHandler),
		Dial: func(context.Context) (io.ReadWriteCloser, error) {
			met()
			return net.Dial("tcp", echo.Addr().String())
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

func dial(t *testing.T, l *loopback.Listener) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// say sends what a half-close ends, and returns what comes back.
func say(t *testing.T, c *net.TCPConn, text string) (string, error) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		return "", err
	}
	if err := c.CloseWrite(); err != nil {
		return "", err
	}
	all, err := io.ReadAll(c)
	return string(all), err
}

// A connection is passed on with each direction's end.
func TestRelay(t *testing.T) {
	l := relay(t, uint32(os.Geteuid()), 8)
	for range 16 {
		if got, err := say(t, dial(t, l), "hello"); got != "hello" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// Another user's connection is reset, and none of it passed on. The control is
// one of the owner's.
func TestOthersAreReset(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const owner, other = 4242, 4243
	l := relay(t, owner, 8)
	for uid, want := range map[int]string{owner: "hello", 0: "hello", other: ""} {
		// Bound first, so that it is that user's before it is accepted.
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Fchown(fd, uid, -1); err != nil {
			t.Fatal(err)
		}
		to := &unix.SockaddrInet4{Port: l.Port(), Addr: [4]byte{127, 0, 0, 1}}
		if err := unix.Connect(fd, to); err != nil && !(uid == other && errors.Is(err, unix.ECONNRESET)) {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			if uid != other { // which may have been reset before that
				t.Fatal(err)
			}
			continue
		}
		got, err := say(t, c.(*net.TCPConn), "hello")
		if got != want || (err == nil) != (want != "") {
			t.Errorf("user %d reads %q, %v, want %q", uid, got, err, want)
		}
		_ = c.Close()
	}
}

// One more than may be is reset, and the next is served once another has ended.
func TestTooMany(t *testing.T) {
	met := make(chan struct{}, 1)
	l := relayMet(t, uint32(os.Geteuid()), 1, func() {
		select {
		case met <- struct{}{}:
		default:
		}
	})
	first := dial(t, l)
	if _, err := first.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	try := func() (string, error) {
		c, err := net.Dial("tcp", l.Addr().String()) // it may be reset before this has returned
		if err != nil {
			return "", err
		}
		defer c.Close()
		return say(t, c.(*net.TCPConn), "hello")
	}
	<-met // the first has its place
	if got, err := try(); err == nil {
		t.Errorf("one too many: %q", got)
	}
	if got, err := say(t, first, "y"); got != "xy" || err != nil {
		t.Errorf("the first: %q, %v", got, err)
	}
	for { // until its place is free
		if got, err := try(); err == nil && got == "hello" {
			break
		}
	}
}

// A port that is taken on either address is a conflict, and nothing stays open.
func TestListenTaken(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		taken, err := net.Listen("tcp", addr)
		if err != nil {
			t.Logf("no %s here: %v", addr, err)
			continue
		}
		port := taken.Addr().(*net.TCPAddr).Port
		l, err := loopback.Listen(t.Context(), port)
		if sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("%s: %v, %v", addr, l, err)
		}
		near, err := loopback.ListenNear(t.Context(), port)
		if err != nil || near.Port() == port {
			t.Fatalf("%s: %v", addr, err)
		}
		_ = near.Close()
		_ = taken.Close()
		if l, err = loopback.Listen(t.Context(), port); err != nil {
			t.Errorf("%s, free again: %v", addr, err)
			continue
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
	}
	for _, port := range []int{-1, 65536} {
		if _, err := loopback.Listen(t.Context(), port); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("port %d: %v", port, err)
		}
	}
}
