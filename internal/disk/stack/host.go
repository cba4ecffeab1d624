package stack

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// maxWay is how much of a path the kernel is told at a time, in bytes.
const maxWay = 4000

// batch is how many names of a directory are read at a time.
const batch = 1 << 10

// hostTree is a directory of this machine.
type hostTree struct {
	dir *os.File
	// as does something with the rights that the tree is read with; nil: with our own.
	as func(func() error) error
	// value is room for the value of an attribute.
	value []byte
}

// maxValue is the longest value of an attribute that is read: of what overlays mark files by, none
// is longer than a path.
const maxValue = 4 << 10

func (t *hostTree) do(f func() error) error {
	if t.as == nil {
		return f()
	}
	return t.as(f)
}

// hostNode is a file below it.
type hostNode struct {
	tree *hostTree
	rel  string // "." is the directory itself
	st   unix.Stat_t
}

// OnHost is the directory that dir is, which must stay open. What is mounted below it is not
// looked at. as runs what it is given with the rights that files are read with; nil: with those
// of this process.
func OnHost(dir *os.File, as func(func() error) error) (Node, error) {
	n := hostNode{tree: &hostTree{dir: dir, as: as}, rel: "."}
	err := unix.Fstat(int(dir.Fd()), &n.st)
	if err == nil && n.Type() != Directory {
		err = unix.ENOTDIR
	}
	if err != nil {
		return nil, &os.PathError{Op: "stat", Path: dir.Name(), Err: err}
	}
	return n, nil
}

// open opens a file of the tree, however long the way to it is.
func (t *hostTree) open(rel string, flags int) (*os.File, error) {
	at := int(t.dir.Fd())
	for len(rel) > maxWay {
		cut := strings.LastIndexByte(rel[:maxWay], '/')
		fd, err := beneath.OpenHere(at, rel[:cut], unix.O_PATH|unix.O_DIRECTORY)
		if at != int(t.dir.Fd()) {
			_ = unix.Close(at)
		}
		if err != nil {
			return nil, hostError(rel, err)
		}
		at, rel = fd, rel[cut+1:]
	}
	fd, err := beneath.OpenHere(at, rel, flags)
	if at != int(t.dir.Fd()) {
		_ = unix.Close(at)
	}
	if err != nil {
		return nil, hostError(rel, err)
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// errElsewhere says that another file system is mounted there.
var errElsewhere = errors.New("another file system is mounted there")

func hostError(rel string, err error) error {
	if errors.Is(err, unix.EXDEV) {
		err = errElsewhere
	}
	return &os.PathError{Op: "open", Path: rel, Err: err}
}

func (n hostNode) Type() Type {
	switch n.st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Link
	case unix.S_IFCHR:
		if n.st.Rdev == 0 {
			return Whiteout
		}
	}
	return Other
}

func (n hostNode) Size() int64 { return n.st.Size }

func (n hostNode) Owner() (uid, gid, mode uint32) {
	return n.st.Uid, n.st.Gid, n.st.Mode & 0o7777
}

// with calls f with the file open, by its name alone.
func (n hostNode) with(f func(at *os.File) error) error {
	return n.tree.do(func() error {
		at, err := n.tree.open(n.rel, unix.O_PATH|unix.O_NOFOLLOW)
		if err != nil {
			return err
		}
		defer at.Close()
		return f(at)
	})
}

func (n hostNode) Readlink() (target string, err error) {
	err = n.with(func(at *os.File) error {
		b := make([]byte, unix.PathMax)
		size, err := unix.Readlinkat(int(at.Fd()), "", b)
		if err != nil {
			return hostError(n.rel, err)
		}
		target = string(b[:size])
		return nil
	})
	return target, err
}

func (n hostNode) Open() (f io.ReadCloser, err error) {
	err = n.with(func(at *os.File) error {
		var st unix.Stat_t
		if err := unix.Fstat(int(at.Fd()), &st); err != nil {
			return hostError(n.rel, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG { // or else it is another by now
			return hostError(n.rel, beneath.ErrNotRegular)
		}
		f, err = os.Open(beneath.Path(at))
		return err
	})
	return f, err
}

func (n hostNode) Attribute(name string) (value []byte, err error) {
	if n.tree.value == nil {
		n.tree.value = make([]byte, maxValue)
	}
	b := n.tree.value
	err = n.with(func(at *os.File) error {
		size, err := unix.Getxattr(beneath.Path(at), name, b)
		switch {
		case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
			return nil
		case errors.Is(err, unix.ERANGE): // longer than any that is looked into
			value = b
			return nil
		case err != nil:
			return hostError(n.rel, err)
		}
		value = bytes.Clone(b[:size])
		return nil
	})
	return value, err
}

func (n hostNode) Child(name string) (child Node, err error) {
	err = n.tree.do(func() error {
		dir, err := n.tree.open(n.rel, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer dir.Close()
		child, err = n.below(dir, name)
		return err
	})
	return child, err
}

// below looks at a name in the directory that n is.
func (n hostNode) below(dir *os.File, name string) (Node, error) {
	c := hostNode{tree: n.tree, rel: path.Join(n.rel, name)}
	if err := unix.Fstatat(int(dir.Fd()), name, &c.st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, hostError(c.rel, err)
	}
	return c, nil
}

func (n hostNode) Children(f func(name string, node func() (Node, error)) error) error {
	return n.tree.do(func() error {
		dir, err := n.tree.open(n.rel, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer dir.Close()
		for {
			names, err := dir.Readdirnames(batch)
			for _, name := range names {
				err := f(name, func() (Node, error) { return n.below(dir, name) })
				if err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}

// leftOut reports whether a file is one that is left out for an error, and said to be.
func leftOut(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errElsewhere)
}
