package hybrid_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/hybrid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// inside stands for the ports of sandboxes: 8000 answers at the end of what it is sent
// with all of that, 8001 is silent, and nothing listens on any other.
type inside struct{ asked chan string }

func (in *inside) dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if in.asked != nil {
		in.asked <- fmt.Sprint(id, " ", port)
	}
	switch port {
	case 8000, 8001:
	case 8002:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case 8003:
		return nil, errors.New("open /a/path/of/ours: broken")
	default:
		return nil, sandbox.Errorf(sandbox.Unavailable, "sandbox web: nothing answers on port %d", port)
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	go func() {
		defer theirs.Close()
		all, _ := io.ReadAll(theirs)
		if port == 8000 {
			_, _ = theirs.Write(all)
		}
	}()
	return ours, nil
}

func pair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		var cerr error
		conns[i], cerr = net.FileConn(f)
		err = errors.Join(err, cerr, f.Close())
	}
	return conns[0], conns[1], err
}

// open serves sockets in a directory of the test's.
func open(t *testing.T, dir string, in *inside) *hybrid.Sockets {
	t.Helper()
	s, err := hybrid.New(hybrid.Options{Dir: dir, Dial: in.dial, MaxConns: hybrid.MaxConns})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.CloseAll)
	return s
}

func serve(t *testing.T, s *hybrid.Sockets, id string) (path string) {
	t.Helper()
	if err := s.Open(id, "uid:4242"); err != nil {
		t.Fatal(err)
	}
	return s.Path(id)
}

func connect(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience.For(30 * time.Second))); err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

// say sends text, half-closes and returns what comes back.
func say(t *testing.T, path, text string) string {
	t.Helper()
	c := connect(t, path)
	_, _ = io.WriteString(c, text) // it may be refused before it was read
	_ = c.CloseWrite()
	all, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%q: %v", text, err)
	}
	return string(all)
}

// A first line that is one is answered and passed on, with each direction's end, and
// what was sent with it; each other is answered with what is wrong, and passed on to nobody.
func TestHandshake(t *testing.T) {
	in := &inside{asked: make(chan string, 64)}
	path := serve(t, open(t, filepath.Join(t.TempDir(), "v"), in), "web")
	for _, tt := range []struct{ name, send, want, asks string }{
		{"a-port", "CONNECT 8000\nhello", "OK 1073741824\nhello", "web 8000"},
		{"the-next-has-another-number", "CONNECT 8000\nhello", "OK 1073741825\nhello", "web 8000"},
		{"the-largest-port", "CONNECT 65535\n", "ERR sandbox web: nothing answers on port 65535\n", "web 65535"},
		{"nothing-listens", "CONNECT 9\n", "ERR sandbox web: nothing answers on port 9\n", "web 9"},
		{"a-cause-of-ours", "CONNECT 8003\n", "ERR the port can't be reached\n", "web 8003"},
		{"the-agents-port", "CONNECT 49983\n", "ERR port 49983: it is the guest agent's\n", ""},
		{"no-port", "CONNECT 0\n", "ERR port 0: there is no such port inside: from 1 to 65535\n", ""},
		{"a-port-of-vsock-alone", "CONNECT 65536\n", "ERR port 65536: there is no such port inside: from 1 to 65535\n", ""},
		{"the-largest-of-vsock", "CONNECT 4294967295\n", "ERR port 4294967295: there is no such port inside: from 1 to 65535\n", ""},
		{"one-more", "CONNECT 4294967296\n", `ERR the first line is "CONNECT 4294967296": `, ""},
		{"a-sign", "CONNECT +8000\n", `ERR the first line is "CONNECT +8000": `, ""},
		{"below-zero", "CONNECT -1\n", `ERR the first line is "CONNECT -1": `, ""},
		{"a-zero-before", "CONNECT 08000\n", `ERR the first line is "CONNECT 08000": `, ""},
		{"hexadecimal", "CONNECT 0x1f40\n", `ERR the first line is "CONNECT 0x1f40": `, ""},
		{"two-spaces", "CONNECT  8000\n", `ERR the first line is "CONNECT  8000": `, ""},
		{"a-space-behind", "CONNECT 8000 \n", `ERR the first line is "CONNECT 8000 ": `, ""},
		{"a-carriage-return", "CONNECT 8000\r\n", `ERR the first line is "CONNECT 8000\r": `, ""},
		{"small-letters", "connect 8000\n", `ERR the first line is "connect 8000": `, ""},
		{"no-number", "CONNECT \n", `ERR the first line is "CONNECT ": `, ""},
		{"an-empty-line", "\n", `ERR the first line is "": `, ""},
		{"nothing", "", "ERR the first line did not come: ", ""},
		{"no-newline", "CONNECT 8000", "ERR the first line did not come: ", ""},
		{"of-http", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", `ERR the first line is "GET / HTTP/1.1\r": `, ""},
		{"without-end", strings.Repeat("A", 4096), "ERR the first line is longer than 18 bytes: ", ""},
		{"bytes", "CONNECT \x1b[2J\x00\xff\n", `ERR the first line is "CONNECT \x1b[2J\x00\xff": `, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := say(t, path, tt.send)
			if !strings.HasPrefix(got, tt.want) || strings.HasPrefix(got, "ERR") && strings.Count(got, "\n") != 1 {
				t.Errorf("%q is answered by %q, want %q", tt.send, got, tt.want)
			}
			select {
			case asked := <-in.asked:
				if asked != tt.asks {
					t.Errorf("%q was asked for, want %q", asked, tt.asks)
				}
			default:
				if tt.asks != "" {
					t.Errorf("nothing was asked for, want %s", tt.asks)
				}
			}
		})
	}
}

