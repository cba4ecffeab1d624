package workspace

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// A directory that was renamed in a view is one of the upper layer that names the directory of
// the base which shows through it. A stream knows no renames: what shows through is written as
// what it is now, at its new path, and what was at the old one is deleted.

// Below is the base of a view, as the process that reads the view's changes reaches it.
type Below struct {
	// Open opens the directory. It is called once, where something was renamed.
	Open func() (*os.File, error)
	// As runs what it is given with the rights that the base is read with; nil: with those
	// of this process.
	As func(func() error) error
	// Points are directories of the view over which others are mounted. Where the base lacks them, or those
	// that lead to them, the view shows ones that were made for it.
	Points []string
}

// opener is a Below that is opened once.
type opener struct {
	*Below
	dir *os.File
}

func (o *opener) close() {
	if o.dir != nil {
		o.dir.Close()
	}
}

// root returns the base.
func (o *opener) root() (*os.File, error) {
	if o.dir != nil {
		return o.dir, nil
	}
	if o.Below == nil {
		return nil, errors.New("it was renamed, and the directory that it was in is not at hand")
	}
	var err error
	o.dir, err = o.Open()
	return o.dir, err
}

// do runs f with the rights that the base is read with.
func (o *opener) do(f func() error) error {
	if o.Below == nil || o.As == nil {
		return f()
	}
	return o.As(f)
}

// origin returns what a directory of the upper layer was copied up from, of the base: that may be one which was made for
// a mount, where the base has one as well, or had.
func (o *opener) origin(low string, upper *os.File) Origin {
	if o.Below != nil && slices.ContainsFunc(o.Points, func(point string) bool { return below(point, low) }) {
		return Origin{}
	}
	return originOf(upper)
}

// replaced reports whether a directory of the upper layer is known to have been copied up from another than
// lower, which is at low now.
func (o *opener) replaced(low string, upper, lower *os.File) bool {
	was, is := o.origin(low, upper), identify(lower, "")
	return !was.IsZero() && !is.IsZero() && was != is
}

// placeOf is the directory d, by its name in the one that is walked.
func placeOf(at place, name string, d *os.File) (here place, err error) {
	here = place{rel: joinPath(at.rel, name), depth: at.depth + 1, upper: d, hidden: at.hidden}
	if here.opaque, err = isOpaque(d); err != nil {
		return here, fmt.Errorf("read attributes: %w", err)
	}
	if !here.opaque {
		if here.low, err = lowOf(d, at, name); err != nil {
			return here, fmt.Errorf("read attributes: %w", err)
		}
	}
	here.moved = at.moved || here.low != here.rel
	return here, nil
}

// lowOf returns the directory of the base that shows through the directory name of a place,
// which d is, unless it is opaque; "": none.
func lowOf(d *os.File, at place, name string) (string, error) {
	to, err := redirect(d)
	switch {
	case err != nil:
		return "", err
	case strings.HasPrefix(to, "/"):
		return to[1:], nil
	case at.low == "":
		return "", nil
	case to != "":
		name = to
	}
	return joinPath(at.low, name), nil
}

// maxRedirect bounds a redirect's bytes: the kernel makes none longer than 256 unless it was told to.
const maxRedirect = maxPath

// redirect returns where a directory of an upper layer says that what lies below it is: a name
// beside its own, or a path from the top with a slash before it; "" for one that was not renamed.
// The kernel takes no other.
func redirect(d *os.File) (string, error) {
	n, err := unix.Fgetxattr(int(d.Fd()), xattrRedirect, nil)
	switch {
	case err != nil && noAttribute(err):
		return "", nil
	case err != nil:
		return "", err
	}
	b := make([]byte, min(n, maxRedirect)+1)
	if n, err = unix.Fgetxattr(int(d.Fd()), xattrRedirect, b); err != nil {
		return "", err
	}
	to := string(b[:n])
	rel := strings.TrimPrefix(to, "/")
	if err := checkPath(rel); err != nil || rel == to && strings.Contains(to, "/") {
		return "", fmt.Errorf("a redirect that no overlay makes: %s", term.Escape(to))
	}
	return to, nil
}

