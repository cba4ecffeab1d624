package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// groupFS makes and removes groups. The kernel fills a new directory with the
// group's files, which an imitation for tests has to do itself.
type groupFS interface {
	mkdir(parent *os.File, name string) error
	rmdir(parent *os.File, name string) error
}

// kernel is the real one.
type kernel struct{}

func (kernel) mkdir(parent *os.File, name string) error {
	return withFD(parent, func(fd int) error { return unix.Mkdirat(fd, name, 0o755) })
}

func (kernel) rmdir(parent *os.File, name string) error {
	return withFD(parent, func(fd int) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
}

// withFD calls fn with the descriptor of f, which can't be closed meanwhile
// and so can't come to mean another file.
func withFD(f *os.File, fn func(fd int) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := rc.Control(func(fd uintptr) { ferr = fn(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

// beneath opens name, which may have slashes but follows no link, below dir.
func beneath(dir *os.File, name string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	var out *os.File
	err := withFD(dir, func(fd int) error {
		for {
			n, err := unix.Openat2(fd, name, &how)
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
				continue
			}
			if err == nil {
				out = os.NewFile(uintptr(n), name)
			}
			return err
		}
	})
	return out, err
}

// openDir opens a directory below dir.
func openDir(dir *os.File, name string) (*os.File, error) {
	return beneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// readFile reads a file of a group.
func readFile(dir *os.File, name string) ([]byte, error) {
	f, err := beneath(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxProcFile))
}

// writeFile sets a file of a group, in the one write that the kernel wants.
func writeFile(dir *os.File, name, value string) error {
	f, err := beneath(dir, name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	return writeClose(f, value)
}

// writePath is writeFile by the file's absolute path.
func writePath(name, value string) error {
	// Not os.WriteFile, which would create: what a kernel lacks is then
	// forbidden instead of missing.
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return writeClose(f, value)
}

func writeClose(f *os.File, value string) error {
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			return e.Err
		}
		return err
	}
	return nil
}

// writable reports whether the caller, by its effective ids, may write path.
func writable(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
}

// subdirs lists the directories right below dir: its child groups.
func subdirs(dir *os.File) ([]string, error) {
	d, err := openDir(dir, ".") // a file of its own: reading moves a position
	if err != nil {
		return nil, err
	}
	defer d.Close()
	ents, err := d.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	var out []string
	for _, e := range ents {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