// Of what comes before the newline nothing is lost that comes in pieces, and the answer
// comes before anything of the port's.
func TestHandshakeInPieces(t *testing.T) {
	path := serve(t, open(t, filepath.Join(t.TempDir(), "v"), new(inside)), "web")
	c := connect(t, path)
	for _, b := range []byte("CONNECT 8000\n") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); line != "OK 1073741824\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := io.WriteString(c, "after"); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	if all, err := io.ReadAll(r); string(all) != "after" || err != nil {
		t.Errorf("%q, %v", all, err)
	}
}

// Only the owner, root and the daemon's own user may. What another says is not read.
func TestUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "hybrid-") // which every user's way leads to
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	in := &inside{asked: make(chan string, 8)}
	s := open(t, filepath.Join(dir, "v"), in)
	path := serve(t, s, "web")
	for _, p := range []string{filepath.Dir(path), path} {
		if err := os.Chmod(p, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for uid, want := range map[int]string{0: "OK", 4242: "OK", 4243: "ERR this socket is another user's"} {
		if got := sayAs(t, uid, path, "CONNECT 8000\n"); !strings.HasPrefix(got, want) {
			t.Errorf("user %d reads %q, want %s", uid, got, want)
		}
	}
	if n := len(in.asked); n != 2 {
		t.Errorf("%d connections were passed on, want 2", n)
	}
	if err := s.Open("tenants", "key:acme"); err != nil { // who is no user of this machine
		t.Fatal(err)
	}
	if err := os.Chmod(s.Path("tenants"), 0o777); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]string{0: "OK", 4242: "ERR"} {
		if got := sayAs(t, uid, s.Path("tenants"), "CONNECT 8000\n"); !strings.HasPrefix(got, want) {
			t.Errorf("user %d reads %q of a tenant's, want %s", uid, got, want)
		}
	}
}

// sayAs is say by another user: the kernel notes who connects, thread by thread.
func sayAs(t *testing.T, uid int, path, text string) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	failed := make(chan error)
	go func() {
		// The thread is not unlocked, so that it ends with this.
		lockThread()
		err := asUser(uid)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatalf("user %d: %v", uid, err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, text)
	_ = c.(*net.UnixConn).CloseWrite()
	all, _ := io.ReadAll(c)
	return string(all)
}

