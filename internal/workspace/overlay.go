package workspace

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// The extended attributes in which overlayfs keeps what it knows. A process
// without CAP_SYS_ADMIN in the first user namespace can't set them.
const (
	xattrOpaque = "trusted.overlay.opaque"
	xattrOrigin = "trusted.overlay.origin" // there on what was copied up
)

type overlaySource struct {
	dir    *os.File
	reader *rights.Reader
}

// OverlayUpper is the upper directory of an overlay that was mounted with
// redirect_dir=off, metacopy=off and index=off: it holds whole copies of what
// was written, a character device 0/0 for what was deleted, and opaque
// directories. The caller keeps dir open and needs CAP_SYS_ADMIN to see which
// are opaque. The file system should be mounted nodev: a device node is never
// opened as long as it was one when it was looked at.
//
// The kernel copies a file up with root's rights, whoever renames it. reader is therefore the
// owner of the directory below, with the ids that it has in the upper one: what that user may not
// read is named as Special. Nil: all is read.
func OverlayUpper(dir *os.File, reader *rights.Reader) Source { return overlaySource{dir, reader} }

func (overlaySource) since() time.Time { return time.Time{} }

func (s overlaySource) write(p *producer) error {
	d, err := openDirAt(s.dir, ".")
	if err != nil {
		return fmt.Errorf("open upper directory: %w", err)
	}
	defer d.Close()
	p.reader = s.reader
	return p.overlayDir(d, ".", 0)
}

// overlayDir writes what is in an open directory.
func (p *producer) overlayDir(d *os.File, rel string, depth int) error {
	names, err := listDir(d)
	if err != nil {
		return fmt.Errorf("list %s: %w", term.Escape(rel), err)
	}
	for _, name := range names {
		path := joinPath(rel, name)
		if !p.wants(path) {
			continue
		}
		if err := p.overlayEntry(d, name, path, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (p *producer) overlayEntry(dir *os.File, name, rel string, depth int) error {
	st, err := statAt(dir, name)
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("stat %s: %w", term.Escape(rel), err)
	}
	defer p.enter(rel, st.Mode&unix.S_IFMT == unix.S_IFDIR)()
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0:
		err = p.write(&Change{Path: rel, Kind: Deleted}, nil)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		err = p.entry(dir, name, rel, &st, false)
	case tooDeep(rel, depth):
		c := Change{Path: rel, Kind: Special, Detail: "too deep", ModTime: statTime(st.Mtim)}
		return p.write(&c, nil)
	default:
		return p.overlaySubdir(dir, name, rel, depth)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	return nil
}

func (p *producer) overlaySubdir(dir *os.File, name, rel string, depth int) error {
	d, err := openDirAt(dir, name)
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("open %s: %w", term.Escape(rel), err)
	}
	defer d.Close()
	st, err := statFile(d)
	if err != nil {
		return fmt.Errorf("stat %s: %w", term.Escape(rel), err)
	}
	opaque, err := isOpaque(d)
	if err != nil {
		return fmt.Errorf("read attributes of %s: %w", term.Escape(rel), err)
	}
	c := Change{
		Path: rel, Kind: Dir, Mode: st.Mode & 0o7777, ModTime: statTime(st.Mtim),
		Opaque: opaque, Copied: hasOrigin(d),
	}
	if err := p.write(&c, nil); err != nil {
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	return p.overlayDir(d, rel, depth)
}

func isOpaque(d *os.File) (bool, error) {
	var b [8]byte
	n, err := unix.Fgetxattr(int(d.Fd()), xattrOpaque, b[:])
	if noAttribute(err) {
		return false, nil
	}
	return err == nil && n == 1 && b[0] == 'y', err
}

// hasACL says of an open file whether it has an access control list, or may have one.
func hasACL(f *os.File) func() bool {
	return func() bool {
		_, err := unix.Fgetxattr(int(f.Fd()), rights.ACL, nil)
		return !noAttribute(err)
	}
}

// noAttribute reports whether err says that a file has no such attribute.
func noAttribute(err error) bool { return errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) }

// hasOrigin reports whether overlayfs copied f up from the base, rather than
// made it anew. It is a hint: in doubt the answer is no.
func hasOrigin(f *os.File) bool {
	_, err := unix.Fgetxattr(int(f.Fd()), xattrOrigin, nil)
	return err == nil
}
