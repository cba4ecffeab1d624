package archive

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

const (
	newDir     = 0o700 // mode of a directory until its own is set
	impliedDir = 0o755 // of one that the archive does not list
)

// destination makes files below a directory, which no link leads out of; the last
// part of a name is never followed. The directory of the last name stays
// open, since the next is likely in it.
type destination struct {
	root int
	rel  string // where dir is
	dir  int    // -1: none is open
	own  *Owner // nil: the calling thread's user
}

// give makes a name that was just made its owner's.
func (t *destination) give(dir int, name string) error {
	if t.own == nil {
		return nil
	}
	if err := unix.Fchownat(dir, name, int(t.own.UID), int(t.own.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "chown", Path: name, Err: err}
	}
	return nil
}

func openDestination(dir string) (*destination, error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return &destination{root: root, dir: -1}, nil
}

func (t *destination) close() {
	t.forget()
	unix.Close(t.root)
}

// forget closes the directory of the last name.
func (t *destination) forget() {
	if t.dir >= 0 {
		unix.Close(t.dir)
	}
	t.rel, t.dir = "", -1
}

// parent returns the open directory of rel and rel's last part. With mk,
// directories that are missing are made.
func (t *destination) parent(rel string, mk bool) (int, string, error) {
	dir, base := path.Dir(rel), path.Base(rel)
	if t.dir >= 0 && t.rel == dir {
		return t.dir, base, nil
	}
	fd, err := t.open(dir, mk)
	if err != nil {
		return -1, "", err
	}
	t.forget()
	t.rel, t.dir = dir, fd
	return fd, base, nil
}

// open opens a directory as a place for names.
func (t *destination) open(dir string, mk bool) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	fd, err := beneath.Open(t.root, dir, flags)
	if mk && errors.Is(err, unix.ENOENT) && dir != "." {
		if err = t.imply(dir); err == nil {
			fd, err = beneath.Open(t.root, dir, flags)
		}
	}
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, ErrUnsafe):
		return -1, err
	case errors.Is(err, unix.EXDEV):
		return -1, fmt.Errorf("directory %.256q leads out: %w", dir, ErrUnsafe)
	}
	return -1, &os.PathError{Op: "open", Path: dir, Err: err}
}

// imply makes a directory that the archive does not list, and those above.
func (t *destination) imply(dir string) error {
	above, err := t.open(path.Dir(dir), true)
	if err != nil {
		return err
	}
	defer unix.Close(above)
	err = unix.Mkdirat(above, path.Base(dir), impliedDir)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err == nil {
		err = t.give(above, path.Base(dir))
	}
	return err
}

// newFile is a file that is being written: under its own name if that is
// free, else beside it under another, which commit changes.
type newFile struct {
	f      *os.File
	dir    int
	name   string // its own
	actual string // what it has now
	own    *Owner
}

func (t *destination) create(rel string) (*newFile, error) {
	dir, name, err := t.parent(rel, true)
	if err != nil {
		return nil, err
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	w := &newFile{dir: dir, name: name, actual: name, own: t.own}
	fd, err := unix.Openat(dir, w.actual, flags, 0o600)
	if errors.Is(err, unix.EEXIST) {
		if err := replaceable(dir, name); err != nil {
			return nil, err
		}
		w.actual = temporary()
		fd, err = unix.Openat(dir, w.actual, flags, 0o600)
	}
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: rel, Err: err}
	}
	w.f = os.NewFile(uintptr(fd), rel)
	return w, nil
}

func temporary() string { return ".carboy-" + rand.Text() }

// replaceable refuses to replace a directory.
func replaceable(dir int, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return &os.PathError{Op: "replace", Path: name, Err: unix.EISDIR}
	}
	return nil
}

func (w *newFile) write(b []byte) error {
	_, err := w.f.Write(b)
	return err
}

// commit gives the file its mode, time and name, and closes it.
func (w *newFile) commit(mode uint32, mod time.Time) error {
	if w.own != nil {
		if err := w.f.Chown(int(w.own.UID), int(w.own.GID)); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(int(w.f.Fd()), mode); err != nil {
		return &os.PathError{Op: "chmod", Path: w.name, Err: err}
	}
	if err := setTime(w.dir, w.actual, mod); err != nil {
		return err
	}
	if err := w.f.Close(); err != nil {
		return err
	}
	if w.actual == w.name {
		return nil
	}
	if err := unix.Renameat(w.dir, w.actual, w.dir, w.name); err != nil {
		return &os.PathError{Op: "rename", Path: w.name, Err: err}
	}
	return nil
}

// abort removes the file.
func (w *newFile) abort() {
	w.f.Close()
	_ = unix.Unlinkat(w.dir, w.actual, 0) // the error that led here counts
}

// setTime sets the time of change of a name, not of what it may link to.
func setTime(dir int, name string, mod time.Time) error {
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: mod.Unix(), Nsec: int64(mod.Nanosecond())}}
	if err := unix.UtimesNanoAt(dir, name, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "set time", Path: name, Err: err}
	}
	return nil
}

// mkdir makes a directory, or leaves the one that is there, and says which. A
// link to one, if it stays in the tree, will do.
func (t *destination) mkdir(rel string) (made bool, err error) {
	dir, name, err := t.parent(rel, true)
	if err != nil {
		return false, err
	}
	err = unix.Mkdirat(dir, name, newDir)
	if errors.Is(err, unix.EEXIST) {
		fd, err := t.open(rel, false)
		if err == nil {
			unix.Close(fd)
		}
		return false, err
	}
	if err != nil {
		return false, &os.PathError{Op: "make directory", Path: rel, Err: err}
	}
	return true, t.give(dir, name)
}

// setDir gives a directory its mode and time.
func (t *destination) setDir(d deferred) error {
	dir, name, err := t.parent(d.rel, false)
	if err != nil {
		return err
	}
	fd, err := beneath.OpenNoLinks(dir, name, openDir)
	if err != nil {
		return &os.PathError{Op: "open", Path: d.rel, Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, d.mode); err != nil {
		return &os.PathError{Op: "chmod", Path: d.rel, Err: err}
	}
	return setTime(dir, name, d.mod)
}

// place calls mk with a free name and moves what it made to rel.
func (t *destination) place(rel string, mk func(dir int, name string) error) error {
	dir, name, err := t.parent(rel, true)
	if err != nil {
		return err
	}
	err = mk(dir, name)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := replaceable(dir, name); err != nil {
		return err
	}
	tmp := temporary()
	if err := mk(dir, tmp); err != nil {
		return err
	}
	err = unix.Renameat(dir, tmp, dir, name)
	// Renaming one name of a file to another of the same leaves both.
	_ = unix.Unlinkat(dir, tmp, 0)
	t.forget() // the way there may have led through what was replaced
	return err
}

func (t *destination) symlink(target, rel string, mod time.Time) error {
	return t.place(rel, func(dir int, name string) error {
		if err := unix.Symlinkat(target, dir, name); err != nil {
			return &os.LinkError{Op: "symlink", Old: target, New: rel, Err: err}
		}
		if err := t.give(dir, name); err != nil {
			return err
		}
		return setTime(dir, name, mod)
	})
}

// link makes rel a name of the file old, which must be below the tree too; a
// link there is not followed.
func (t *destination) link(old, rel string) error {
	from, err := t.open(path.Dir(old), false)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	return t.place(rel, func(dir int, name string) error {
		if err := unix.Linkat(from, path.Base(old), dir, name, 0); err != nil {
			return &os.LinkError{Op: "link", Old: old, New: rel, Err: err}
		}
		return nil
	})
}
