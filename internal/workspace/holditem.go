package workspace

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/text/term"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// hold sets it.Held, and counts what a deletion would take.
func (c *comparer) hold(it *Item) error {
	switch {
	case weak.On(weak.HoldsOff) && it.Kind != Special:
	case it.Kind == Special:
		it.Held = "a " + term.Escape(it.Detail) + " is never applied"
	case hasTempName(it.Path):
		it.Held = "the name is reserved for carboy's own files"
	case HeldByName(it.Path) != "":
		it.Held = HeldByName(it.Path)
	case c.bare.around(it.Path, it.Kind == Dir || it.Was == Dir):
		it.Held = reasonBare
	case it.Kind == Symlink:
		if it.Held = linkReason(it.Path, it.Target); it.Held == "" {
			it.Held = c.throughLinks(it.Path, it.Target)
		}
	case it.entry.drivers:
		it.Held, it.heldForText = reasonDrivers, true
	}
	switch {
	case it.Was == Dir && it.Kind != Dir && it.blocked == "":
		return c.holdTree(it)
	case it.Was == File && it.Held == "" && c.lost(it.Path):
		it.Held = reasonLost
	}
	return nil
}

// holdTree looks through a directory of the base that would be removed.
func (c *comparer) holdTree(it *Item) error {
	sum := newTreeSum()
	left := 0
	err := c.base.walk(c.ctx, it.Path, func(rel string, st *unix.Stat_t) error {
		it.Removes++
		if out, _ := c.filter.leaves(rel, st.Mode&unix.S_IFMT == unix.S_IFDIR); out && !c.filter.names(it.Path) {
			left++
		}
		sum.add(rel, newStamp(st))
		if it.Held != "" {
			return nil
		}
		if kind, _ := kindOf(st); (kind == File || kind == Dir) && c.lost(rel) {
			it.Held = fmt.Sprintf("%s is in it: %s", term.Escape(rel), reasonLost)
		} else if reason := HeldByName(rel); reason == reasonGit || reason == reasonVCS {
			it.Held = fmt.Sprintf("%s is in it: %s", term.Escape(rel), reason)
		} else if st.Mode&unix.S_IFMT == unix.S_IFDIR && c.bare.is(rel) {
			it.Held = fmt.Sprintf("%s is in it, a git repository", term.Escape(rel))
		}
		return nil
	})
	if err != nil {
		if cause := context.Cause(c.ctx); cause != nil {
			return cause
		}
		it.blocked = reasonFor(err)
	}
	if left > 0 && it.Held == "" {
		it.Held = fmt.Sprintf("%d of the %d entries in it are ignored or excluded, and would go with it", left, it.Removes)
	}
	it.tree = sum.sum()
	return nil
}

// detailUnreadable is what a Special is that was renamed in the view, with a content that is nobody's
// there to read.
const detailUnreadable = "file or directory that its directory's owner may not read"

// reasonLost is why a file of the base stays, where one of its kind was renamed.
const reasonLost = "only others may read it, and a file of that kind was renamed: it could be lost"

// lost reports whether a file or directory of the base may be one that was renamed and that is not in the stream, for
// the directory's owner may not read it.
func (c *comparer) lost(rel string) bool {
	if c.unread == nil {
		unread := slices.ContainsFunc(c.set.entries, func(e entry) bool { return e.Kind == Special && e.Detail == detailUnreadable })
		c.unread = &unread
	}
	return *c.unread && !c.base.ownerReads(rel)
}

// ownerReads reports whether the base's owner may read a file in it, or all that is in a directory.
func (b *Base) ownerReads(rel string) bool {
	top, err := statFile(b.dir)
	if err != nil {
		return false
	}
	st, err := b.stat(rel)
	if err != nil || st == nil {
		return false
	}
	owner := &rights.Reader{UID: top.Uid, GID: top.Gid}
	may := owner.May
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		may = owner.MayList
	}
	return top.Uid == 0 || may(st.Uid, st.Gid, st.Mode, b.hasACL(rel))
}

// hasACL reports whether a file of the base has an access control list, or may have one.
func (b *Base) hasACL(rel string) bool {
	d, name, err := b.in(rel)
	if err != nil {
		return true
	}
	_, err = unix.Lgetxattr(fdPath(d)+"/"+name, xattrACL, nil)
	return !noAttribute(err)
}
