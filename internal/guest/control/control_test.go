package control_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

const name = "agent.sock"

// pair is a directory with a socket in it, and an agent that has inherited
// that.
func pair(t *testing.T, key control.Key) (*beneath.Dir, *control.Socket) {
	t.Helper()
	dir, err := beneath.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	file, err := control.Bind(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	s, err := control.Open(fd, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, s
}

// echo returns what it is told on each connection, until ln is closed.
func echo(t *testing.T, ln net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
}

// dial connects to the agent until the test ends.
func dial(t *testing.T, dir *beneath.Dir, key control.Key) net.Conn {
	t.Helper()
	c, err := control.Dial(limited(t, time.Minute), dir, name, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func limited(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func exchange(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	_, err := io.WriteString(c, text)
	if err == nil {
		_, err = io.ReadFull(c, got)
	}
	if err != nil || string(got) != text {
		t.Fatalf("said %q, heard %q, %v", text, got, err)
	}
}

func TestDial(t *testing.T) {
	key := control.NewKey()
	dir, s := pair(t, key)
	echo(t, s.Listener())
	var all sync.WaitGroup
	for n := range 100 { // many more than a socket's queue holds
		all.Go(func() {
			c, err := control.Dial(limited(t, time.Minute), dir, name, key)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			exchange(t, c, fmt.Sprint("hello ", n))
		})
	}
	all.Wait()
}

// TestDialEarly dials before the agent is there.
func TestDialEarly(t *testing.T) {
	dir, err := beneath.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	file, err := control.Bind(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	key := control.NewKey()
	got := make(chan error, 1)
	go func() {
		c, err := control.Dial(limited(t, time.Minute), dir, name, key)
		if err == nil {
			exchange(t, c, "early")
			c.Close()
		}
		got <- err
	}()
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	s, err := control.Open(fd, key)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	echo(t, s.Listener())
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// refused dials, and wants nothing to be heard.
func refused(t *testing.T, dir *beneath.Dir, key control.Key) {
	t.Helper()
	c := dial(t, dir, key)
	if n, err := io.WriteString(c, "hello"); n > 0 || err == nil {
		t.Fatalf("said %d bytes, %v", n, err)
	}
	for range 2 {
		if n, err := c.Read(make([]byte, 100)); n > 0 || err == nil {
			t.Fatalf("heard %d bytes, %v", n, err)
		}
	}
}

// A peer without the key is nobody's: neither does the agent take the host's
// connection, nor the host the agent's.
func TestKeys(t *testing.T) {
	dir, s := pair(t, control.NewKey())
	echo(t, s.Listener())
	refused(t, dir, control.NewKey())
}

// TestFakeAgent has the socket and not the key.
func TestFakeAgent(t *testing.T) {
	dir, err := beneath.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	file, err := control.Bind(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := unix.SetNonblock(int(file.Fd()), false); err != nil {
			t.Error(err)
		}
		msg, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := unix.Recvmsg(int(file.Fd()), msg, oob, 0)
		if err != nil {
			t.Error(err)
			return
		}
		m, _ := unix.ParseSocketControlMessage(oob[:n])
		fds, _ := unix.ParseUnixRights(&m[0])
		f := os.NewFile(uintptr(fds[0]), "conn")
		defer f.Close()
		_, _ = f.Write(append(msg[:32], []byte("HTTP/1.1 200 OK\r\n\r\n")...))
	}()
	refused(t, dir, control.NewKey())
	<-done
}

// What is no message of the host's is passed over, and what comes with it is
// closed.
func TestStrayMessages(t *testing.T) {
	key := control.NewKey()
	dir, s := pair(t, key)
	echo(t, s.Listener())
	c, err := net.Dial("unixgram", filepath.Join(dir.Path(), name))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, n := range []int{0, 1, 32, 48, 49, 50, 4096} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.(*net.UnixConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		rights := unix.UnixRights(int(w.Fd()))
		if err := raw.Write(func(fd uintptr) bool {
			return !errors.Is(unix.Sendmsg(int(fd), make([]byte, n), rights, nil, 0), unix.EAGAIN)
		}); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if got, err := io.ReadAll(r); err != nil || len(got) != 0 {
			t.Errorf("%d bytes: read %q, %v; want the end", n, got, err)
		}
		r.Close()
	}
	conn := dial(t, dir, key)
	exchange(t, conn, "still there")
}

// While it sleeps an agent takes nothing and holds nothing; what wakes it is
// the host's word alone.
func TestSleep(t *testing.T) {
	key := control.NewKey()
	dir, s := pair(t, key)
	echo(t, s.Listener())
	awake := s.Sleep()
	refused(t, dir, key)
	if err := control.Wake(t.Context(), dir, name, control.NewKey()); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, key) // another's word has not woken it
	select {
	case <-awake:
		t.Error("it is awake")
	default:
	}
	if err := control.Wake(t.Context(), dir, name, key); err != nil {
		t.Fatal(err)
	}
	<-awake
	c := dial(t, dir, key)
	exchange(t, c, "awake")
}

// A connection that nobody accepts is not kept when the agent goes to sleep.
func TestSleepDropsTheUnaccepted(t *testing.T) {
	key := control.NewKey()
	dir, s := pair(t, key)
	c := dial(t, dir, key)
	s.Sleep()
	if n, err := io.ReadAll(c); len(n) != 0 || err != nil {
		t.Errorf("read %d, %v; want the end", n, err)
	}
}

func TestDialEnds(t *testing.T) {
	dir, err := beneath.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	key := control.NewKey()
	if _, err := control.Dial(t.Context(), dir, name, key); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a socket: %v", err)
	}
	file, err := control.Bind(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if _, err := control.Dial(ctx, dir, name, key); !errors.Is(err, over) {
		t.Fatalf("before it began: %v", err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	full := make(chan error)
	go func() {
		for {
			if _, err := control.Dial(ctx, dir, name, key); err != nil { // the queue is full before long
				full <- err
				return
			}
		}
	}()
	cancel(over)
	if err := <-full; !errors.Is(err, over) {
		t.Fatalf("nobody takes it: %v", err)
	}
	file.Close()
	if _, err := control.Dial(t.Context(), dir, name, key); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the agent is gone: %v", err)
	}
}

// A link in the place of the name is not followed.
func TestDialFollowsNoLink(t *testing.T) {
	key := control.NewKey()
	dir, s := pair(t, key)
	echo(t, s.Listener())
	if err := os.Symlink(name, filepath.Join(dir.Path(), "link")); err != nil {
		t.Fatal(err)
	}
	if c, err := control.Dial(limited(t, time.Minute), dir, "link", key); err == nil {
		c.Close()
		t.Error("a link was followed")
	}
}

// A deadline between the bytes of a proof loses none of it.
func TestProofInParts(t *testing.T) {
	key := control.NewKey()
	dir, s := pair(t, key)
	echo(t, s.Listener())
	c := dial(t, dir, key)
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read past its time: %v", err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	exchange(t, c, "in time")
}

func TestServe(t *testing.T) {
	key := control.NewKey()
	dir, s := pair(t, key)
	srv := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") }),
		ReadHeaderTimeout: time.Minute,
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(s.Listener()) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return control.Dial(ctx, dir, name, key)
	}}}
	resp, err := client.Get("http://agent/")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "yes" {
		t.Errorf("answered %q, %v", body, err)
	}
	client.CloseIdleConnections()
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

func BenchmarkDial(b *testing.B) {
	key := control.NewKey()
	dir, err := beneath.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	file, err := control.Bind(dir, name)
	if err != nil {
		b.Fatal(err)
	}
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		b.Fatal(err)
	}
	s, err := control.Open(fd, key)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ln := s.Listener()
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for b.Loop() {
		c, err := control.Dial(b.Context(), dir, name, key)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = c.Read(make([]byte, 1)) // until the agent has closed it
		c.Close()
	}
}
