package daemon_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/daemon"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// A daemon that was killed has its lock and its addresses a moment longer than
// anyone can see it. The next one waits for that; for one that lives it does
// not.
func TestDaemonBeforeIsEnding(t *testing.T) {
	killed := exec.Command("sleep", "1000")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	if err := killed.Process.Kill(); err != nil { // and nobody waits for it
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = killed.Wait() })

	written := func(path string, pid int) error { return os.WriteFile(path, fmt.Appendln(nil, pid), 0o600) }
	linked := func(path string, pid int) error {
		return errors.Join(written(path+"-elsewhere", pid), os.Symlink(path+"-elsewhere", path))
	}
	for name, tt := range map[string]struct {
		write func(path string, pid int) error
		pid   int
		want  sandbox.Kind
	}{
		"killed": {written, killed.Process.Pid, ""},
		"alive":  {written, os.Getpid(), sandbox.Conflict},
		"linked": {linked, killed.Process.Pid, sandbox.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			dirs := newHome(t)
			if err := dirs.Create(); err != nil {
				t.Fatal(err)
			}
			lock, err := home.TakeLock(filepath.Join(dirs.State, "daemon.lock"))
			if err != nil {
				t.Fatal(err)
			}
			port, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.write(filepath.Join(dirs.State, "daemon.pid"), tt.pid); err != nil {
				t.Fatal(err)
			}
			leave := func() { _ = errors.Join(lock.Close(), port.Close()) }
			cfg := daemon.DefaultConfig(dirs)
			cfg.Box.Listen = port.Addr().String()
			with := deps(sandboxtest.New("gvisor"))
			if tt.want == "" {
				time.AfterFunc(100*time.Millisecond, leave)
				run(t, cfg, with)
				return
			}
			defer leave()
			if err := daemon.Run(t.Context(), cfg, with); sandbox.KindOf(err) != tt.want {
				t.Errorf("Run = %v", err)
			}
		})
	}
}

// An address that another program has is named, with what to do.
func TestAddressIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, set := range map[string]func(*daemon.Config, string){
		"api":      func(c *daemon.Config, addr string) { c.Listen = addr },
		"sessions": func(c *daemon.Config, addr string) { c.Box.Listen = addr },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := daemon.DefaultConfig(newHome(t))
			set(&cfg, taken.Addr().String())
			err := daemon.Run(t.Context(), cfg, deps(sandboxtest.New("gvisor")))
			want := "listen " + taken.Addr().String() + ": another program listens there"
			if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Msg != want || e.Hint == "" {
				t.Errorf("%v, want %s, and a hint", err, want)
			}
		})
	}
}
