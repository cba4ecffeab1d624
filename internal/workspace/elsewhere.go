package workspace

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// What the base loses at one path may be at another in the workspace, which a rename leaves as two changes.
// While what is there is not taken, for it is held back, left out, or not named, the base keeps what it has.

// elsewhere is a place of the workspace at which something of the base is by now.
type elsewhere struct {
	from  string // in the base
	to    string // in the workspace
	aside bool   // to is not in the stream
}

// finder finds where in a workspace things of the base are.
type finder struct {
	origins map[Origin][]elsewhere // by what it began as
	selves  map[Origin][]elsewhere // by what it is in the workspace
	applied map[inode][]Mark       // of files that an apply wrote, where what they were is known
	dirs    map[Origin]string      // directories in which nothing of the base shows, by what they began as
	shown   map[Origin]string      // directories that a running sandbox has open, by what they began as
	sized   map[int64][]elsewhere  // files of unknown origin that are held back, by their size
}

func newFinder(set *Set, applied []Mark) *finder {
	f := &finder{
		origins: map[Origin][]elsewhere{}, selves: map[Origin][]elsewhere{}, applied: map[inode][]Mark{},
		dirs: map[Origin]string{}, shown: map[Origin]string{}, sized: map[int64][]elsewhere{},
	}
	for i := range set.entries {
		e := &set.entries[i]
		if e.Kind != Dir {
			f.add(e.Origin, e.Self, elsewhere{to: e.Path})
			continue
		}
		if e.Shown && !e.Origin.IsZero() {
			f.shown[e.Origin] = e.Path
		}
		if e.Opaque && !e.Origin.IsZero() {
			f.dirs[e.Origin] = e.Path
		}
	}
	for _, one := range set.aside {
		if !one.shown {
			f.add(one.origin, one.self, elsewhere{to: one.path, aside: true})
		} else if !one.origin.IsZero() {
			f.shown[one.origin] = one.path
		}
	}
	for _, m := range applied {
		if !m.Self.IsZero() {
			id := inode{m.Dev, m.Ino}
			f.applied[id] = append(f.applied[id], m)
		}
	}
	return f
}

func (f *finder) add(origin, self Origin, one elsewhere) {
	if !origin.IsZero() {
		f.origins[origin] = append(f.origins[origin], one)
	}
	if !self.IsZero() {
		f.selves[self] = append(f.selves[self], one)
	}
}

// find returns where something of the base is in the workspace. born is asked for when that was made.
func (f *finder) find(origin Origin, st *unix.Stat_t, born func() int64) []elsewhere {
	var found []elsewhere
	if !origin.IsZero() {
		found = append(found, f.origins[origin]...)
	}
	for _, m := range slices.Backward(f.applied[inode{st.Dev, st.Ino}]) {
		if m.same(Mark{Dev: st.Dev, Ino: st.Ino, Born: born()}) {
			return append(found, f.selves[m.Self]...)
		}
	}
	return found
}

// heldBack adds files of unknown origin that are held back: a file of the base of the same content may be one.
func (f *finder) heldBack(items []Item) {
	if len(f.origins)+len(f.selves) == 0 {
		return // the stream was not asked, or is of a copy
	}
	for i := range items {
		if it := &items[i]; it.Held != "" && it.Kind == File && it.Size > 0 && it.Origin.IsZero() {
			f.sized[it.Size] = append(f.sized[it.Size], elsewhere{to: it.Path})
		}
	}
}

// whereIs returns where a file or link of the base is; nothing where it is at its own path, or nowhere.
func (c *comparer) whereIs(rel string, st *unix.Stat_t) []elsewhere {
	dir, name, err := c.base.in(rel)
	if err != nil {
		return nil
	}
	origin := identify(dir, name)
	found := c.find.find(origin, st, func() int64 { return beneath.BornAt(dir, name) })
	if len(found) == 0 && st.Mode&unix.S_IFMT == unix.S_IFREG && (st.Nlink > 1 || origin.IsZero()) {
		found = c.sameContent(rel, st.Size) // of these the kernel notes nothing
	}
	for i := range found {
		if found[i].from = rel; found[i].to == rel {
			return nil
		}
	}
	return found
}

