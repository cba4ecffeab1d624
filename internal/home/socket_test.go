package home_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// serve answers each connection with what it sends, until the listener closes.
func serve(t *testing.T, path string) *home.Listener {
	t.Helper()
	l, err := home.Listen(path)
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.Copy(c, c)
			c.Close()
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return l
}

// echo wants an answer at path.
func echo(t *testing.T, path string) {
	t.Helper()
	c, err := home.Dial(t.Context(), path)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer c.Close()
	fmt.Fprintln(c, "hello")
	if got, err := bufio.NewReader(c).ReadString('\n'); got != "hello\n" {
		t.Errorf("answer = %q, %v", got, err)
	}
}

func TestListenAndDial(t *testing.T) {
	tests := []struct {
		name string
		dir  int // bytes of its path, at least
		base string
	}{
		{"short", 0, "s"},
		{"107-bytes-and-more", 120, "api.sock"},
		{"300-bytes", 300, "api.sock"},
		{"300-bytes-and-a-long-name", 300, strings.Repeat("n", 240)},
		{"longer-than-any-path", 6000, "api.sock"},
		{"odd-name", 150, "a b@\n%.sock"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(longDir(t, tc.dir), tc.base)
			l := serve(t, path)
			if got := l.Addr().String(); got != path {
				t.Errorf("Addr = %s, want %s", got, path)
			}
			echo(t, path)
			echo(t, path)
			if err := l.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			if _, err := home.Dial(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Dial after Close = %v, want fs.ErrNotExist", err)
			}
			serve(t, path)
			echo(t, path)
		})
	}
}

func TestListenLeavesOnlySocketAndLock(t *testing.T) {
	dir := longDir(t, 0)
	l := serve(t, dir+"/api.sock")
	other := serve(t, dir+"/other.sock")
	want := []string{"api.sock", "api.sock.lock", "other.sock", "other.sock.lock"}
	if got := names(t, dir); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("files = %q, want %q", got, want)
	}
	for _, name := range want {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode().Perm(); got != 0o600 {
			t.Errorf("%s has mode %o, want 600", name, got)
		}
	}
	l.Close()
	other.Close()
	want = []string{"api.sock.lock", "other.sock.lock"}
	if got := names(t, dir); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("files after Close = %q, want %q", got, want)
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestListenTwice(t *testing.T) {
	path := filepath.Join(longDir(t, 300), "api.sock")
	serve(t, path)
	if _, err := home.Listen(path); sandbox.KindOf(err) != sandbox.Conflict {
		t.Fatalf("second Listen = %v, want a Conflict", err)
	}
	echo(t, path) // the first is untouched
}

func TestConcurrentListenHasOneWinner(t *testing.T) {
	path := filepath.Join(longDir(t, 0), "api.sock")
	var mu sync.Mutex
	var won []*home.Listener
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			l, err := home.Listen(path)
			if err != nil {
				if sandbox.KindOf(err) != sandbox.Conflict {
					t.Errorf("Listen = %v, want a Conflict", err)
				}
				return
			}
			mu.Lock()
			won = append(won, l)
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d listeners, want 1", len(won))
	}
	won[0].Close()
}

// TestStaleSocket kills a process that listens: the next one takes over.
func TestStaleSocket(t *testing.T) {
	if path := os.Getenv("HOME_TEST_SOCKET"); path != "" {
		if _, err := home.Listen(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("listening")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}
	path := filepath.Join(longDir(t, 300), "api.sock")
	cmd := exec.Command(os.Args[0], "-test.run=^TestStaleSocket$")
	cmd.Env = append(os.Environ(), "HOME_TEST_SOCKET="+path)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "listening\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	if _, err := home.Listen(path); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("Listen beside a living process = %v, want a Conflict", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if _, err := home.Dial(t.Context(), path); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("Dial a stale socket = %v, want ECONNREFUSED", err)
	}
	serve(t, path)
	echo(t, path)
}

func TestListenRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  sandbox.Kind
	}{
		{"directory-open-to-others", func(t *testing.T, dir string) { os.Chmod(dir, 0o707) }, sandbox.Denied},
		{"directory-open-to-group", func(t *testing.T, dir string) { os.Chmod(dir, 0o770) }, sandbox.Denied},
		{"directory-of-another", func(t *testing.T, dir string) {
			if err := os.Chown(dir, 1234, 1234); err != nil {
				t.Skip(err)
			}
		}, sandbox.Denied},
		{"no-directory", func(t *testing.T, dir string) { os.RemoveAll(dir) }, sandbox.Internal},
		{"a-file-is-there", func(t *testing.T, dir string) {
			os.WriteFile(dir+"/api.sock", []byte("precious"), 0o600)
		}, sandbox.Conflict},
		{"a-link-is-there", func(t *testing.T, dir string) { os.Symlink("/etc/passwd", dir+"/api.sock") }, sandbox.Conflict},
		{"the-lock-is-a-link", func(t *testing.T, dir string) {
			os.Symlink("elsewhere", dir+"/api.sock.lock")
		}, sandbox.Internal},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(longDir(t, 0), "d")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			tc.spoil(t, dir)
			before, _ := os.ReadFile(dir + "/api.sock")
			l, err := home.Listen(dir + "/api.sock")
			if err == nil {
				l.Close()
			}
			if got := sandbox.KindOf(err); got != tc.want {
				t.Errorf("Listen = %v, want kind %q", err, tc.want)
			}
			if after, _ := os.ReadFile(dir + "/api.sock"); string(after) != string(before) {
				t.Errorf("what was there changed to %q", after)
			}
		})
	}
}

func TestDialRefuses(t *testing.T) {
	dir := longDir(t, 0)
	serve(t, dir+"/real.sock")
	echo(t, dir+"/real.sock")
	os.Symlink("real.sock", dir+"/link.sock")
	os.WriteFile(dir+"/file.sock", nil, 0o600)
	for name, want := range map[string]error{
		"link.sock": unix.ENOTSOCK, "file.sock": unix.ENOTSOCK, "none.sock": fs.ErrNotExist,
	} {
		if _, err := home.Dial(t.Context(), filepath.Join(dir, name)); !errors.Is(err, want) {
			t.Errorf("Dial %s = %v, want %v", name, err, want)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Dial(t.Context(), dir+"/real.sock"); sandbox.KindOf(err) != sandbox.Denied {
		t.Errorf("Dial in an open directory = %v, want Denied", err)
	}
	os.Chmod(dir, 0o700)
	if err := os.Lchown(dir+"/real.sock", 1234, 1234); err != nil {
		t.Skip(err)
	}
	if _, err := home.Dial(t.Context(), dir+"/real.sock"); sandbox.KindOf(err) != sandbox.Denied {
		t.Errorf("Dial another's socket = %v, want Denied", err)
	}
}

func TestDialEndedContext(t *testing.T) {
	path := filepath.Join(longDir(t, 300), "api.sock")
	serve(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := home.Dial(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v, want context.Canceled", err)
	}
}

// TestDialAt: in a directory that someone else writes to, a socket is dialled
// and nothing else is followed.
func TestDialAt(t *testing.T) {
	outside, dir := longDir(t, 300), longDir(t, 300)
	serve(t, outside+"/host.sock")
	serve(t, dir+"/agent.sock")
	os.Symlink(outside+"/host.sock", dir+"/link.sock")
	os.Symlink(outside, dir+"/up")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	h, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	c, err := home.DialAt(t.Context(), h, "agent.sock")
	if err != nil {
		t.Fatalf("DialAt: %v", err)
	}
	c.Close()
	up, _ := filepath.Rel(dir, outside)
	for _, name := range []string{"link.sock", "up/host.sock", up + "/host.sock", "", ".", "..", "./agent.sock", outside + "/host.sock"} {
		if c, err := home.DialAt(t.Context(), h, name); err == nil {
			c.Close()
			t.Errorf("DialAt %q connected", name)
		}
	}
}

func TestClosedListenerSparesItsSuccessor(t *testing.T) {
	path := filepath.Join(longDir(t, 0), "api.sock")
	l := serve(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("Close removed the socket of another: %v", err)
	}
}

func TestTakeLock(t *testing.T) {
	path := filepath.Join(longDir(t, 300), "lock")
	l, err := home.TakeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := home.TakeLock(path); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("second TakeLock = %v, want a Conflict", err)
	}
	l.Close()
	if l, err = home.TakeLock(path); err != nil {
		t.Fatalf("TakeLock after Close: %v", err)
	}
	l.Close()
}

func BenchmarkDial(b *testing.B) {
	l, err := home.Listen(filepath.Join(b.TempDir(), "api.sock"))
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	})
	for b.Loop() {
		c, err := home.Dial(b.Context(), l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
	l.Close()
	wg.Wait()
}
