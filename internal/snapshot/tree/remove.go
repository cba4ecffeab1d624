package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove deletes path and what is below it, however deep that is, as
// os.RemoveAll does for trees of no great depth. A path that is not there is no
// error. Nobody else may change the tree meanwhile.
func Remove(path string) error {
	err := unix.Unlinkat(unix.AT_FDCWD, path, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	dir, err := openPath(path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", filepath.Base(path), err)
	}
	err = (&remover{top: dir}).empty()
	if err := errors.Join(err, dir.Close()); err != nil {
		return fmt.Errorf("delete %s: %w", filepath.Base(path), err)
	}
	return os.Remove(path)
}

func openPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// remover empties a directory. It moves what is deep to the top, so that
// nothing is ever deeper than two levels below it.
type remover struct {
	top   *os.File
	moved int
}

func (r *remover) empty() error {
	for {
		n, err := each(r.top, r.one)
		if err != nil || n == 0 {
			return err
		}
	}
}

// each calls f with the names that dir has now. It reports how many there were.
func each(dir *os.File, f func(name string) error) (int, error) {
	fresh, err := openDir(dir, ".")
	if err != nil {
		return 0, err
	}
	defer fresh.Close()
	names, err := fresh.Readdirnames(-1)
	for _, name := range names {
		if err := f(name); err != nil {
			return 0, err
		}
	}
	return len(names), err
}

// one deletes a name at the top, or what it can be rid of at once.
func (r *remover) one(name string) error {
	err := unix.Unlinkat(int(r.top.Fd()), name, 0)
	if err == nil || !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	dir, err := openDir(r.top, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, err := each(dir, func(below string) error { return r.raise(dir, below) }); err != nil {
		return err
	}
	return unix.Unlinkat(int(r.top.Fd()), name, unix.AT_REMOVEDIR)
}

// raise deletes a name in a directory, or moves it to the top.
func (r *remover) raise(dir *os.File, name string) error {
	for _, flags := range []int{0, unix.AT_REMOVEDIR} {
		err := unix.Unlinkat(int(dir.Fd()), name, flags)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		default:
			return err
		}
	}
	for {
		r.moved++
		to := ".moved-" + strconv.Itoa(r.moved)
		err := unix.Renameat2(int(dir.Fd()), name, int(r.top.Fd()), to, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}
