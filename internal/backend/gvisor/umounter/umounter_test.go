package umounter

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// mounted makes a directory with something mounted on it, in a mount namespace
// of this test's own thread, and returns what is in it while that is so.
func mounted(t *testing.T) (dir, inside string) {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("needs a mount namespace of its own: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	inside = filepath.Join(dir, "inside")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, inside
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name string
		word string
		want int
	}{
		{"a byte came", "x", 0},
		{"closed without one", "", failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, inside := mounted(t)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := w.WriteString(tt.word); err != nil {
				t.Fatal(err)
			}
			w.Close()
			if got := run(int(r.Fd()), dir); got != tt.want {
				t.Errorf("run = %d, want %d", got, tt.want)
			}
			_, err = os.Stat(inside)
			if gone := errors.Is(err, os.ErrNotExist); gone != (tt.want == 0) {
				t.Errorf("what was mounted: %v", err)
			}
		})
	}
}

func TestRunWhereNothingIsMounted(t *testing.T) {
	dir, _ := mounted(t)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if got := run(int(r.Fd()), dir); got != failed {
		t.Errorf("run = %d, want %d", got, failed)
	}
}
