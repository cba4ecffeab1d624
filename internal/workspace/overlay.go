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
	xattrOpaque   = "trusted.overlay.opaque"
	xattrOrigin   = "trusted.overlay.origin"   // there on what was copied up: of what
	xattrRedirect = "trusted.overlay.redirect" // on a renamed directory: where what lies below it is
	// xattrWhole is ours, on a directory that was made whole: by what.
	xattrWhole = "trusted.carboy.whole"
	// xattrCopyOf is ours, with what xattrOrigin had on a file that was untied.
	xattrCopyOf = "trusted.carboy.copy-of"
	// xattrUntied is ours, on an upper layer: when that was done, in ns since 1970.
	xattrUntied = "trusted.carboy.untied"
)

type overlaySource struct {
	dir    *os.File
	base   *Below
	reader *rights.Reader
}

// OverlayUpper is the upper directory of an overlay of two layers that was mounted with
// metacopy=off and index=off: it holds whole files of what was written, a character device
// 0/0 for what was deleted, opaque directories, and directories that were renamed, of which
// all that was not written lies in base alone. The caller keeps dir open and needs
// CAP_SYS_ADMIN to see which are opaque or renamed. The file system should be mounted nodev:
// a device node is never opened as long as it was one when it was looked at.
//
// A nil base says that nothing can have been renamed: where something was, that is an error.
//
// The kernel copies a file up with root's rights, whoever renames it. reader is therefore the
// owner of the directory below, with the ids that it has in the upper one: what that user may not
// read is named as Special. Nil: all is read.
func OverlayUpper(dir *os.File, base *Below, reader *rights.Reader) Source {
	return overlaySource{dir, base, reader}
}

func (overlaySource) since() time.Time { return time.Time{} }

func (s overlaySource) write(p *producer) error {
	d, err := openDirAt(s.dir, ".")
	if err != nil {
		return fmt.Errorf("open upper directory: %w", err)
	}
	defer d.Close()
	p.reader, p.lower = s.reader, &opener{Below: s.base}
	defer p.lower.close()
	return p.overlayDir(place{rel: ".", upper: d, low: "."})
}

// place is a directory of a view that is walked.
type place struct {
	rel   string
	depth int
	upper *os.File // what was written there; nil: nothing
	// low is the directory of the base that shows through; "": none does.
	low string
	// moved: what shows through is not what the base has at rel. All is written then, and
	// lower is what low names, or nil.
	moved bool
	lower *os.File

	opaque bool
	// hidden: the stream says of this directory, or of one around it, that nothing of the base is in it.
	hidden bool
}

// overlayDir writes what is in a directory.
func (p *producer) overlayDir(at place) error {
	names, err := at.names()
	if err != nil {
		return fmt.Errorf("list %s: %w", term.Escape(at.rel), err)
	}
	for _, name := range names {
		path := joinPath(at.rel, name)
		aside := !p.aside && !p.wants(path)
		if aside && !p.origins && p.shape == nil {
			continue
		}
		p.aside = p.aside || aside
		err := p.overlayEntry(at, name, path)
		if aside {
			p.aside = false
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *producer) overlayEntry(at place, name, rel string) error {
	if at.upper == nil {
		return p.lowerEntry(at, name, rel)
	}
	st, err := statAt(at.upper, name)
	if errors.Is(err, unix.ENOENT) && at.lower != nil {
		return p.lowerEntry(at, name, rel)
	}
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("stat %s: %w", term.Escape(rel), err)
	}
	defer p.enter(rel, st.Mode&unix.S_IFMT == unix.S_IFDIR)()
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0:
		p.shaped(at, rel, Origin{}, true)
		err = p.write(&Change{Path: rel, Kind: Deleted}, nil)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		err = p.entry(node{dir: at.upper, name: name, known: at.hidden || p.shadows(at, name)}, rel, &st, false)
	case tooDeep(rel, at.depth+1):
		c := Change{Path: rel, Kind: Special, Detail: "too deep", ModTime: statTime(st.Mtim)}
		return p.write(&c, nil)
	default:
		return p.overlaySubdir(at, name, rel)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	return nil
}

func (p *producer) overlaySubdir(at place, name, rel string) error {
	d, err := openDirAt(at.upper, name)
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
	here, err := placeOf(at, name, d)
	if err != nil {
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	if here.moved && here.low != "" {
		if here.lower, err = p.openLower(at, name, here.low); err != nil {
			return p.unshown(err, rel, statTime(st.Mtim))
		}
	}
	if here.lower != nil {
		defer here.lower.Close()
	}
	c := Change{Path: rel, Kind: Dir, Mode: st.Mode & 0o7777, ModTime: statTime(st.Mtim), Copied: hasOrigin(d)}
	if c.Opaque, err = p.hides(&here); err != nil {
		return err
	}
	if here.hidden = at.hidden || c.Opaque; here.hidden {
		p.shaped(at, rel, originOf(d), c.Opaque)
	}
	if p.origins {
		c.Origin = p.lower.origin(here.low, d)
		c.Shown = hasMark(d, p.mark)
		if p.mark != "" && here.moved && here.lower != nil {
			p.shows(&c, &here)
		}
	}
	if here.hidden && c.Copied && !p.reader.MayList(st.Uid, st.Gid, st.Mode, hasACL(d)) {
		return p.write(&Change{Path: rel, Kind: Special, Detail: detailUnreadable, ModTime: c.ModTime}, nil)
	}
	if err := p.write(&c, nil); err != nil {
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	return p.overlayDir(here)
}

// shows says of a renamed directory which of the base's the sandbox has open by it: the kernel goes by the path, whichever is
// there now.
func (p *producer) shows(c *Change, here *place) {
	if !p.lower.replaced(here.low, here.upper, here.lower) {
		c.Shown = true
		return
	}
	p.out.aside = appendAside(p.out.aside, &Change{Path: c.Path, Kind: Dir, Origin: identify(here.lower, "")})
}

// hides reports whether nothing of what the base has at a place's path is in it. Where what was renamed there
// is gone from the base, or is another by now, nobody knows what was in it: then the base's own stays. A
// directory that shows one of the base is ErrLoose where all have to be whole.
func (p *producer) hides(here *place) (bool, error) {
	switch {
	case here.opaque:
		return true, nil
	case !here.moved || here.hidden:
		return false, p.checkWhole(here)
	case here.low == "":
		return true, nil
	case here.lower == nil || p.lower.replaced(here.low, here.upper, here.lower):
		return false, nil
	}
	return true, p.checkWhole(here)
}

func (p *producer) checkWhole(here *place) error {
	if p.whole && here.lower != nil && !p.lower.replaced(here.low, here.upper, here.lower) {
		return ErrLoose
	}
	return nil
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
	for _, name := range originNames {
		if _, err := unix.Fgetxattr(int(f.Fd()), name, nil); err == nil {
			return true
		}
	}
	return false
}
