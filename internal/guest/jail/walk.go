package jail

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links a path may lead through, as in the kernel.
const maxLinks = 40

// errProcLink says that a path leads through a link of /proc's. Such a link leads
// to what a process has open, wherever that is: for a child that has not
// executed its program yet, to what the agent has open.
var errProcLink = errors.New("it leads through a link of /proc's")

// walk opens a path with the rights of the calling thread, as the kernel would,
// but through no link of /proc's. The thread's filter has no openat2 for it.
func walk(name string) (fd int, err error) {
	if fd, err = openPath(unix.AT_FDCWD, "/"); err != nil {
		return -1, err
	}
	links := 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		next, err := openPath(fd, part)
		if err != nil {
			unix.Close(fd)
			return -1, err
		}
		target, err := linkTarget(fd, part, next)
		if err == nil && target == "" {
			unix.Close(fd)
			fd = next
			continue
		}
		unix.Close(next)
		if links++; err == nil && links > maxLinks {
			err = unix.ELOOP
		}
		if err == nil && path.IsAbs(target) {
			unix.Close(fd)
			fd, err = openPath(unix.AT_FDCWD, "/")
		}
		if err != nil {
			if fd >= 0 {
				unix.Close(fd)
			}
			return -1, err
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return fd, nil
}

func openPath(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// linkTarget is where a name leads that was opened as fd; "" where it is no
// link.
func linkTarget(dir int, name string, fd int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", err
	}
	if fs.Type == unix.PROC_SUPER_MAGIC {
		return "", errProcLink
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, b)
	if err == nil && n == 0 {
		err = unix.ENOENT
	}
	return string(b[:max(n, 0)]), err
}

// enterDir makes a directory the calling thread's own, for what it forks next.
func enterDir(dir string) error {
	fd, err := walk(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchdir(fd)
}

// ownProgram wants a program not to lead to what the agent has open.
func ownProgram(file string) error {
	fd, err := walk(file)
	if errors.Is(err, errProcLink) {
		return err
	}
	if err == nil {
		unix.Close(fd)
	}
	return nil // what else is wrong with it, its execution tells
}
