package beneath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNotRegular says that what has a file's name is none: a directory, a pipe,
// a device, a socket.
var ErrNotRegular = errors.New("not a regular file")

// A Dir is an open directory in which a guest may put what it likes, at any
// time. The names that its methods take are relative paths in it, "." for
// itself; one that leads through a link, or is one, is ELOOP. Errors are
// *os.PathError.
type Dir struct{ f *os.File }

// OpenDir opens a directory whose name nobody untrusted can change. Its last
// part may be no link.
func OpenDir(path string) (*Dir, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// In is the directory that f is. It takes f over.
func In(f *os.File) *Dir { return &Dir{f} }

// Close closes the directory.
func (d *Dir) Close() error { return d.f.Close() }

// Fd returns the directory's descriptor, which stays the Dir's.
func (d *Dir) Fd() int { return int(d.f.Fd()) }

// Name is what the directory was opened by, to be shown.
func (d *Dir) Name() string { return d.f.Name() }

// Path names an open file for calls that take a path, for as long as it is
// open: one of our own kernel's links, which leads to the file itself.
func Path(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// Path is Path of the directory.
func (d *Dir) Path() string { return Path(d.f) }

// Open opens what is there. It waits for nobody at a pipe's other end.
func (d *Dir) Open(rel string, flags int) (*os.File, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	fd, err := OpenNoLinks(d.Fd(), rel, flags)
	if err != nil {
		return nil, d.fault("open", rel, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.f.Name(), rel)), nil
}

// OpenDir opens a directory that is there.
func (d *Dir) OpenDir(rel string) (*Dir, error) {
	f, err := d.Open(rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Dir{f}, nil
}

// OpenRegular opens a regular file for reading. Anything else is ErrNotRegular.
func (d *Dir) OpenRegular(rel string) (*os.File, error) {
	// Looked at before it is opened: a device may act on that alone.
	at, err := d.Open(rel, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return nil, d.fault("stat", rel, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, d.fault("open", rel, ErrNotRegular)
	}
	f, err := os.Open(Path(at))
	if err != nil {
		return nil, d.fault("open", rel, err)
	}
	return f, nil
}

// ReadFile reads a regular file. One of more than max bytes is EFBIG.
func (d *Dir) ReadFile(rel string, max int64) ([]byte, error) {
	f, err := d.OpenRegular(rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(b)) > max {
		err = unix.EFBIG
	}
	if err != nil {
		return nil, d.fault("read", rel, err)
	}
	return b, nil
}

// Stat looks at what is there: a link itself, where the name is one.
func (d *Dir) Stat(rel string) (st unix.Stat_t, err error) {
	f, err := d.Open(rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return st, err
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return st, d.fault("stat", rel, err)
	}
	return st, nil
}

// Lstat looks at what is there: a link itself, where the name is one.
func (d *Dir) Lstat(rel string) (fs.FileInfo, error) {
	f, err := d.Open(rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// Readlink reads a link.
func (d *Dir) Readlink(rel string) (string, error) {
	f, err := d.Open(rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readlink(f)
}

// Names lists a directory, in no order.
func (d *Dir) Names(rel string) ([]string, error) {
	f, err := d.Open(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// parent calls do with the directory that rel is in, and its own name there.
func (d *Dir) parent(op, rel string, do func(dir int, name string) error) error {
	at, name := path.Split(path.Clean(rel))
	if name == "." || name == ".." || name == "" {
		return d.fault(op, rel, unix.EINVAL)
	}
	if at == "" {
		at = "."
	}
	fd, err := OpenNoLinks(d.Fd(), at, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		err = do(fd, name)
		unix.Close(fd)
	}
	if err != nil {
		return d.fault(op, rel, err)
	}
	return nil
}

func (d *Dir) fault(op, rel string, err error) error {
	if errors.Is(err, unix.ELOOP) {
		err = &LinkError{d.link(rel)}
	}
	return &os.PathError{Op: op, Path: filepath.Join(d.f.Name(), rel), Err: err}
}

// link returns the first part of rel that is a link, as far as can be told now.
func (d *Dir) link(rel string) string {
	for i := range rel {
		if rel[i] != '/' {
			continue
		}
		fd, err := OpenNoLinks(d.Fd(), rel[:i], unix.O_PATH)
		if errors.Is(err, unix.ELOOP) {
			return filepath.Join(d.f.Name(), rel[:i])
		}
		if err == nil {
			unix.Close(fd)
		}
	}
	return filepath.Join(d.f.Name(), rel)
}

// Remove deletes what has the name, with all that is in it. What is not there
// is no error.
func (d *Dir) Remove(ctx context.Context, rel string) error {
	err := d.parent("remove", rel, func(dir int, name string) error { return Remove(ctx, dir, name) })
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// RemoveAll is Remove for a path whose last part alone is in such a directory.
func RemoveAll(ctx context.Context, path string) error {
	d, err := OpenDir(filepath.Dir(path))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Remove(ctx, filepath.Base(path))
}
