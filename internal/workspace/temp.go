package workspace

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

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

func sortMarks(marks []Mark) {
	slices.SortFunc(marks, func(a, b Mark) int { return comparePaths(a.Path, b.Path) })
}
