package landlock_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/landlock"
)

// A domain has the rights that were added, and no other: the same file is read before, and where
// a rule is about it.
func TestDomain(t *testing.T) {
	abi, err := landlock.ABI()
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		if _, err := landlock.New(unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_READ_FILE}); err == nil {
			t.Error("there is no version, and a ruleset")
		}
		return
	}
	if err != nil || abi < 1 {
		t.Fatalf("version %d, %v", abi, err)
	}
	dir := t.TempDir()
	for _, name := range []string{"given", "kept"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "a"), []byte("a"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) error {
		fd, err := unix.Open(filepath.Join(dir, name, "a"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with this goroutine, and the domain with it
		done <- func() error {
			if err := errors.Join(read("given"), read("kept")); err != nil {
				return err
			}
			r, err := landlock.New(unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_READ_FILE})
			if err != nil {
				return err
			}
			defer r.Close()
			fd, err := unix.Open(filepath.Join(dir, "given"), unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			if err := r.Add(fd, unix.LANDLOCK_ACCESS_FS_READ_FILE); err != nil {
				return err
			}
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return err
			}
			if err := r.Enter(); err != nil {
				return err
			}
			if err := read("kept"); !errors.Is(err, unix.EACCES) {
				return errors.Join(errors.New("what no rule is about is read"), err)
			}
			return read("given")
		}()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
