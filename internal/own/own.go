// Package own opens files of a user's own configuration, which say what agents may reach.
// Nobody but the user and root may have written one, nor have put another in its place: the
// owner and the mode of each file count, and those of its directory.
//
// Links are followed, for programs that keep configurations make them, as long as what a link
// leads to is as much the user's. Everything is looked at once it is open.
package own

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Why a file or directory is not taken.
var (
	ErrOthers  = errors.New("others may write to it")
	ErrNowhere = errors.New("a link that leads nowhere")
)

// Error is why something can't be used: Path is what is at fault, which a link may have led to.
type Error struct {
	Path string
	Err  error
}

// Error is all of it.
func (e *Error) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap is the reason.
func (e *Error) Unwrap() error { return e.Err }

// Hint is what to do about ErrOthers.
const Hint = "it has to be yours, and nobody else's to write"

// maxLinks bounds the links that one name may lead through.
const maxLinks = 40

// Dir is a directory of the user's.
type Dir struct {
	f    *os.File // by O_PATH
	path string
}

// Open opens a directory. One that is not there is fs.ErrNotExist. Who may write above it is not
// looked at. What this package opens fails with an *Error.
func Open(path string) (*Dir, error) {
	path = filepath.Clean(path)
	above, name := filepath.Split(path)
	if above == "" {
		above = "."
	}
	fd, err := unix.Open(above, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fault(path, err)
	}
	d := &Dir{os.NewFile(uintptr(fd), above), above}
	defer d.Close()
	if name == "" {
		name = "."
	}
	return d.Dir(name)
}

// Close closes it.
func (d *Dir) Close() { _ = d.f.Close() } // it was only read

// Dir opens a directory in it.
func (d *Dir) Dir(name string) (*Dir, error) {
	f, st, err := d.walk(name)
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	} else if !users(st) {
		err = ErrOthers
	}
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, fault(f.Name(), err)
	}
	return &Dir{f, f.Name()}, nil
}

// File opens a plain file in it for reading.
func (d *Dir) File(name string) (*os.File, error) {
	at, st, err := d.walk(name)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fault(at.Name(), beneath.ErrNotRegular)
	case !users(st):
		return nil, fault(at.Name(), ErrOthers)
	}
	return again(at, unix.O_RDONLY)
}

// List opens it for its names.
func (d *Dir) List() (*os.File, error) { return again(d.f, unix.O_RDONLY|unix.O_DIRECTORY) }

// again opens what is open by O_PATH.
func again(f *os.File, flags int) (*os.File, error) {
	for {
		fd, err := unix.Open(beneath.Path(f), flags|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fault(f.Name(), err)
		}
		return os.NewFile(uintptr(fd), f.Name()), nil
	}
}

// walk opens what a name in it leads to.
func (d *Dir) walk(name string) (*os.File, *unix.Stat_t, error) {
	dir, shown := d.f, filepath.Join(d.path, name)
	defer func() {
		if dir != d.f {
			_ = dir.Close() // nothing was read
		}
	}()
	for links := 0; ; links++ {
		fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) && links > 0 {
			return nil, nil, fault(shown, ErrNowhere)
		}
		if err != nil {
			return nil, nil, fault(shown, err)
		}
		f := os.NewFile(uintptr(fd), shown)
		st := &unix.Stat_t{}
		err = unix.Fstat(fd, st)
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK {
			return f, st, nil
		}
		var next *os.File
		if err == nil {
			next, name, err = follow(dir, f, st, links)
		}
		_ = f.Close() // nothing was read
		if err != nil {
			return nil, nil, err
		}
		if dir != d.f {
			_ = dir.Close() // nothing was read
		}
		dir, shown = next, filepath.Join(next.Name(), name)
	}
}

// follow opens the directory that a link leads to, and returns the name there.
func follow(dir, link *os.File, st *unix.Stat_t, links int) (*os.File, string, error) {
	switch {
	case links >= maxLinks:
		return nil, "", fault(link.Name(), unix.ELOOP)
	case !mine(st):
		return nil, "", fault(link.Name(), ErrOthers)
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(link.Fd()), "", buf)
	if err != nil {
		return nil, "", fault(link.Name(), err)
	}
	// Not cleaned: what .. is depends on where the links before it lead.
	target := strings.TrimRight(string(buf[:n]), "/")
	above, name := target[:strings.LastIndexByte(target, '/')+1], target[strings.LastIndexByte(target, '/')+1:]
	if name == "" || name == ".." {
		above, name = target+"/", "."
	}
	if above == "" {
		above = "."
	}
	fd, err := unix.Openat(int(dir.Fd()), above, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		err = ErrNowhere
	}
	if err != nil {
		return nil, "", fault(link.Name(), err)
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		real = above
	}
	f := os.NewFile(uintptr(fd), real)
	at := &unix.Stat_t{}
	if err = unix.Fstat(fd, at); err == nil && !users(at) {
		err = ErrOthers
	}
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, "", fault(f.Name(), err)
	}
	return f, name, nil
}

// mine reports whether something belongs to the user or to root.
func mine(st *unix.Stat_t) bool { return int(st.Uid) == os.Geteuid() || st.Uid == 0 }

// users reports whether it does, and nobody else may write to it.
func users(st *unix.Stat_t) bool { return mine(st) && st.Mode&0o002 == 0 }

func fault(path string, err error) error { return &Error{path, err} }
