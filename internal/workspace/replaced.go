package workspace

import (
	"slices"

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
	d, err := a.base.openDir(dir)
	if err != nil {
		return false // it is no directory, or none that can be read
	}
	defer d.Close()
	st, err := statFile(d)
	if err != nil {
		return false
	}
	now := Mark{Dev: st.Dev, Ino: st.Ino, Born: beneath.Born(d)}
	if slices.ContainsFunc(a.marks[a.wasAt(dir)], now.same) {
		return false
	}
	if a.made[dir] || hidden && a.ctime(newStamp(&st)) < a.limit.UnixNano() {
		return false // what the workspace has there took its place, and it was not touched since
	}
	if is := identify(d, ""); !is.IsZero() && !e.Origin.IsZero() {
		return is != e.Origin
	}
	return hidden && now.Born <= a.limit.UnixNano() // a younger one was never renamed over another with what is in it
}
