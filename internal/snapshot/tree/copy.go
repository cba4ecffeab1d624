// Package tree copies trees of files as they are on disk, with owners, modes,
// times, extended attributes, hard links, holes, and what an overlay marks in
// its upper layer, so that the copy can be a lower layer; and it removes trees.
//
// What is in a tree is hostile: no link is followed, names are resolved against
// open directories, no more than a few descriptors are open however deep a tree
// is. It refuses a tree that changes while it is copied, and marks of overlays
// that it does not know; devices are left out, and counted.
package tree

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Options of a Copy.
type Options struct {
	// Plain says that the tree is no overlay's layer: what looks like an
	// overlay's marks in it are somebody's files, and stay that.
	Plain bool
	// UserXattr says that overlays here keep their marks in attributes named
	// user.overlay, not trusted.overlay.
	UserXattr bool
}

// Copied is what a Copy did.
type Copied struct {
	Bytes   int64 // on disk
	Files   int64 // directories and all else too
	Devices int64 // left out
}

// ErrChanged is the error of a Copy beneath which the tree changed.
var ErrChanged = errors.New("it changed while it was copied")

// Copy copies what is in src, and src's own attributes, to the empty directory
// dst. Links between files are kept by way of the empty directory links, which
// is on dst's file system and empty again after a success. What is copied is
// durable only once dst's file system is synced.
func Copy(ctx context.Context, src, dst, links *os.File, o Options) (Copied, error) {
	c := &copier{options: o, links: links, linked: map[inode]*link{}}
	err := c.walk(ctx, src, dst)
	if err == nil {
		err = c.dropLinks()
	}
	return c.done, err
}

type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

// frame is a directory between the root and where a walk is.
type frame struct {
	names    []string // what is yet to be copied
	st       unix.Stat_t
	src, dst inode
}

type copier struct {
	options Options
	links   *os.File
	linked  map[inode]*link
	done    Copied
}

// at is where a walk is: the two directories. They are reached from below by
// "..", and known again by their inodes, so that no descriptor is held for
// each level.
type at struct{ src, dst *os.File }

func (p at) close() {
	p.src.Close()
	p.dst.Close()
}

func (c *copier) walk(ctx context.Context, src, dst *os.File) error {
	here, err := reopen(at{src, dst}, ".")
	if err != nil {
		return err
	}
	defer func() { here.close() }()
	top, err := c.enter(here)
	if err != nil {
		return err
	}
	stack := []frame{top}
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		f := &stack[len(stack)-1]
		if len(f.names) > 0 {
			name := f.names[len(f.names)-1]
			f.names = f.names[:len(f.names)-1]
			below, err := c.entry(here, name)
			if err != nil {
				return err
			}
			if below != nil {
				here.close()
				here = *below
				top, err := c.enter(here)
				if err != nil {
					return err
				}
				stack = append(stack, top)
			}
			continue
		}
		if err := c.leave(here, f); err != nil {
			return err
		}
		if stack = stack[:len(stack)-1]; len(stack) == 0 {
			return nil
		}
		if here, err = up(here, &stack[len(stack)-1]); err != nil {
			return err
		}
	}
}

// enter reads a directory.
func (c *copier) enter(p at) (frame, error) {
	var f frame
	var to unix.Stat_t
	if err := errors.Join(unix.Fstat(int(p.src.Fd()), &f.st), unix.Fstat(int(p.dst.Fd()), &to)); err != nil {
		return f, err
	}
	f.src, f.dst = inodeOf(&f.st), inodeOf(&to)
	var err error
	f.names, err = p.src.Readdirnames(-1)
	c.done.Files++
	c.done.Bytes += f.st.Blocks * 512
	return f, err
}

// leave gives a directory its attributes, once all is in it.
func (c *copier) leave(p at, f *frame) error {
	return c.attributes(byFile(p.src), byFile(p.dst), &f.st)
}

// up goes to the directory above, if that is the one it came from.
func up(p at, f *frame) (at, error) {
	above, err := reopen(p, "..")
	p.close()
	if err != nil {
		return p, err
	}
	var src, dst unix.Stat_t
	if err := errors.Join(unix.Fstat(int(above.src.Fd()), &src), unix.Fstat(int(above.dst.Fd()), &dst)); err != nil {
		return above, err
	}
	if inodeOf(&src) != f.src || inodeOf(&dst) != f.dst {
		return above, ErrChanged
	}
	return above, nil
}

// reopen opens the same name below both directories.
func reopen(p at, name string) (at, error) {
	src, err := openDir(p.src, name)
	if err != nil {
		return at{}, err
	}
	dst, err := openDir(p.dst, name)
	if err != nil {
		src.Close()
		return at{}, err
	}
	return at{src, dst}, nil
}

func openDir(dir *os.File, name string) (*os.File, error) {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open directory: %w", err)
	}
	return os.NewFile(uintptr(fd), "."), nil
}

// openat opens a name that is no link.
func openat(dir *os.File, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// entry copies one name, or returns both directories where it is one.
func (c *copier) entry(p at, name string) (*at, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(p.src.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, ErrChanged
	}
	if err != nil {
		return nil, fmt.Errorf("look at %q: %w", name, err)
	}
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind == unix.S_IFDIR:
		return c.subdir(p, name, &st)
	case kind == unix.S_IFBLK, kind == unix.S_IFCHR && (st.Rdev != 0 || c.options.Plain):
		c.done.Devices++
		return nil, nil
	}
	c.done.Files++
	if st.Nlink > 1 && kind != unix.S_IFCHR {
		err = c.hardLink(p, name, &st)
	} else {
		err = c.node(p.src, name, p.dst, name, &st)
	}
	if err != nil && !errors.Is(err, ErrChanged) {
		err = fmt.Errorf("copy %q: %w", name, err)
	}
	return nil, err
}

func (c *copier) subdir(p at, name string, st *unix.Stat_t) (*at, error) {
	if err := unix.Mkdirat(int(p.dst.Fd()), name, 0o700); err != nil {
		return nil, fmt.Errorf("copy %q: %w", name, err)
	}
	below, err := reopen(p, name)
	if err != nil {
		return nil, errors.Join(ErrChanged, err)
	}
	var now unix.Stat_t
	if err := unix.Fstat(int(below.src.Fd()), &now); err != nil || inodeOf(&now) != inodeOf(st) {
		below.close()
		return nil, errors.Join(ErrChanged, err)
	}
	return &below, nil
}

// Remove deletes path and what is below it, however deep that is. A path that
// is not there is no error.
func Remove(path string) error { return beneath.RemoveAll(context.Background(), path) }