// names lists a place, sorted by their bytes.
func (at place) names() ([]string, error) {
	var all []string
	for _, d := range []*os.File{at.upper, at.lower} {
		if d == nil {
			continue
		}
		names, err := listDir(d)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
	}
	if at.upper != nil && at.lower != nil {
		slices.Sort(all)
		all = slices.Compact(all)
	}
	return all, nil
}

// openLower opens the directory low of the base, which shows through the entry name of a
// place; nil: there is none.
func (p *producer) openLower(at place, name, low string) (*os.File, error) {
	dir, rel := at.lower, name
	if dir == nil || low != joinPath(at.low, name) {
		var err error
		if dir, err = p.lower.root(); err != nil {
			return nil, err
		}
		rel = low
	}
	d, err := p.openHere(dir, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil && gone(err) {
		return nil, nil
	}
	return d, err
}

// openHere opens what is beneath a directory of the base, on its own mount and by no link.
func (p *producer) openHere(dir *os.File, rel string, flags int) (*os.File, error) {
	fd := -1
	err := p.lower.do(func() (err error) {
		fd, err = beneath.OpenHere(int(dir.Fd()), rel, flags|unix.O_NOFOLLOW)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}

// detailMount is what a Special is that another file system is mounted on, on the host.
const detailMount = "mount of another file system"

// unshown writes that what was renamed can't be read, where that is what err says.
func (p *producer) unshown(err error, rel string, mtime time.Time) error {
	c := Change{Path: rel, Kind: Special, ModTime: mtime}
	if _, ours := errors.AsType[*sandbox.Error](err); ours {
		return err
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		c.Detail = detailUnreadable
	case errors.Is(err, unix.EXDEV):
		c.Detail = detailMount
	default:
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	return p.write(&c, nil)
}

// shadows reports whether the base has a file where one was written over it in a renamed directory.
func (p *producer) shadows(at place, name string) bool {
	if at.lower == nil {
		return false
	}
	st, err := p.statLower(at, name)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

func (p *producer) statLower(at place, name string) (st unix.Stat_t, err error) {
	err = p.lower.do(func() (err error) {
		st, err = statAt(at.lower, name)
		return err
	})
	return st, err
}

// lowerEntry writes what the base has by a name in a renamed directory, where nothing was written.
func (p *producer) lowerEntry(at place, name, rel string) error {
	st, err := p.statLower(at, name)
	if err != nil {
		if gone(err) {
			return nil
		}
		return p.unshown(err, rel, time.Time{})
	}
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	defer p.enter(rel, dir)()
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0: // an overlay shows none
		return nil
	case !dir:
		err = p.entry(node{dir: at.lower, name: name, lower: true, known: true}, rel, &st, false)
	case tooDeep(rel, at.depth+1):
		return p.write(&Change{Path: rel, Kind: Special, Detail: "too deep", ModTime: statTime(st.Mtim)}, nil)
	default:
		return p.lowerSubdir(at, name, rel)
	}
	if err != nil {
		return p.unshown(err, rel, statTime(st.Mtim))
	}
	return nil
}

func (p *producer) lowerSubdir(at place, name, rel string) error {
	here := place{rel: rel, depth: at.depth + 1, low: joinPath(at.low, name), moved: true, hidden: at.hidden}
	var err error
	if here.lower, err = p.openLower(at, name, here.low); err != nil {
		return p.unshown(err, rel, time.Time{})
	}
	if here.lower == nil {
		return nil
	}
	defer here.lower.Close()
	st, err := statFile(here.lower)
	if err != nil {
		return fmt.Errorf("stat %s: %w", term.Escape(rel), err)
	}
	c := Change{Path: rel, Kind: Dir, Mode: st.Mode & 0o7777, ModTime: statTime(st.Mtim)}
	if p.origins {
		c.Origin, c.Shown = identify(here.lower, ""), p.mark != ""
	}
	if err := p.write(&c, nil); err != nil {
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	return p.overlayDir(here)
}
