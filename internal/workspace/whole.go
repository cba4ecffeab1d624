package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// A directory that was renamed in a view shows one of the base through it. An apply deletes that: so
// each is made whole before, which is that all it shows lies in the upper layer, and nothing shows through.

// Whole makes the renamed directories of a view whole.
type Whole struct {
	View  *os.File // the view: the overlay that is mounted of Upper and Base, and no other
	Upper *os.File // as OverlayUpper has it
	Base  *Below   // read with this process's rights
	// Seal says that nothing else changes the view meanwhile: what is whole then is closed to the base.
	// Without it files are copied, and no more.
	Seal bool
	// Mark, if set, names what has the view mounted: where that goes on, it shows closed directories by what
	// it knew of them until it ends.
	Mark string
}

// ErrLoose says that a renamed directory is not whole.
var ErrLoose = sandbox.ErrLoose

// Make makes them whole. It is done step by step, and each can be the last: what was done is not undone, and
// the next call goes on. Where the sandbox's disk has no room for all of it, nothing is done and the error
// is Exhausted. A directory that shows one which the base has no more, or another in its place, stays as it is.
func (w Whole) Make(ctx context.Context) error {
	if !w.Seal {
		if err := w.measure(ctx); err != nil {
			return err
		}
	}
	m := w.walk(ctx)
	defer m.lower.close()
	if err := m.top(); err != nil {
		return fmt.Errorf("make renamed directories whole: %w", err)
	}
	if m.sealed > 0 { // before the base loses what was copied
		if err := unix.Syncfs(int(w.Upper.Fd())); err != nil {
			return fmt.Errorf("write out what was made whole: %w", err)
		}
	}
	return nil
}

func (w Whole) walk(ctx context.Context) *wholeWalk {
	low := *w.Base
	low.As = nil
	return &wholeWalk{Whole: w, producer: &producer{ctx: ctx, lower: &opener{Below: &low}}}
}

// wholeWalk walks the directories of an upper layer.
type wholeWalk struct {
	Whole
	*producer
	need   *room // adds up what would be copied, and nothing is; nil: it is copied
	sealed int   // directories
}

func (m *wholeWalk) top() error {
	d, err := openDirAt(m.Upper, ".")
	if err != nil {
		return fmt.Errorf("open upper directory: %w", err)
	}
	defer d.Close()
	return m.dir(place{rel: ".", upper: d, low: "."})
}

// dir looks for loose directories in one that is none itself.
func (m *wholeWalk) dir(at place) error {
	names, err := listDir(at.upper)
	if err != nil {
		return fmt.Errorf("list %s: %w", term.Escape(at.rel), err)
	}
	for _, name := range names {
		if err := context.Cause(m.ctx); err != nil {
			return err
		}
		if st, err := statAt(at.upper, name); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if err := m.subdir(at, name); err != nil {
			return err
		}
	}
	return nil
}

func (m *wholeWalk) subdir(at place, name string) error {
	rel := joinPath(at.rel, name)
	if at.depth >= MaxDepth { // no change can be so deep
		return nil
	}
	d, err := openDirAt(at.upper, name)
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("open %s: %w", term.Escape(rel), err)
	}
	defer d.Close()
	here, err := placeOf(at, name, d)
	if err == nil && here.moved && here.low != "" {
		err = m.showsLower(at, name, here, d)
	}
	switch {
	case errors.Is(err, ErrLoose):
		return m.loose(here)
	case err != nil:
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	return m.dir(here)
}

// showsLower returns ErrLoose for a place that shows a directory of the base which is the one that it showed
// when it was renamed.
func (m *wholeWalk) showsLower(at place, name string, here place, d *os.File) error {
	lower, err := m.openLower(at, name, here.low)
	switch {
	case errors.Is(err, unix.EXDEV): // what is mounted there on the host is not in the view
		return ErrLoose
	case err != nil || lower == nil:
		return err
	}
	defer lower.Close()
	if m.lower.replaced(here.low, d, lower) {
		return nil
	}
	return ErrLoose
}

// loose makes a directory whole that is not, the outermost of several.
func (m *wholeWalk) loose(at place) error {
	view, err := m.openView(at.rel)
	if err != nil {
		if gone(err) {
			return ErrLoose
		}
		return fmt.Errorf("open %s in the view: %w", term.Escape(at.rel), err)
	}
	defer view.Close()
	return m.make(at, view)
}

