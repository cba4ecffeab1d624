package egress

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
)

// A gate that is started after its instance has groups is started there: nobody is
// moved before, least of all whoever has the number 0, which is the daemon.
func TestJoinBeforeStart(t *testing.T) {
	dir := t.TempDir()
	procs := filepath.Join(dir, "cgroup.procs")
	one := &gate{dir: dir, joined: make(chan error, 1)}
	g := &Gates{}
	if err := g.join(one, []string{procs}); err != nil {
		t.Fatal(err)
	}
	if err := <-one.joined; err != nil {
		t.Fatal(err)
	}
	g.tasks.Wait()
	if _, err := os.Stat(procs); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was moved: %v", err)
	}
	if got := one.state.Groups; len(got) != 1 || got[0] != procs {
		t.Errorf("the groups are %q", got)
	}
}

// What is held is given out once more for as long as no gate has it, and not
// after it was released.
func TestHeldAgain(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	held, err := holdTAP(r)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	one := &gate{held: held}
	for range 2 {
		f, err := one.heldAgain()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if _, err := w.WriteString("x"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Read(b); err != nil || b[0] != 'x' {
			t.Errorf("read %q, %v", b, err)
		}
		f.Close()
	}
	if one.state.Process, err = procid.Of(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	if f, err := one.heldAgain(); err == nil {
		f.Close()
		t.Error("two gates would have the link")
	}
	one.release()
	if _, err := one.heldAgain(); err != errReleased {
		t.Errorf("released: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(held.fd), unix.F_GETFD, 0); err == nil {
		t.Error("it was not closed")
	}
}
