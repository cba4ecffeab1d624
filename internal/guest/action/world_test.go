package action_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	server "github.com/carboy-sandbox/carboy/internal/guest/action"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) { os.Exit(m.Run()) }

// world is a server over an engine whose commands run as a user without rights, in a
// directory of their own.
type world struct {
	t    testing.TB
	s    *server.Server
	dir  string // where commands begin
	stop func() // ends the server, and then all that runs
}

func open(t testing.TB) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := shared(t)
	j, err := jail.Start(jail.Config{PIDNamespace: true, Marked: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	user := account.Account{Name: "user", UID: 1000, GID: 1000, Home: dir, Shell: "/bin/sh"}
	e, err := process.New(process.Options{
		Spawner: j,
		Lookup: func(name string) (account.Account, error) {
			if name != "user" {
				return account.Account{}, errors.New("nobody knows them")
			}
			return user, nil
		},
		Defaults: func() process.Defaults { return process.Defaults{User: "user", Cwd: dir} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	f := files.New(files.Options{Lookup: func(string) (account.Account, error) { return user, nil }})
	t.Cleanup(func() { _ = f.Close() })
	s := server.New(server.Options{
		Engine: e, Files: f,
		User: func() (account.Account, error) { return user, nil },
		Dir:  func() string { return dir },
	})
	s.Quicken()
	t.Cleanup(s.Close)
	return &world{t: t, s: s, dir: dir, stop: func() { s.Close(); e.Close() }}
}

// shared is a directory of the user's, which its rights lead to.
func shared(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "action-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err == nil {
		err = os.Chown(dir, 1000, 1000)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// connect begins a request. served is closed when it was answered.
func (w *world) connect(ctx context.Context) (ours *net.UnixConn, served chan struct{}) {
	w.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			w.t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	served = make(chan struct{})
	go func() {
		defer close(served)
		w.s.Serve(ctx, ends[1], ends[1])
	}()
	return ends[0], served
}

// send sends the bytes of a request and returns those of the reply. With half, the
// request is ended.
func (w *world) send(request []byte, half bool) []byte {
	w.t.Helper()
	c, served := w.connect(w.t.Context())
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience.For(time.Minute)))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = c.Write(request) // it may be refused before it is read
		if half {
			_ = c.CloseWrite()
		}
	}()
	reply, err := io.ReadAll(c)
	if err != nil && len(reply) == 0 {
		w.t.Errorf("no reply to %.80q: %v", request, err)
	}
	c.Close()
	<-sent
	<-served
	return reply
}

// ask makes a request of fields, and returns the reply as R.
func ask[R any](w *world, request any) (*R, error) {
	w.t.Helper()
	line, err := json.Marshal(request)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply[R](w, w.send(append(line, '\n'), false))
}

// reply reads a reply, or the error that it is.
func reply[R any](w *world, raw []byte) (*R, error) {
	w.t.Helper()
	var said action.ErrorReply
	if err := json.Unmarshal(raw, &said); err != nil {
		w.t.Fatalf("%v: %.200q", err, raw)
	}
	if said.Error != "" {
		return nil, errors.New(said.Error)
	}
	out := new(R)
	if err := json.Unmarshal(raw, out); err != nil {
		w.t.Fatalf("%v: %.200q", err, raw)
	}
	return out, nil
}

// must is ask for what has to succeed.
func must[R any](w *world, request any) *R {
	w.t.Helper()
	out, err := ask[R](w, request)
	if err != nil {
		w.t.Fatalf("%+v: %v", request, err)
	}
	return out
}

// refused checks that an error has words.
func refused(t testing.TB, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("the error is %v, want %q", err, words)
	}
}

// until asks again and again, until what is wanted is there.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	if !patience.Until(30*time.Second, is) {
		t.Fatalf("%s never came", what)
	}
}
