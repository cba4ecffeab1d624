package process_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	guest "github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/internal/process"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func init() { runtime.LockOSThread() }

// TestMain is here for the thread of init to stay the main one.
func TestMain(m *testing.M) { os.Exit(m.Run()) }

// sandbox is a guest's engine behind a socket: real processes without a wall.
type sandbox struct {
	t      testing.TB
	engine *guest.Engine
	addr   string
	cut    atomic.Int64 // about how many bytes a connection carries; 0: any
	cuts   atomic.Int64 // that were made
	down   atomic.Bool  // nobody is let in
	writes atomic.Int64 // of input, that wait for an answer
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
}

func newSandbox(t testing.TB) *sandbox {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	j, err := jail.Start(jail.Config{PIDNamespace: true, Marked: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Close)
	e, err := guest.New(guest.Options{
		Spawner: j, AllowRoot: true,
		Lookup: func(name string) (account.Account, error) {
			if name != "user" {
				return account.Account{}, errors.New("nobody knows them")
			}
			return account.Account{Name: name, UID: 1000, GID: 1000, Home: "/tmp", Shell: "/bin/sh"}, nil
		},
		Defaults: func() guest.Defaults { return guest.Defaults{User: "user", Cwd: "/"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	s := &sandbox{t: t, engine: e, addr: filepath.Join(t.TempDir(), "guest"), conns: map[net.Conn]struct{}{}}
	ln, err := net.Listen("unix", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	e.Register(mux)
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/WriteInput") {
			s.writes.Add(1)
			defer s.writes.Add(-1)
		}
		mux.ServeHTTP(w, r)
	})
	srv := &http.Server{Handler: counted, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close(); <-served })
	return s
}

// dial connects, perhaps by a connection that breaks.
func (s *sandbox) dial(ctx context.Context) (net.Conn, error) {
	if s.down.Load() {
		return nil, errors.New("nobody answers")
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", s.addr)
	if err != nil {
		return nil, err
	}
	f := &frail{Conn: c, s: s}
	if n := s.cut.Load(); n > 0 {
		f.left.Store(n/2 + rand.Int64N(n)) //nolint:gosec // where it breaks is any place
		f.frail = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[f] = struct{}{}
	return f, nil
}

// sever breaks all connections.
func (s *sandbox) sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
	clear(s.conns)
}

// strand has all connections go on at the agent's end, though whoever made them
// is gone.
func (s *sandbox) strand() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if f, ok := c.(*frail); ok {
			f.lost.Store(true)
		}
	}
	clear(s.conns)
}

// frail is a connection that breaks after some bytes, in whatever message
// that is.
type frail struct {
	net.Conn
	lost  atomic.Bool // the agent learns no more of it
	s     *sandbox
	frail bool
	left  atomic.Int64
}

func (f *frail) carry(b []byte, move func([]byte) (int, error)) (int, error) {
	if !f.frail {
		return move(b)
	}
	left := f.left.Load()
	if left <= 0 {
		_ = f.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	cut := int64(len(b)) > left
	n, err := move(b[:min(int64(len(b)), left)])
	if f.left.Add(-int64(n)) <= 0 {
		f.s.cuts.Add(1)
		_ = f.Conn.Close()
		if cut && err == nil {
			err = io.ErrClosedPipe
		}
	}
	return n, err
}

func (f *frail) Close() error {
	if f.lost.Load() {
		return nil
	}
	return f.Conn.Close()
}

func (f *frail) Read(b []byte) (int, error) { return f.carry(b, f.Conn.Read) }

func (f *frail) Write(b []byte) (int, error) {
	if f.lost.Load() {
		return len(b), nil
	}
	n, err := f.carry(b, f.Conn.Write)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return n, err
}

func (s *sandbox) options(spec sessions.ProcessSpec) process.Options {
	if spec.Cwd == "" {
		spec.Cwd = "/tmp"
	}
	return process.Options{SessionID: "person_alice", Spec: spec, Dial: s.dial, Dir: s.t.TempDir(), User: "user"}
}

func (s *sandbox) start(o process.Options) *process.Process {
	s.t.Helper()
	p, err := process.Start(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { stop(p) })
	return p
}

// stop ends what a test has left running.
func stop(p *process.Process) {
	ctx, cancel := context.WithTimeout(context.Background(), patience.For(10*time.Second))
	defer cancel()
	_ = p.Stop(ctx)
	_ = p.Discard()
}

// sh is a process of a shell's.
func sh(script string) sessions.ProcessSpec {
	return sessions.ProcessSpec{Command: "sh", Args: []string{"-c", script}}
}

func attach(t testing.TB, p *process.Process) *process.Attachment {
	t.Helper()
	a, err := p.Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func line(t testing.TB, a *process.Attachment) string {
	t.Helper()
	b, err := a.ReadLine(t.Context())
	if err != nil {
		t.Fatalf("read a line: %v", err)
	}
	return string(b)
}

func write(t testing.TB, a *process.Attachment, l string) {
	t.Helper()
	if err := a.WriteLine(t.Context(), []byte(l)); err != nil {
		t.Fatalf("write a line: %v", err)
	}
}

// ended waits for a process's end.
func ended(t testing.TB, p *process.Process) {
	t.Helper()
	select {
	case <-p.Ended():
	case <-time.After(patience.For(20 * time.Second)):
		t.Fatal("the process has not ended")
	}
}

// eventually waits for a fact that nobody announces.
func eventually(t testing.TB, what string, fact func() bool) {
	t.Helper()
	if !patience.Until(20*time.Second, fact) {
		t.Fatal("not in time: " + what)
	}
}