// sameContent returns the files held back that have the content of a file of the base.
func (c *comparer) sameContent(rel string, size int64) (found []elsewhere) {
	like := c.find.sized[size]
	if len(like) == 0 {
		return nil
	}
	sum, err := c.base.digest(c.ctx, rel, c.dig, c.buf)
	if err != nil {
		return nil
	}
	for _, one := range like {
		if e := c.set.find(one.to); e != nil && e.Digest == sum {
			found = append(found, one)
		}
	}
	return found
}

// findElsewhere says of each item where what the base loses by it is, and holds it back while that is not taken.
func (c *comparer) findElsewhere() error {
	c.find.heldBack(c.items)
	if len(c.find.origins)+len(c.find.selves)+len(c.find.dirs)+len(c.find.shown)+len(c.find.sized) == 0 {
		return nil
	}
	for i := range c.items {
		if err := c.losses(&c.items[i]); err != nil {
			return err
		}
	}
	holdMoved(c.items, func(it *Item) bool { return it.Held == "" })
	return nil
}

// losses notes where what an item takes from the base is.
func (c *comparer) losses(it *Item) error {
	switch {
	case it.blocked != "" || it.Class == ModeChanged:
		return nil
	case it.Class == Added:
		c.strays(it)
		return nil
	case it.Was != Dir:
		st, err := c.base.stat(it.Path)
		if err != nil || st == nil {
			return nil
		}
		it.elsewhere = c.whereIs(it.Path, st)
	case it.Kind != Dir:
		return c.treeLosses(it)
	}
	it.elsewhere = slices.DeleteFunc(it.elsewhere, c.there)
	return nil
}

// strays notes that what an item adds would show in the running sandbox, in a directory that is at another path
// there and that has the base's open.
func (c *comparer) strays(it *Item) {
	if len(c.find.shown) == 0 {
		return
	}
	dir, _, err := c.base.in(it.Path)
	if err != nil {
		return // it is not there yet, and will be a new one
	}
	parent, _ := splitPath(it.Path)
	if to := c.find.shown[identify(dir, "")]; to != "" && to != parent {
		it.onlyShown, it.shownAs = true, to
	}
}

// treeLosses notes where what is in a directory of the base is that would go.
func (c *comparer) treeLosses(it *Item) error {
	all := 0
	look := func(rel string, st *unix.Stat_t) error {
		all++
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			it.elsewhere = append(it.elsewhere, c.whereIs(rel, st)...)
			return nil
		}
		dir, name, err := c.base.in(rel)
		if err != nil {
			return nil // it is not removed either
		}
		origin := identify(dir, name)
		if to := c.find.dirs[origin]; to != "" && to != rel {
			it.moves = append(it.moves, move{rel, to})
		}
		if to := c.find.shown[origin]; to != "" && to != rel {
			it.shown = append(it.shown, rel)
			it.shownAs = to
		}
		return nil
	}
	st, err := c.base.stat(it.Path)
	if err == nil && st != nil {
		_ = look(it.Path, st)
		err = c.base.walk(c.ctx, it.Path, look)
	}
	if err != nil {
		it.blocked = reasonFor(err)
	}
	it.elsewhere = slices.DeleteFunc(it.elsewhere, c.there)
	if len(it.shown) == 0 {
		return nil
	}
	it.onlyShown = it.Kind != Deleted || len(keptDirs(it)) == all
	return nil
}

// keptDirs are the directories of an item's tree that stay: those that are shown, and those that lead to them.
func keptDirs(it *Item) map[string]bool {
	kept := map[string]bool{}
	for _, p := range it.shown {
		for kept[p] = true; p != it.Path; kept[p] = true {
			p, _ = splitPath(p)
		}
	}
	return kept
}

// there reports whether the base has at the other path, which is not in the stream, what it would lose: that
// was taken before.
func (c *comparer) there(one elsewhere) bool {
	if !one.aside {
		return false
	}
	was, err := c.base.stat(one.from)
	is, ierr := c.base.stat(one.to)
	if err != nil || ierr != nil || was == nil || is == nil || was.Mode&unix.S_IFMT != is.Mode&unix.S_IFMT || was.Size != is.Size {
		return false
	}
	if was.Mode&unix.S_IFMT == unix.S_IFLNK {
		a, err := c.base.readlink(one.from)
		b, berr := c.base.readlink(one.to)
		return err == nil && berr == nil && a == b
	}
	a, err := c.base.digest(c.ctx, one.from, c.dig, c.buf)
	b, berr := c.base.digest(c.ctx, one.to, c.dig, c.buf)
	return err == nil && berr == nil && a == b
}
