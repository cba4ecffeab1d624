package workspace

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// A directory that is renamed on the host takes files along whose change times say nothing of that. Where it
// took the place of one that the workspace knows, they would pass for what was there before.

// replacedAround returns a directory around a path of the base that is not the one which the workspace has
// there, or "".
func (a *applier) replacedAround(rel string) string {
	hidden := false // nothing of the base shows in it
	for i := range len(rel) {
		if rel[i] != '/' {
			continue
		}
		dir := rel[:i]
		e := a.set.find(dir)
		if e == nil || e.Kind != Dir { // it goes with one that is there, as a whole
			return ""
		}
		hidden = hidden || e.Opaque
		if a.replaced(dir, e, hidden) {
			return dir
		}
	}
	return ""
}

// replaced reports whether the base's directory at a path is known to be another than the one that the
// workspace began with, or than the one that an apply made.
func (a *applier) replaced(dir string, e *entry, hidden bool) bool {
	if known, ok := a.dirs[dir]; ok {
		return known
	}
	is := a.isReplaced(dir, e, hidden)
	a.dirs[dir] = is
	return is
}

func (a *applier) isReplaced(dir string, e *entry, hidden bool) bool {
	st, err := a.base.stat(dir)
	if err != nil || st == nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false // there is nothing in it to lose
	}
	if slices.ContainsFunc(a.marks[a.wasAt(dir)], func(m Mark) bool { return m.Dev == st.Dev && m.Ino == st.Ino }) {
		return false
	}
	if a.made[dir] || hidden && a.ctime(newStamp(st)) < a.limit.UnixNano() {
		return false // what the workspace has there took its place, and it was not touched since
	}
	d, err := a.base.openDir(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	if is := identify(d, ""); !is.IsZero() && !e.Origin.IsZero() {
		return is != e.Origin
	}
	return hidden && beneath.Born(d) <= a.limit.UnixNano() // a younger one was never renamed over another with what is in it
}
