package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	guestprobe "github.com/carboy-sandbox/carboy/internal/guest/probe"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// fakeSecrets are those of every owner.
type fakeSecrets struct {
	mu     sync.Mutex
	values map[string]string
	list   func() // called within List
	left   []string
}

func (f *fakeSecrets) Check(_ context.Context, _ string, names []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if _, ok := f.values[name]; !ok {
			return sandbox.Errorf(sandbox.NotFound, "secret %s: there is none", name)
		}
	}
	return nil
}

func (f *fakeSecrets) PutFor(_ context.Context, _, _, name string, src secret.Source) (secret.Info, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values[name] = src.Value.Reveal()
	return secret.Info{Name: name}, nil
}

func (f *fakeSecrets) RemoveFor(context.Context, string) error { return nil }

func (f *fakeSecrets) Sandboxes() ([]string, error) { return slices.Clone(f.left), nil }

func (f *fakeSecrets) List(context.Context, string) ([]secret.Info, error) {
	f.mu.Lock()
	list := f.list
	f.mu.Unlock()
	if list != nil {
		list()
	}
	return nil, nil
}

func (f *fakeSecrets) Value(_ context.Context, _, _, name string) (secret.Minted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return secret.Minted{Value: secret.NewValue([]byte(f.values[name]))}, nil
}

// watched are Gates and one sandbox of theirs.
type watched struct {
	t       testing.TB
	state   string
	secrets *fakeSecrets
	g       *Gates
	sb      *sandbox.Sandbox
	link    *sandbox.Link
	log     *syncBuffer
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newWatched makes a gate, and waits until it serves. At the test's end
// everything must be gone.
func newWatched(t testing.TB, p *policy.Policy) *watched {
	t.Helper()
	needRoot(t)
	return watchIn(t, t.TempDir(), p)
}

// watchIn is newWatched in a directory that there is.
func watchIn(t testing.TB, state string, p *policy.Policy) *watched {
	t.Helper()
	w := &watched{t: t, state: state, secrets: &fakeSecrets{values: map[string]string{}}, log: new(syncBuffer)}
	w.sb = &sandbox.Sandbox{
		ID: "sb_0123456789abcdefghij", Owner: "uid:1000", State: sandbox.StateCreated,
		Spec: sandbox.Spec{Name: "web", Network: sandbox.NetworkPolicy, Policy: p},
	}
	w.g = w.daemon()
	t.Cleanup(w.close)
	return w
}

func (w *watched) daemon() *Gates {
	w.t.Helper()
	g, err := New(Options{
		State: w.state, Secrets: w.secrets, Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Resolvers: []netip.AddrPort{netip.MustParseAddrPort(worldB + ":53")},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// open starts the gate.
func (w *watched) open() *watched {
	w.t.Helper()
	l, err := w.g.Open(w.t.Context(), w.sb, sandbox.LinkNetNS, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.link = l
	w.serves()
	return w
}

func (w *watched) one() *gate {
	w.t.Helper()
	one, err := w.g.known(w.sb.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return one
}

// serves waits for the gate that there is.
func (w *watched) serves() {
	w.t.Helper()
	if err := w.one().await(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) dir() string { return filepath.Join(w.state, "gates", w.sb.ID) }

func (w *watched) close() {
	ctx := context.Background()
	if err := w.g.Close(ctx, w.sb.ID); err != nil {
		w.t.Error(err)
	}
	if pids := w.processes(); len(pids) > 0 {
		w.t.Errorf("processes %d are left", pids)
	}
	if err := w.g.Remove(ctx, w.sb.ID); err != nil {
		w.t.Error(err)
	}
	if ids, err := w.g.Gates(ctx); len(ids) > 0 || err != nil {
		w.t.Errorf("gates %v are left, %v", ids, err)
	}
	if err := w.g.Shut(); err != nil {
		w.t.Error(err)
	}
	if w.link != nil {
		w.link.Close()
	}
	if w.t.Failed() {
		w.t.Logf("log:\n%s", w.log)
	}
}

// processes are those that are gates of this sandbox.
func (w *watched) processes() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if bytes.HasPrefix(raw, []byte(RoleGate+"\x00"+w.dir()+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// pid is that of the gate, of which there must be one.
func (w *watched) pid() int {
	w.t.Helper()
	pids := w.processes()
	if len(pids) != 1 {
		w.t.Fatalf("gates: %d, want one\n%s", pids, w.log)
	}
	return pids[0]
}

// status asks the gate about itself.
func (w *watched) status() (st status, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience.For(5*time.Second))
	defer cancel()
	return st, w.one().do(ctx, http.MethodGet, pathStatus, nil, &st)
}

// inside calls f on a thread in the sandbox's network, as nobody.
func (w *watched) inside(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			if err := unix.Setns(int(w.link.NetNS.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			// This thread alone: the library's own would change all.
			const nobody = 65534
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
				return e
			}
			return f()
		}()
	}()
	return <-done
}

// dial connects from inside.
func (w *watched) dial(network, address string) (net.Conn, error) {
	return w.dialFor(patience.For(20*time.Second), network, address)
}

func (w *watched) dialFor(limit time.Duration, network, address string) (c net.Conn, err error) {
	err = w.inside(func() error {
		c, err = (&net.Dialer{Timeout: limit}).Dial(network, address)
		return err
	})
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience.For(20 * time.Second)))
		w.t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// echo connects from inside, and wants an echo.
func (w *watched) echo(address string) net.Conn {
	w.t.Helper()
	c, err := w.dial("tcp", address)
	if err == nil {
		err = echoes(c)
	}
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.log)
	}
	return c
}

// echoes says something, and wants to hear it again.
func echoes(c net.Conn) error {
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != "hello" {
		return fmt.Errorf("the echo is %q", b)
	}
	return nil
}

// fakeAgent connects to what a guest's agent would be, of which it has the probe
// alone. act is where that makes its attempts.
func fakeAgent(act guestprobe.Act) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		outer, inner := net.Pipe()
		server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet { // what the agent lacks
				_, _ = io.WriteString(rw, `{"lacks":["other: x","network: /etc/\u001b: left alone"]}`)
				return
			}
			p, err := guestprobe.Decode(r.Body)
			if err != nil {
				http.Error(rw, err.Error(), http.StatusBadRequest)
				return
			}
			answer, err := guestprobe.Run(p, act)
			if err != nil {
				http.Error(rw, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(rw).Encode(answer)
		})}
		go server.Serve(&oneListener{c: inner}) // it ends with the connection
		return outer, nil
	}
}

// oneListener has one connection.
type oneListener struct {
	once sync.Once
	c    net.Conn
}

func (l *oneListener) Accept() (c net.Conn, err error) {
	err = io.EOF
	l.once.Do(func() { c, err = l.c, nil })
	return c, err
}

func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return l.c.LocalAddr() }

// records are what the gate has written, once there is one that is wanted.
func (w *watched) records(wanted func(netlog.Record) bool) (all []netlog.Record) {
	w.t.Helper()
	until(w.t, "a record", func() bool {
		all = nil
		err := w.g.Log(w.t.Context(), w.sb.ID, sandbox.NetLogOptions{}, func(r netlog.Record) error {
			all = append(all, r)
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		return slices.ContainsFunc(all, wanted)
	})
	return all
}

// field is a line of a process's status.
func field(t testing.TB, pid int, name string) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return "none"
}