// Sockets are there from Open to Close, with what a daemon that was killed has left
// replaced; nothing is left of them, nor open.
func TestLife(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40), "v") // longer than a unix socket's path may be
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, new(inside))
	if got := s.Path("web"); got != "" {
		t.Errorf("before Open it is at %q", got)
	}
	path := serve(t, s, "web")
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode != unix.S_IFSOCK|0o600 {
		t.Errorf("its mode is %o, %v", st.Mode, err)
	}
	if err := unix.Lstat(dir, &st); err != nil || st.Mode != unix.S_IFDIR|0o700 {
		t.Errorf("the directory's mode is %o, %v", st.Mode, err)
	}
	t.Chdir(dir)
	first := connect(t, "web.sock")
	if _, err := io.WriteString(first, "CONNECT 8001\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(first).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}

	again := open(t, dir, new(inside)) // as after a kill: what is there is removed
	if got := entries(t, dir); len(got) != 0 {
		t.Errorf("the next daemon begins with %q", got)
	}
	serve(t, again, "web")
	serve(t, again, "db")
	serve(t, again, "web") // replaced
	if got := entries(t, dir); !slices.Equal(got, []string{"db.sock", "web.sock"}) {
		t.Errorf("there is %q", got)
	}
	if got := say(t, "web.sock", "CONNECT 8000\nx"); !strings.HasSuffix(got, "\nx") {
		t.Errorf("%q", got)
	}
	open := connect(t, "web.sock")
	if _, err := io.WriteString(open, "CONNECT 8001\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(open)
	if line, err := r.ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	again.Close("web")
	again.Close("web")
	if all, err := io.ReadAll(r); len(all) != 0 || err != nil {
		t.Errorf("what was open reads %q, %v after the end", all, err)
	}
	again.CloseAll()
	if got := entries(t, dir); len(got) != 0 {
		t.Errorf("%q is left", got)
	}
	if err := again.Open("../web", "uid:0"); err == nil {
		t.Error("a sandbox can name a place elsewhere")
	}
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// A directory that others can reach, or another user's, is refused.
func TestDirectory(t *testing.T) {
	base := t.TempDir()
	for name, tt := range map[string]struct {
		prepare func(dir string) error
		says    string // "": it is taken
	}{
		"open-to-a-group": {func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o750)) }, "open to others"},
		"a-link":          {func(dir string) error { return os.Symlink(base, dir) }, "not a directory"},
		"a-file":          {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "not a directory"},
		"nowhere":         {func(string) error { return nil }, "no such file"},
		"ours":            {func(dir string) error { return os.Mkdir(dir, 0o700) }, ""},
	} {
		dir := filepath.Join(base, name)
		if err := tt.prepare(dir); err != nil {
			t.Fatal(err)
		}
		if name == "nowhere" {
			dir = filepath.Join(dir, "below")
		}
		s, err := hybrid.New(hybrid.Options{Dir: dir, Dial: new(inside).dial})
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
		if err == nil {
			s.CloseAll()
		}
	}
}

// One more than may be is told so; its place is free when another has ended. One that
// says nothing has a place, and loses it.
func TestTooMany(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	s, err := hybrid.New(hybrid.Options{Dir: dir, Dial: new(inside).dial, MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.CloseAll)
	one, two := serve(t, s, "one"), serve(t, s, "two")
	var held []*net.UnixConn
	for _, path := range []string{one, two} {
		c := connect(t, path)
		if _, err := io.WriteString(c, "CONNECT 8001\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		held = append(held, c)
	}
	if got := say(t, one, "CONNECT 8000\nx"); got != "ERR too many connections at once\n" {
		t.Errorf("one more is answered by %q", got)
	}
	_ = held[0].Close()
	for { // until its place is free
		if got := say(t, two, "CONNECT 8000\nx"); strings.HasPrefix(got, "OK ") {
			break
		}
	}
}

// A port that can't be reached for a long time keeps no socket from being closed.
func TestCloseWhileDialling(t *testing.T) {
	in := &inside{asked: make(chan string, 1)}
	s := open(t, filepath.Join(t.TempDir(), "v"), in)
	c := connect(t, serve(t, s, "web"))
	if _, err := io.WriteString(c, "CONNECT 8002\n"); err != nil {
		t.Fatal(err)
	}
	<-in.asked
	s.CloseAll()
	if all, err := io.ReadAll(c); !strings.HasPrefix(string(all), "ERR ") && len(all) != 0 || err != nil {
		t.Errorf("%q, %v", all, err)
	}
}
