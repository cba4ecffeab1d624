package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

// A daemon that does not answer any more is waited for until its process has
// ended, and nobody else is.
func TestGone(t *testing.T) {
	s, _ := starter(t, "v1")
	if err := reach.Gone(t.Context(), s.Dirs); err != nil {
		t.Errorf("where there never was one: %v", err)
	}
	if err := s.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := status(t, s.Dirs)
	if err := os.Remove(reach.Socket(s.Dirs)); err != nil {
		t.Fatal(err)
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reach.Gone(now, s.Dirs); !errors.Is(err, context.Canceled) {
		t.Errorf("of one that is there: %v", err)
	}
	other := s.Dirs
	other.Run = filepath.Join(t.TempDir(), "carboy")
	err := reach.Gone(t.Context(), other)
	if e, ok := errors.AsType[*sandbox.Error](err); !ok || !strings.Contains(e.Msg, "elsewhere") || e.Hint != "XDG_RUNTIME_DIR="+filepath.Dir(s.Dirs.Run)+" carboy daemon stop" {
		t.Errorf("of another XDG_RUNTIME_DIR: %#v", err)
	}
	gone := make(chan error, 1)
	go func() { gone <- reach.Gone(t.Context(), s.Dirs) }()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err != nil {
		t.Error(err)
	}
	// Its number is another's now.
	if err := os.WriteFile(filepath.Join(s.Dirs.State, "daemon.pid"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reach.Gone(now, s.Dirs); err != nil {
		t.Errorf("of another process: %v", err)
	}
}

// Who wants a daemon while the one before is leaving gets the next one.
func TestEnsureWhileOneLeaves(t *testing.T) {
	s, n := starter(t, "v1")
	if err := s.Dirs.Create(); err != nil {
		t.Fatal(err)
	}
	lock, err := home.TakeLock(filepath.Join(s.Dirs.State, "daemon.lock"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- s.Ensure(t.Context()) }()
	// It has found the home taken once that process is gone which it started.
	servertest.Wait(t, "a start that is refused", func() bool {
		births, _ := filepath.Glob(filepath.Join(s.Dirs.State, "birth.*"))
		if len(births) == 0 {
			return false
		}
		_, err := os.Stat("/proc/" + strings.TrimPrefix(filepath.Ext(births[0]), "."))
		return errors.Is(err, os.ErrNotExist)
	})
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil || len(n.take()) != 1 {
		t.Errorf("Ensure = %v", err)
	}
}
