package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Base is the user's directory, held open. Every path in it is looked up
// beneath it by the kernel (openat2), without following a symlink in any
// component and without leaving its mount: what is mounted below it was not in
// the sandbox's view either. It needs Linux 5.6. A Base is for one goroutine.
type Base struct {
	dir  *os.File
	name string // as the user wrote it, for messages

	parent     *os.File // of the last look-up, kept for the next
	parentPath string
}

// OpenBase opens a directory as a base. It follows no link on the way that a
// sandbox could have made: see beneath.Parent.
func OpenBase(dir string) (*Base, error) {
	f, err := beneath.OpenPath(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if link, ok := errors.AsType[*beneath.LinkError](err); ok {
		return nil, sandbox.Errorf(sandbox.Conflict, "open workspace: %w", link)
	}
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	return newBase(f), nil
}

// newBase makes a base of an open directory, which it then owns.
func newBase(dir *os.File) *Base { return &Base{dir: dir, name: dir.Name()} }

// Close closes the directory.
func (b *Base) Close() error {
	b.forget()
	return b.dir.Close()
}

// ID returns the device and inode of the directory, by which a caller can tell
// whether it is still the one that the workspace was made of.
func (b *Base) ID() (dev, ino uint64, err error) {
	st, err := statFile(b.dir)
	return st.Dev, st.Ino, err
}

func (b *Base) forget() {
	if b.parent != nil {
		b.parent.Close()
		b.parent, b.parentPath = nil, ""
	}
}

// openBeneath opens rel beneath dir, without following a symlink in any
// component and without leaving dir's mount.
func openBeneath(dir *os.File, rel string, flags int) (*os.File, error) {
	if weak.On(weak.WayFollowed) {
		return os.OpenFile(filepath.Join(dir.Name(), rel), flags, 0)
	}
	fd, err := beneath.OpenHere(int(dir.Fd()), rel, flags)
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), rel), nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return nil, &sandbox.Error{
			Kind: sandbox.Unsupported, Msg: "open workspace: this kernel can't resolve paths safely",
			Hint: "needs Linux 5.6 or newer, with openat2 allowed", Err: err,
		}
	}
	return nil, err
}

// in returns the open directory that holds rel, and rel's last component. The
// directory is good until the next call.
func (b *Base) in(rel string) (*os.File, string, error) {
	parent, name := splitPath(rel)
	if parent == "." {
		return b.dir, name, nil
	}
	if b.parent != nil && b.parentPath == parent {
		return b.parent, name, nil
	}
	d, err := openBeneath(b.dir, parent, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, "", err
	}
	b.forget()
	b.parent, b.parentPath = d, parent
	return d, name, nil
}

// stat is lstat of rel. It returns nil where there is nothing, or where a
// parent is no directory.
func (b *Base) stat(rel string) (*unix.Stat_t, error) {
	d, name, err := b.in(rel)
	if err == nil {
		var st unix.Stat_t
		if st, err = statAt(d, name); err == nil {
			return &st, nil
		}
	}
	if gone(err) {
		return nil, nil
	}
	return nil, b.explain(rel, err)
}

// open opens the regular file rel for reading.
func (b *Base) open(rel string) (*os.File, unix.Stat_t, error) {
	d, name, err := b.in(rel)
	if err != nil {
		return nil, unix.Stat_t{}, b.explain(rel, err)
	}
	f, st, err := openFileAt(d, name)
	if err != nil {
		return nil, st, b.explain(rel, err)
	}
	return f, st, nil
}

// openDir opens the directory rel for reading.
func (b *Base) openDir(rel string) (*os.File, error) {
	d, err := openBeneath(b.dir, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, b.explain(rel, err)
	}
	return d, nil
}

func (b *Base) readlink(rel string) (string, error) {
	d, name, err := b.in(rel)
	if err != nil {
		return "", b.explain(rel, err)
	}
	return readlinkAt(d, name)
}

// errMount says that a path leads to another mount.
var errMount = errors.New("another file system is mounted there")

func (b *Base) explain(rel string, err error) error {
	if errors.Is(err, unix.EXDEV) {
		err = errMount
	}
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err
	}
	return fmt.Errorf("%s: %w", term.Escape(rel), err)
}

// digest returns the digest of the regular file rel as it is now.
func (b *Base) digest(ctx context.Context, rel string, d *digester, buf []byte) (Digest, error) {
	f, st, err := b.open(rel)
	if err != nil {
		return Digest{}, err
	}
	defer f.Close()
	ext, err := fileExtents(f, st.Size, st.Blocks)
	if err != nil && !errors.Is(err, errFragmented) {
		return Digest{}, err
	}
	if ext == nil && st.Size > 0 {
		ext = []Extent{{0, st.Size}}
	}
	return d.digestFile(ctx, f, st.Size, ext, buf)
}

// walk calls visit for every entry below directory rel, directories before
// what is in them, until it returns an error.
func (b *Base) walk(ctx context.Context, rel string, visit func(rel string, st *unix.Stat_t) error) error {
	d, err := b.openDir(rel)
	if err != nil {
		return err
	}
	names, err := listDir(d)
	d.Close()
	if err != nil {
		return b.explain(rel, err)
	}
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		p := joinPath(rel, name)
		st, err := b.stat(p)
		if err != nil || st == nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := visit(p, st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			if err := b.walk(ctx, p, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

// stamp identifies what is at a path. Its zero value stands for nothing.
type stamp struct {
	dev, ino     uint64
	ctime, mtime int64 // ns
	size         int64
	mode         uint32
	uid, gid     uint32
	linked       bool // it has several names, and its change time moves with theirs
}

func newStamp(st *unix.Stat_t) stamp {
	if st == nil {
		return stamp{}
	}
	return stamp{
		dev: st.Dev, ino: st.Ino, ctime: st.Ctim.Nano(), mtime: st.Mtim.Nano(), size: st.Size,
		mode: st.Mode, uid: st.Uid, gid: st.Gid, linked: st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR,
	}
}

// same reports whether s and t are the same thing, unchanged.
func (s stamp) same(t stamp) bool {
	if s.linked || t.linked {
		s.ctime, s.linked = t.ctime, t.linked
	}
	return s == t
}
