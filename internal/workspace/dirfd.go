package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Everything below works on names in open directories, never on paths, and
// follows no link.

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// statAt is lstat of name in dir.
func statAt(dir *os.File, name string) (st unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

func statFile(f *os.File) (st unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstat(int(f.Fd()), &st) })
	return st, err
}

func openAt(dir *os.File, name string, flags int, mode uint32) (*os.File, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openDirAt opens the directory name in dir for reading.
func openDirAt(dir *os.File, name string) (*os.File, error) {
	return openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// errNotRegular says that a file turned into something else.
var errNotRegular = errors.New("not a regular file")

// openFileAt opens the regular file name in dir for reading. It never blocks
// on a fifo that took the file's place.
func openFileAt(dir *os.File, name string) (*os.File, unix.Stat_t, error) {
	f, err := openAt(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, unix.Stat_t{}, err
	}
	st, err := statFile(f)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
		return nil, st, err
	}
	return f, st, nil
}

func readlinkAt(dir *os.File, name string) (string, error) {
	buf := make([]byte, maxPath+1)
	var n int
	err := retry(func() (err error) {
		n, err = unix.Readlinkat(int(dir.Fd()), name, buf)
		return err
	})
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// listDir returns the names in an open directory, sorted by their bytes.
func listDir(d *os.File) ([]string, error) {
	names, err := d.Readdirnames(-1)
	if err != nil && !gone(err) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// gone reports whether err says that a name is no longer there, or no longer
// what it was a moment ago.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ESTALE) || errors.Is(err, errNotRegular)
}

// kindOf translates a stat's type. detail is what a Special is.
func kindOf(st *unix.Stat_t) (kind Kind, detail string) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File, ""
	case unix.S_IFDIR:
		return Dir, ""
	case unix.S_IFLNK:
		return Symlink, ""
	case unix.S_IFIFO:
		return Special, "fifo"
	case unix.S_IFSOCK:
		return Special, "socket"
	}
	return Special, "device"
}

func statTime(ts unix.Timespec) time.Time { return time.Unix(ts.Unix()) }

// fdPath names an open file for calls that take only a path.
func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