// openView opens a directory of the view. Those that lead to what is mounted in a running one are mounts of their own,
// of the view itself.
func (m *wholeWalk) openView(rel string) (*os.File, error) {
	fd, err := beneath.OpenNoLinks(int(m.View.Fd()), rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(fd), rel)
	top, err := statFile(m.View)
	if err == nil {
		var st unix.Stat_t
		if st, err = statFile(d); err == nil && st.Dev != top.Dev {
			err = unix.EXDEV
		}
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// make makes a directory whole: what is in it first.
func (m *wholeWalk) make(at place, view *os.File) error {
	names, err := listView(at, view)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := context.Cause(m.ctx); err != nil {
			return err
		}
		if err := m.entry(at, view, name); err != nil {
			return err
		}
	}
	if !m.Seal {
		return nil
	}
	again, err := listView(at, view)
	if err == nil && !slices.Equal(again, names) {
		err = ErrLoose // what came meanwhile may show the base's by where it was
	}
	if err != nil {
		return err
	}
	if err := m.seal(at.upper); err != nil {
		return noRoom("close "+term.Escape(at.rel)+" to the directory that it showed", err)
	}
	m.sealed++
	return nil
}

// listView lists a directory of the view. Where the base's directory that it shows was removed while the view was
// mounted, that can't be listed any more, and has only what is in the upper layer.
func listView(at place, view *os.File) ([]string, error) {
	_, err := view.Seek(0, io.SeekStart)
	if err != nil {
		return nil, err
	}
	names, err := view.Readdirnames(-1)
	switch {
	case err == nil:
		slices.Sort(names)
		return names, nil
	case errors.Is(err, unix.ESTALE):
		return nil, &sandbox.Error{
			Kind: sandbox.Unavailable, Err: err,
			Msg:  "apply: " + term.Escape(at.rel) + " was renamed in the sandbox, and it changed here so that the sandbox can't show it any more",
			Hint: "put the directory back that was renamed or removed here, or delete that one in the sandbox",
		}
	case !errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("list %s in the view: %w", term.Escape(at.rel), err)
	case at.upper == nil:
		return nil, nil
	}
	return listDir(at.upper)
}

// entry makes one entry of a directory lie in the upper layer, with all that is below it.
func (m *wholeWalk) entry(at place, view *os.File, name string) error {
	rel := joinPath(at.rel, name)
	st, err := statAt(view, name)
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	up := at.upper != nil && inUpper(at.upper, name, &st)
	switch {
	case !up && m.need != nil:
		m.need.add(&st)
	case !up:
		err = m.copyUp(at.upper, view, name, rel, &st)
	}
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	return m.entryDir(at, view, name, up)
}

// entryDir is entry for what is in a directory, which lies in the upper layer if up says so, or was copied there.
func (m *wholeWalk) entryDir(at place, view *os.File, name string, up bool) error {
	rel := joinPath(at.rel, name)
	sub, err := openBeneath(view, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return m.changed(rel, err)
	}
	defer sub.Close()
	here := place{rel: rel, depth: at.depth + 1, low: joinPath(at.low, name)}
	if up || m.need == nil {
		upper, err := openDirAt(at.upper, name)
		if err != nil {
			return m.changed(rel, err)
		}
		defer upper.Close()
		if here, err = placeOf(at, name, upper); err != nil {
			return fmt.Errorf("%s: %w", term.Escape(rel), err)
		}
	}
	if here.low == "" { // nothing shows through
		return m.dir(here)
	}
	if here.depth >= MaxDepth {
		return sandbox.Errorf(sandbox.Unsupported, "%s in the sandbox: more than %d directories deep", term.Escape(rel[:min(len(rel), 64)])+"…", MaxDepth).
			WithHint("move it up, or delete it there")
	}
	return m.make(here, sub)
}

// copyUp has the kernel copy what is in the base alone, by a change of its access time to what that is: one that
// somebody sets meanwhile to the other is not undone.
func (m *wholeWalk) copyUp(upper, view *os.File, name, rel string, st *unix.Stat_t) error {
	times := []unix.Timespec{st.Atim, {Nsec: unix.UTIME_OMIT}}
	err := retry(func() error {
		return unix.UtimesNanoAt(int(view.Fd()), name, times, unix.AT_SYMLINK_NOFOLLOW)
	})
	switch {
	case err == nil && !m.Seal, err != nil && gone(err) && !m.Seal:
		return nil
	case err == nil && inUpper(upper, name, st):
		return nil
	case err == nil || gone(err):
		return ErrLoose
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EOVERFLOW):
		return &sandbox.Error{
			Kind: sandbox.Unsupported, Err: err,
			Msg:  "apply: " + term.Escape(rel) + " is in a directory that was renamed, and can't be copied to the sandbox's disk: " + err.Error(),
			Hint: "delete it in the sandbox, or rename the directory back",
		}
	}
	return noRoom("copy "+term.Escape(rel)+" to the sandbox's disk", err)
}

// changed is the error of something that is not as it was a moment ago, unless that does not matter yet.
func (m *wholeWalk) changed(rel string, err error) error {
	switch {
	case !gone(err):
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	case m.Seal:
		return ErrLoose
	}
	return nil
}

// inUpper reports whether an upper layer has what its view shows by a name.
func inUpper(upper *os.File, name string, st *unix.Stat_t) bool {
	up, err := statAt(upper, name)
	return err == nil && up.Mode&unix.S_IFMT == st.Mode&unix.S_IFMT && (up.Mode&unix.S_IFMT != unix.S_IFCHR || up.Rdev != 0)
}

// seal closes a directory to the base. The kernel looks for that first: a redirect that is there as well, or
// that a mounted view sets again, leads nowhere.
func (m *wholeWalk) seal(d *os.File) error {
	if m.Mark != "" {
		if err := unix.Fsetxattr(int(d.Fd()), xattrWhole, []byte(m.Mark), 0); err != nil {
			return err
		}
	}
	if err := unix.Fsetxattr(int(d.Fd()), xattrOpaque, []byte("y"), 0); err != nil {
		return err
	}
	return removeAttribute(d, xattrRedirect)
}
