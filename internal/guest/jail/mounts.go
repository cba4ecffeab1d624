package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// mounts is the cell's mount namespace; nil after its end.
func (c *cell) mounts() *os.File {
	for _, ns := range c.ns {
		if ns.flag == unix.CLONE_NEWNS {
			return ns.file
		}
	}
	return nil
}

func sameFile(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errors.Join(errX, errY) == nil && os.SameFile(x, y)
}

// inMounts runs f on a thread in a mount namespace; nil: the agent's own.
func inMounts(ns *os.File, f func() error) error {
	w, err := startWorker(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("leave the shared working directory: %w", err)
		}
		if ns == nil {
			return nil
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("join %s: %w", ns.Name(), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer w.stop()
	var failed error
	if err := w.do(func() { failed = f() }); err != nil {
		return err
	}
	return failed
}

// tryWrite fails where a file can be made in a directory that was made read-only.
func tryWrite(dir string) error {
	name := filepath.Join(dir, ".carboy-"+strconv.Itoa(os.Getpid()))
	err := unix.Mkdir(name, 0o700)
	if errors.Is(err, unix.EROFS) {
		return nil
	}
	if err == nil {
		err = errors.Join(errors.New("it went well"), unix.Rmdir(name))
	}
	return fmt.Errorf("write to %s, which is read-only: %w", dir, err)
}
