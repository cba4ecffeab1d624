package workspace

import (
	"time"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// An overlay that renames directories marks each one that is made in it as opaque, although that hides nothing
// which was there. What the host's user puts into the base's directory of that name is no deletion of the
// sandbox's then: it never had it.

// additions tells what the host's user has added to directories that the workspace hides.
type additions struct {
	base  *Base
	since time.Time
	known map[string]Mark // what an apply or a sync left, by path, and the directories around what a sync did
}

func newAdditions(base *Base, since time.Time, o CompareOptions) *additions {
	a := &additions{base: base, since: since, known: make(map[string]Mark, len(o.Applied)+len(o.Brought))}
	for _, b := range o.Brought {
		if b.Kind == Deleted {
			continue // what the base has there is new
		}
		a.known[b.Path] = b.Mark
		for p, _ := splitPath(b.Path); p != "."; p, _ = splitPath(p) {
			if _, ok := a.known[p]; ok {
				break
			}
			a.known[p] = Mark{}
		}
	}
	for _, m := range o.Applied {
		a.known[m.Path] = m
	}
	return a
}

// takes reports whether what is new in the base's directory at the path of an opaque one is an addition: that
// directory was made after the workspace, or put there by an apply. Any other was there, and was deleted in the
// sandbox.
func (a *additions) takes(dir string) bool {
	d, err := a.base.openDir(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	born := beneath.Born(d)
	if a.younger(born) {
		return true
	}
	m := a.known[dir]
	st, err := statFile(d)
	return m.Made && err == nil && m.same(Mark{Dev: st.Dev, Ino: st.Ino, Born: born})
}

// younger reports whether a time, 0 if unknown, is after the workspace was made.
func (a *additions) younger(ns int64) bool { return ns > a.since.UnixNano() }

// is reports whether what the base has at a path in such a directory is an addition, with all that is in it.
func (a *additions) is(rel string) bool {
	if _, ok := a.known[rel]; ok {
		return false
	}
	st, err := a.base.stat(rel)
	return err == nil && st != nil && a.younger(st.Ctim.Nano())
}

// unmade adds deletions of what applies made, and a workspace in which nothing of the base shows has no more.
func (c *comparer) unmade(applied []Mark) error {
	gone := map[string]bool{}
	last := LastMarks(applied)
	sortMarks(last) // a directory before what is in it
	for _, m := range last {
		p := m.Path
		if !m.Made || !c.sel.has(p) || c.set.find(p) != nil || c.goes(p, gone) {
			continue
		}
		if now, err := c.base.Stamp(p); err != nil || !m.same(now) {
			continue // the host's user did that, or put another there
		}
		gone[p] = true
		if err := c.implied([]string{p}); err != nil {
			return err
		}
	}
	return nil
}

// goes reports whether a path is in something that goes, or is no directory any more.
func (c *comparer) goes(rel string, gone map[string]bool) bool {
	for p, _ := splitPath(rel); p != "."; p, _ = splitPath(p) {
		if e := c.set.find(p); gone[p] || e != nil && e.Kind != Dir {
			return true
		}
	}
	return false
}
