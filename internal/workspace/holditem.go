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
	case it.Was != File || it.Held != "" || c.base.readable(it.Path):
	case it.Kind != Deleted:
		it.Held = reasonUnread
	case c.renamedUnread():
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
		if kind, _ := kindOf(st); (kind == File || kind == Dir) && !c.base.readable(rel) {
			it.Held = fmt.Sprintf("%s is in it: %s", term.Escape(rel), reasonUnread)
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
		it.Held = fmt.Sprintf("what is ignored or excluded in it would go with it: %d of %s", left, entriesText(it.Removes))
	}
	it.tree = sum.sum()
	return nil
}

// detailUnreadable is what a Special is that was renamed in the view, with a content that is nobody's
// there to read.
const detailUnreadable = "file or directory that its directory's owner may not read"

// Why files of the base stay that their directory's owner, or this process, may not read. A view
// that is a copy does not have them, and nothing tells what a view has of one that was renamed.
const (
	reasonUnread = "you may not read what is there now, and it would be lost"
	reasonLost   = "you may not read it, and a file of that kind was renamed: it could be lost"
)

// renamedUnread reports whether the stream has something that its directory's owner may not read.
func (c *comparer) renamedUnread() bool {
	if c.unread == nil {
		unread := slices.ContainsFunc(c.set.entries, func(e entry) bool { return e.Kind == Special && e.Detail == detailUnreadable })
		c.unread = &unread
	}
	return *c.unread
}

// readable reports whether the base's owner, and this process, may read a file in it, or list a directory
// and open what is in that.
func (b *Base) readable(rel string) bool {
	d, name, err := b.in(rel)
	if err != nil {
		return false
	}
	st, err := statAt(d, name)
	if err != nil {
		return false
	}
	want := uint32(unix.R_OK)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		want |= unix.X_OK
	}
	if unix.Faccessat(int(d.Fd()), name, want, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	return b.ownerMay(&st, func() bool {
		_, err := unix.Lgetxattr(fdPath(d)+"/"+name, rights.ACL, nil)
		return !noAttribute(err)
	})
}

// ownerMay is readable for the base's owner alone.
func (b *Base) ownerMay(st *unix.Stat_t, acl func() bool) bool {
	top, err := statFile(b.dir)
	if err != nil {
		return false
	}
	owner := &rights.Reader{UID: top.Uid, GID: top.Gid}
	if top.Uid == 0 {
		owner = nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return owner.MayList(st.Uid, st.Gid, st.Mode, acl)
	}
	return owner.May(st.Uid, st.Gid, st.Mode, acl)
}
