package hold_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk/hold"
)

// A process that was killed has the lock for some time after its connections have ended:
// the next one serves once that is over, and says nothing before.
func TestServeWaitsForTheLock(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	asked, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(asked)
		if c, err := l.Accept(); err == nil {
			_ = c.Close() // as of a process that is ending
		}
	}()
	go func() { done <- hold.Serve(dir, func() error { close(ready); return nil }) }()
	select {
	case <-asked:
	case <-ready:
		t.Fatal("it is ready while another has the lock and does not serve")
	}
	if err := errors.Join(l.Close(), lock.Close()); err != nil {
		t.Fatal(err)
	}
	<-ready
	if err := hold.Drain(t.Context(), dir, "x"); err != nil {
		t.Errorf("after: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A process that ends while it is given images costs none: the next one gets them.
func TestRestoreWithoutAProcess(t *testing.T) {
	asksAgain(t)
	w := newWorld(t)
	dir := t.TempDir()
	m := w.serve(dir)
	f := w.showAt(dir, "it", 32<<20)
	defer f.Close()
	k := hold.NewKeeper(dir)
	defer k.Close()
	if err := k.Follow(t.Context(), m.sees(one)); err != nil {
		t.Fatal(err)
	}
	m.kill()
	if err := k.Restore(context.Background()); !errors.Is(err, hold.ErrNotServed) {
		t.Fatalf("without a process: %v", err)
	}
	m = w.serve(dir)
	for range 2 { // the second time it has it
		if err := k.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.WriteAt(pattern(3), 8<<20); err != nil {
		t.Error(err)
	}
	if s := m.sees(one); s[0].Label != "it" {
		t.Errorf("shown: %+v", s)
	}
}
