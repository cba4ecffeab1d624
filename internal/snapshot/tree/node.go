package tree

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
)

// node copies what is no directory to a new name.
func (c *copier) node(src *os.File, name string, dst *os.File, to string, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.file(src, name, dst, to, st)
	case unix.S_IFLNK:
		target, err := readLink(src, name)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(target, int(dst.Fd()), to); err != nil {
			return err
		}
	case unix.S_IFCHR: // a whiteout: it says that there is nothing, and has no attributes
		return unix.Mknodat(int(dst.Fd()), to, unix.S_IFCHR, 0)
	default: // a pipe's or a socket's name
		if err := unix.Mknodat(int(dst.Fd()), to, st.Mode&unix.S_IFMT|0o600, 0); err != nil {
			return err
		}
	}
	return c.attributes(named{src, name}, named{dst, to}, st)
}

func readLink(dir *os.File, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", errors.Join(ErrChanged, err)
	}
	return string(buf[:n]), nil
}

// file copies a regular file.
func (c *copier) file(src *os.File, name string, dst *os.File, to string, st *unix.Stat_t) error {
	fd, err := openat(src, name, unix.O_RDONLY, 0)
	if err != nil {
		return errors.Join(ErrChanged, err)
	}
	in := os.NewFile(uintptr(fd), "source")
	defer in.Close()
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || inodeOf(&now) != inodeOf(st) {
		return errors.Join(ErrChanged, err)
	}
	fd, err = openat(dst, to, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), "copy")
	if err = disk.CopySparse(out, in); err == nil {
		err = c.attributes(byFile(in), byFile(out), st)
	}
	c.done.Bytes += st.Blocks * 512
	return errors.Join(err, out.Close())
}

// link is a file that has several names.
type link struct {
	name string // in the directory of links
	left uint64 // names that were not met yet
}

// hardLink copies a file with several names when its first one is met, and
// gives the copy that name and those that follow. Until the last of them it
// has one more, which can be reached however deep in the tree the others are.
func (c *copier) hardLink(p at, name string, st *unix.Stat_t) error {
	id := inodeOf(st)
	l := c.linked[id]
	if l == nil {
		l = &link{name: strconv.Itoa(len(c.linked)), left: uint64(st.Nlink)} //nolint:unconvert // 32 bits on arm64
		if err := c.node(p.src, name, c.links, l.name, st); err != nil {
			return err
		}
		c.linked[id] = l
	}
	if l.left > 1 {
		l.left--
		return unix.Linkat(int(c.links.Fd()), l.name, int(p.dst.Fd()), name, 0)
	}
	if l.left == 0 {
		return ErrChanged // it got another name meanwhile
	}
	l.left = 0
	return unix.Renameat(int(c.links.Fd()), l.name, int(p.dst.Fd()), name)
}

// dropLinks takes away the further name of files some of whose names lie
// outside the tree.
func (c *copier) dropLinks() error {
	for _, l := range c.linked {
		if l.left == 0 {
			continue
		}
		if err := unix.Unlinkat(int(c.links.Fd()), l.name, 0); err != nil {
			return err
		}
	}
	return nil
}
