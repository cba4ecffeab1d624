package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

const childArg = "daemon-of-a-test"

// TestMain lets this binary be the daemon that the tests start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		os.Exit(child(os.Args[2]))
	}
	os.Exit(m.Run())
}

// birth is what a daemon finds when it begins.
type birth struct {
	Env  []string
	FDs  []string
	Dir  string
	SID  int
	PID  int
	Args []string
}

func child(version string) int {
	report := daemon.Reporter(os.Getenv)
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if err == nil {
		err = note(dirs)
	}
	if err == nil && version == "broken" {
		err = sandbox.Errorf(sandbox.Unsupported, "this machine has no walls").WithHint("build some")
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		cfg := daemon.DefaultConfig(dirs)
		cfg.Auto = true
		err = daemon.Run(ctx, cfg, daemon.Deps{
			Backends: []sandbox.Backend{sandboxtest.New("gvisor")}, Version: version,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Ready: report.Ready,
		})
	}
	if err != nil {
		report.Failed(err)
		return 1
	}
	return 0
}

// ofTheRuntime are what Go opens by itself.
var ofTheRuntime = []string{"/proc/", "anon_inode:", "/sys/fs/cgroup/"}

func note(dirs home.Dirs) error {
	b := birth{Env: os.Environ(), PID: os.Getpid(), Args: os.Args}
	b.Dir, _ = os.Getwd()
	sid, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	b.SID = int(sid)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && !slices.ContainsFunc(ofTheRuntime, func(p string) bool { return strings.HasPrefix(to, p) }) {
			b.FDs = append(b.FDs, fd.Name()+" "+to)
		}
	}
	out, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dirs.State, fmt.Sprintf("birth.%d", b.PID)), out, 0o600)
}

// starter returns a Starter for a home of the test's own. Its daemon is ended
// with the test.
func starter(t *testing.T, version string) (reach.Starter, *notices) {
	t.Helper()
	base, n := t.TempDir(), &notices{}
	env := []string{"PATH=/bin", "SECRET=hunter2", "AWS_SECRET_ACCESS_KEY=x", "LANG=C", "HOME=" + base}
	vars := map[string]string{}
	for _, v := range []string{"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"} {
		vars[v] = filepath.Join(base, v)
		env = append(env, v+"="+vars[v])
	}
	dirs, err := home.Find(func(name string) string { return vars[name] }, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := reach.Starter{
		Dirs: dirs, Program: executes(exe, childArg, version), Environ: env, Version: version, Notice: n.add,
	}
	t.Cleanup(func() {
		c, err := client.New(client.Options{Socket: reach.Socket(dirs)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if c.Shutdown(context.Background()) != nil {
			return // it had gone
		}
		servertest.Wait(t, "the daemon's end", func() bool {
			_, err := os.Stat(reach.Socket(dirs))
			return errors.Is(err, os.ErrNotExist)
		})
	})
	return s, n
}

// executes opens no file: the program is a path.
func executes(path string, args ...string) func(context.Context) (*reach.Program, error) {
	return func(context.Context) (*reach.Program, error) {
		return &reach.Program{Path: path, Args: append([]string{"carboy"}, args...), Close: func() error { return nil }}, nil
	}
}

type notices struct {
	mu   sync.Mutex
	list []string
}

func (n *notices) add(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, s)
}

func (n *notices) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.list = nil }()
	return n.list
}

func status(t *testing.T, dirs home.Dirs) (pid int) {
	t.Helper()
	st, err := dial(t, dirs).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.PID
}

func TestEnsure(t *testing.T) {
	s, n := starter(t, "v1")
	// Something that this process was left open by whoever started it.
	leak, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(leak)
	if err := s.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := status(t, s.Dirs)
	if got := n.take(); len(got) != 1 || !strings.Contains(got[0], fmt.Sprint("started a daemon (pid ", pid)) {
		t.Errorf("notices = %q, want one line on pid %d", got, pid)
	}
	var b birth
	raw, err := os.ReadFile(filepath.Join(s.Dirs.State, fmt.Sprintf("birth.%d", pid)))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	if b.SID != b.PID || b.Dir != "/" || b.Args[0] != "carboy" {
		t.Errorf("it began in session %d and directory %s as %q, want its own session, / and carboy", b.SID, b.Dir, b.Args[0])
	}
	for _, kv := range b.Env {
		if name, _, _ := strings.Cut(kv, "="); !slices.Contains([]string{
			"PATH", "HOME", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
		}, name) {
			t.Errorf("it got %s", name)
		}
	}
	if len(b.FDs) != 4 { // 0 to 2, and the pipe
		t.Errorf("open at its beginning: %q, want four", b.FDs)
	}
	// There is one now: nothing is started, nothing is said.
	if err := s.Ensure(t.Context()); err != nil || len(n.take()) != 0 || status(t, s.Dirs) != pid {
		t.Errorf("a second Ensure = %v", err)
	}
	// It is killed: the next call starts another.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	servertest.Wait(t, "the end of the first", func() bool { return syscall.Kill(pid, 0) != nil })
	if err := s.Ensure(t.Context()); err != nil || len(n.take()) != 1 || status(t, s.Dirs) == pid {
		t.Errorf("Ensure after a kill = %v", err)
	}
}

func TestEnsureAtOnce(t *testing.T) {
	s, n := starter(t, "v1")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.Ensure(t.Context()); err != nil {
				t.Errorf("Ensure = %v", err)
			}
		})
	}
	wg.Wait()
	if got := n.take(); len(got) != 1 {
		t.Errorf("notices = %q, want one: the others found its daemon", got)
	}
}

func TestEnsureVersions(t *testing.T) {
	s, n := starter(t, "v1")
	if err := s.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.take()
	s.Version = "v2"
	if err := s.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.take(); len(got) != 1 || !strings.Contains(got[0], "carboy v1, this is v2: carboy daemon stop") {
		t.Errorf("notices = %q, want one on both versions and what to do", got)
	}
}

func TestEnsureFails(t *testing.T) {
	s, _ := starter(t, "broken")
	err := s.Ensure(t.Context())
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Kind != client.Unsupported || e.Hint != "build some" {
		t.Errorf("Ensure = %#v, want the daemon's own words", err)
	}
	s.Program = executes("/bin/false")
	if err := s.Ensure(t.Context()); client.KindOf(err) != client.Unavailable {
		t.Errorf("Ensure of a program that ends = %v, want unavailable", err)
	}
	s.Program = executes("/none")
	if err := s.Ensure(t.Context()); client.KindOf(err) != client.Unavailable {
		t.Errorf("Ensure of no program = %v, want unavailable", err)
	}
}
