package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/text/term"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// hold sets it.Held, and counts what a deletion would take. What this process may not change is held
// back too, and can't be had by its name either.
func (c *comparer) hold(it *Item) error {
	err := c.holdForWhat(it)
	if it.blocked == "" {
		it.blocked = c.base.unwritable(it)
		it.unchangeable = it.blocked != ""
	}
	if it.Held == "" && it.unchangeable {
		it.Held = it.blocked
	}
	return err
}

// holdForWhat holds a change back for what it is, and for what it would take.
func (c *comparer) holdForWhat(it *Item) error {
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
		if dir, _ := splitPath(rel); it.blocked == "" && errors.Is(c.base.mayWriteIn(dir), os.ErrPermission) {
			it.blocked, it.unchangeable = noWriting(dir), true
		}
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
		if it.blocked = reasonFor(err); it.blocked == reasonUnreadable {
			it.blocked, it.unchangeable = "you may not read all of it", true
		}
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

// unwritable is why this process may not do to the base what an item says; "": nothing is known. What is
// to be in the base itself is not looked at: who may not write there is told of that as a whole.
func (b *Base) unwritable(it *Item) string {
	if it.Class == ModeChanged {
		st, err := b.stat(it.Path)
		if err == nil && st != nil && os.Geteuid() != 0 && st.Uid != uint32(os.Geteuid()) { //nolint:gosec // a uid has 32 bits
			return "it is another's, whose mode is not yours to change"
		}
		return ""
	}
	for dir, _ := splitPath(it.Path); dir != "."; dir, _ = splitPath(dir) {
		switch err := b.mayWriteIn(dir); {
		case err == nil: // what is above is not changed
			return ""
		case errors.Is(err, os.ErrPermission):
			return noWriting(dir)
		}
	}
	return ""
}

// mayWriteIn is os.ErrPermission where this process may not make, replace or remove what is in a directory.
func (b *Base) mayWriteIn(dir string) error {
	d, _, err := b.in(joinPath(dir, "."))
	if err != nil {
		return err
	}
	return unix.Faccessat(int(d.Fd()), ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

func noWriting(dir string) string { return "you may not write in " + term.Escape(dir) }

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
