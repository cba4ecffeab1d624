package archive

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

const (
	openDir  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK | unix.O_CLOEXEC
	openFile = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
)

// CreateOptions tune Create. The zero value works.
type CreateOptions struct {
	// Follow archives what a link at the path leads to, under the link's name.
	Follow bool
	// Except are names of entries that are left out, with all below them.
	Except []string
	// Started, if not nil, is called once the first entry could be read,
	// before anything is written.
	Started func()
}

// Create writes a PAX tar of what is at p to w: a single entry, or a directory with all
// that is below it. Names start with p's last part; "/" itself is "./", and what is
// below it has no such part. Links below are archived as links; a second name of a file
// that is in the archive is a hard link to the first.
//
// A tree may change while it is read. What vanished, can't be read, or is
// neither file, directory nor link is skipped and named in the Result; an
// error means that w does not hold a complete archive.
func Create(ctx context.Context, w io.Writer, p string, o CreateOptions) (Result, error) {
	base := path.Base(p)
	if base == "/" {
		base = "."
	}
	if o.Follow {
		q, err := filepath.EvalSymlinks(p)
		if err != nil {
			return Result{}, err
		}
		p = q
	}
	parent, err := unix.Open(path.Dir(p), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Result{}, &os.PathError{Op: "open", Path: path.Dir(p), Err: err}
	}
	defer unix.Close(parent)
	name := path.Base(p)
	if name == "/" {
		name = "."
	}
	return create(ctx, w, parent, name, base, o)
}

// CreateIn is Create of a name in an open directory, which is not followed
// where it is a link.
func CreateIn(ctx context.Context, w io.Writer, dir int, name string, o CreateOptions) (Result, error) {
	if !single(name) {
		return Result{}, fmt.Errorf("name %.256q: %w", name, ErrUnsafe)
	}
	return create(ctx, w, dir, name, name, o)
}

// create archives the entry name of dir as base.
func create(ctx context.Context, w io.Writer, dir int, name, base string, o CreateOptions) (Result, error) {
	bw := bufio.NewWriterSize(w, bufferSize)
	c := &creator{
		ctx: ctx, tw: tar.NewWriter(bw), started: o.Started, except: o.Except,
		buf: make([]byte, bufferSize), links: make(map[inode]*link),
	}
	if err := c.entry(dir, name, base, 0); err != nil {
		return c.res, err
	}
	if err := c.tw.Close(); err != nil {
		return c.res, err
	}
	return c.res, bw.Flush()
}

type inode struct{ dev, ino uint64 }

// link is a file with several names: the first in the archive, and how many
// more may come.
type link struct {
	name string
	left uint64
}

type creator struct {
	ctx     context.Context // of the one call that this is for
	tw      *tar.Writer
	started func()
	except  []string
	res     Result
	buf     []byte
	links   map[inode]*link
}

// skippable reports whether an entry that fails with err is left out rather
// than the end of everything.
func skippable(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.EACCES, unix.EPERM, unix.ELOOP, unix.ENOTDIR, unix.ENXIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// entry archives name in the directory dir, as rel.
func (c *creator) entry(dir int, name, rel string, depth int) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if len(rel) >= maxName {
		c.res.skip(rel[:64]+"…", "the name is longer than %d bytes", maxName-1)
		return nil
	}
	err := c.kind(dir, name, rel, depth)
	var w *writeError
	if depth > 0 && skippable(err) && !errors.As(err, &w) {
		errno, _ := errors.AsType[unix.Errno](err)
		c.res.skip(rel, "%v", errno)
		return nil
	}
	return err
}

// writeError is one of the stream, not of the tree.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write the archive: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

func (c *creator) kind(dir int, name, rel string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fail("stat", rel, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.file(dir, name, rel)
	case unix.S_IFDIR:
		return c.dir(dir, name, rel, depth)
	case unix.S_IFLNK:
		return c.symlink(dir, name, rel, &st)
	}
	if depth == 0 {
		return fmt.Errorf("%s is a %s: %w", rel, special(st.Mode), ErrUnsafe)
	}
	c.res.skip(rel, "%s", special(st.Mode))
	return nil
}

func special(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

func fail(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

// header writes the header of an entry that could be opened.
func (c *creator) header(h *tar.Header, st *unix.Stat_t) error {
	if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && h.Typeflag == tar.TypeReg {
		c.res.skip(h.Name, "set-id bits dropped")
	}
	h.Format = tar.FormatPAX
	h.Mode = int64(st.Mode & 0o1777)
	h.Uid, h.Gid = int(st.Uid), int(st.Gid)
	h.ModTime = time.Unix(st.Mtim.Unix())
	if c.started != nil {
		c.started()
		c.started = nil
	}
	if err := c.tw.WriteHeader(h); err != nil {
		return &writeError{err}
	}
	c.res.Entries++
	return nil
}

func (c *creator) symlink(dir int, name, rel string, st *unix.Stat_t) error {
	buf := make([]byte, maxName)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return fail("read link", rel, err)
	}
	return c.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: rel, Linkname: string(buf[:n])}, st)
}

func (c *creator) file(dir int, name, rel string) error {
	fd, err := unix.Openat(dir, name, openFile, 0)
	if err != nil {
		return fail("open", rel, err)
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail("stat", rel, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		c.res.skip(rel, "replaced while it was read")
		return nil
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: rel, Size: st.Size}
	if first := c.first(rel, &st); first != "" {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
	}
	if err := c.header(h, &st); err != nil || h.Size == 0 {
		return err
	}
	return c.content(f, rel, h.Size)
}

// first returns the name that a file has in the archive already, or "".
func (c *creator) first(rel string, st *unix.Stat_t) string {
	if st.Nlink < 2 {
		return ""
	}
	key := inode{st.Dev, st.Ino}
	if l, ok := c.links[key]; ok {
		if l.left--; l.left == 0 {
			delete(c.links, key)
		}
		return l.name
	}
	if len(c.links) < maxLinks { // beyond, each name gets the content
		c.links[key] = &link{rel, uint64(st.Nlink) - 1} //nolint:unconvert // 32 bits on arm64
	}
	return ""
}

// content copies size bytes of f. A file that has become shorter is filled
// up with zeros, as its size is written already, and named in the Result.
func (c *creator) content(f *os.File, rel string, size int64) error {
	var src io.Reader = f
	for left := size; left > 0; {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		n, err := src.Read(c.buf[:min(left, int64(len(c.buf)))])
		if n == 0 {
			c.res.skip(rel, "%d bytes could not be read and are zeros: %v", left, err)
			src = zeros{}
			continue
		}
		if _, err := c.tw.Write(c.buf[:n]); err != nil {
			return &writeError{err}
		}
		left -= int64(n)
		c.res.Bytes += int64(n)
	}
	return nil
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func (c *creator) dir(dir int, name, rel string, depth int) error {
	if depth > maxDepth {
		c.res.skip(rel, "more than %d directories within each other", maxDepth)
		return nil
	}
	fd, err := beneath.OpenNoLinks(dir, name, openDir)
	if err != nil {
		return fail("open", rel, err)
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail("stat", rel, err)
	}
	if err := c.header(&tar.Header{Typeflag: tar.TypeDir, Name: rel + "/"}, &st); err != nil {
		return err
	}
	for {
		names, err := f.Readdirnames(1024)
		slices.Sort(names)
		for _, n := range names {
			if slices.Contains(c.except, n) {
				continue
			}
			if err := c.entry(fd, n, path.Join(rel, n), depth+1); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fail("read", rel, err)
		}
	}
}
