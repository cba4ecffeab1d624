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
	st, err := regular(f)
	if err != nil {
		return nil, st, err
	}
	return f, st, nil
}

// regular looks at an open file, and closes it with an error where it is not a regular one.
func regular(f *os.File) (unix.Stat_t, error) {
	st, err := statFile(f)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errNotRegular
	}
	if err != nil {
		f.Close()
	}
	return st, err
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

// newTemp makes an empty file in dir, of the given mode less the umask. It has
// no name where the file system can do that, else the temporary one returned.
func newTemp(dir *os.File, mode uint32) (*os.File, string, error) {
	f, err := openAt(dir, ".", unix.O_RDWR|unix.O_TMPFILE, mode)
	if err == nil {
		return f, "", nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EINVAL) {
		return nil, "", err
	}
	name := tempName()
	f, err = openAt(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, mode)
	return f, name, err
}

func dropTemp(dir *os.File, temp string) {
	if temp != "" {
		_ = unix.Unlinkat(int(dir.Fd()), temp, 0)
	}
}

// linkFile gives a file without a name one that is not taken.
func linkFile(f, dir *os.File, name string) error {
	return unix.Linkat(unix.AT_FDCWD, fdPath(f), int(dir.Fd()), name, unix.AT_SYMLINK_FOLLOW)
}

// placeNew puts a file from newTemp at a name that is not taken.
func placeNew(dir, f *os.File, temp, name string) error {
	if temp == "" {
		return linkFile(f, dir, name)
	}
	fd := int(dir.Fd())
	err := unix.Renameat2(fd, temp, fd, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // a file system without that flag
		if err = unix.Linkat(fd, temp, fd, name, 0); err == nil {
			err = unix.Unlinkat(fd, temp, 0)
		}
	}
	if err != nil {
		dropTemp(dir, temp)
	}
	return err
}
