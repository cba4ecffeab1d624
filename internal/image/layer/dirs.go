package layer

import (
	"archive/tar"
	"fmt"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// dirMeta is what a directory gets at the end.
type dirMeta struct {
	uid, gid int
	mode     uint32
	mod      time.Time // zero: as it is
	listed   bool      // the layer lists it
}

// implied is what a directory gets that the layer does not list.
var implied = dirMeta{mode: 0o755}

// metaOf is what a directory of the layers below has.
func metaOf(st *unix.Stat_t) dirMeta {
	return dirMeta{uid: int(st.Uid), gid: int(st.Gid), mode: st.Mode & 0o1777, mod: time.Unix(st.Mtim.Unix())}
}

// parent returns the open directory that rel is in, rel's name there, and where that is, no part
// of which is a link.
func (u *unpacker) parent(rel string) (dir int, name, at string, err error) {
	above, name := split(rel)
	dir, above, err = u.dir(above)
	return dir, name, path.Join(above, name), err
}

// dir opens the directory that rel leads to, and makes it where the layer implies it. It returns
// where that is, too.
func (u *unpacker) dir(rel string) (fd int, at string, err error) {
	fd, err = u.tree.open(rel)
	if err == nil || !is(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP) {
		return fd, rel, err
	}
	if u.last.rel == rel {
		fd, err = u.tree.open(u.last.at)
		return fd, u.last.at, err
	}
	w, err := u.walk(rel)
	if err != nil {
		return -1, "", err
	}
	if fd, err = u.make(w); err == nil {
		u.lead(rel, w.end().rel)
	}
	return fd, w.end().rel, err
}

// later keeps what the directory rel gets at the end.
func (u *unpacker) later(rel string, m dirMeta) error {
	if _, known := u.dirs[rel]; !known {
		if err := u.remember(rel); err != nil {
			return err
		}
	}
	u.dirs[rel] = m
	return nil
}

// remember counts a name that waits in memory until the end.
func (u *unpacker) remember(rel string) error {
	if u.names += len(rel); u.names > maxNames {
		return refuse("the names of the layer's directories and whiteouts take more than %d bytes", maxNames)
	}
	return nil
}

// finishDir gives a directory what waited.
func (u *unpacker) finishDir(dir int, name string, m dirMeta) error {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer unix.Close(fd)
	if u.owners {
		if err := unix.Fchown(fd, m.uid, m.gid); err != nil {
			return ownerError(err, m.uid, m.gid)
		}
	}
	if err := unix.Fchmod(fd, m.mode); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	if m.mod.IsZero() {
		return nil
	}
	return setTime(dir, name, m.mod)
}

// replaceByDir makes a directory in place of what is no directory. What the
// layers below have under its name is gone: it is opaque.
func (u *unpacker) replaceByDir(dir int, name, rel string) error {
	if err := unix.Unlinkat(dir, name, 0); err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	if err := unix.Mkdirat(dir, name, newDir); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return u.setOpaque(dir, name, rel)
}

func (u *unpacker) mkdir(rel string, h *tar.Header, attrs map[string]string) error {
	dir, name, at, err := u.parent(rel)
	if err != nil {
		return err
	}
	if rel != "." {
		if err := u.makeDir(dir, name, at); err != nil {
			return err
		}
	}
	if len(attrs) > 0 {
		fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer unix.Close(fd)
		if err := u.setXattrs(fd, h, attrs); err != nil {
			return err
		}
	}
	return u.later(at, dirMeta{h.Uid, h.Gid, uint32(h.Mode) & 0o1777, h.ModTime, true})
}

// makeDir makes the directory rel, or leaves the one that is there.
func (u *unpacker) makeDir(dir int, name, rel string) error {
	u.changed(rel)
	switch err := unix.Mkdirat(dir, name, newDir); {
	case err == nil:
		return nil
	case err != unix.EEXIST:
		return fmt.Errorf("make directory: %w", err)
	}
	st, err := lstat(dir, name)
	if err != nil || kind(&st) == unix.S_IFDIR {
		return err
	}
	return u.replaceByDir(dir, name, rel)
}

// opaque hides what the layers below have in the directory that rel leads to.
func (u *unpacker) opaque(rel string) error {
	dir, at, err := u.dir(rel)
	if err != nil {
		return err
	}
	return u.setOpaque(dir, ".", at)
}

// whiteout hides what the layers below have as rel. Where they have nothing there is none to
// make: overlayfs would list it in a directory that is this layer's alone.
func (u *unpacker) whiteout(rel string) error {
	dir, name, at, err := u.parent(rel)
	if err != nil {
		return err
	}
	st, err := lstat(dir, name)
	switch {
	case err == nil && kind(&st) == unix.S_IFDIR:
		return u.setOpaque(dir, name, at)
	case err == nil: // what is there hides what is below
		return nil
	case !is(err, unix.ENOENT):
		return fmt.Errorf("look at what a whiteout hides: %w", err)
	}
	f, err := u.shown(at)
	if err != nil || f.st.Mode == 0 {
		return err
	}
	return u.makeWhiteout(dir, name, at)
}

func (u *unpacker) makeWhiteout(dir int, name, at string) error {
	u.changed(at)
	err := unix.Mknodat(dir, name, unix.S_IFCHR, 0)
	switch {
	case is(err, unix.EPERM):
		return unsupported(err, "use Linux 5.8 or newer, or root", "layer: make a whiteout of %s: %v", quote(at), err)
	case err != nil:
		return err
	}
	if u.whiteouts[at] {
		return nil
	}
	u.whiteouts[at] = true
	return u.remember(at)
}

// leaveOut does what is left of an entry that is not made: what had its name is gone.
func (u *unpacker) leaveOut(rel string) error {
	above, name := split(rel)
	w, err := u.walk(above)
	if err != nil {
		return err
	}
	at := path.Join(w.end().rel, name)
	f, err := u.below.look(w.end().below.trees, at)
	if err != nil {
		return err
	}
	if f.st.Mode == 0 && !w.end().mine {
		return nil
	}
	return u.create(rel, func(dir int, name string) error {
		if f.st.Mode != 0 {
			return u.makeWhiteout(dir, name, at)
		}
		_, err := lstat(dir, name)
		switch {
		case err == nil:
			return unix.EEXIST
		case is(err, unix.ENOENT):
			return nil
		}
		return err
	})
}

// dropWhiteouts takes away those in directories that turned out to hide all that is below them.
func (u *unpacker) dropWhiteouts() error {
	for at := range u.whiteouts {
		if !u.hidden(at) {
			continue
		}
		dir, name := split(at)
		fd, err := u.tree.open(dir)
		if err == nil {
			var st unix.Stat_t
			if st, err = lstat(fd, name); err == nil && isWhiteout(&st) {
				err = unix.Unlinkat(fd, name, 0)
			}
		}
		if err == nil {
			err = u.dropEmpty(dir)
		}
		if err != nil && !is(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP) { // it has given way since
			return inEntry(at, fmt.Errorf("take a whiteout away: %w", err))
		}
	}
	return nil
}

// dropEmpty takes away directories that are there for the sake of whiteouts alone, which hide nothing.
func (u *unpacker) dropEmpty(at string) error {
	for u.hidden(at) && !u.dirs[at].listed && !u.hiding[at] {
		dir, name := split(at)
		fd, err := u.tree.open(dir)
		if err == nil {
			err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		}
		if is(err, unix.ENOTEMPTY, unix.EEXIST) {
			return nil
		}
		if err != nil {
			return err
		}
		u.tree.forget(at)
		delete(u.dirs, at)
		at = dir
	}
	return nil
}

// hidden reports whether at is in a directory that is opaque, or below one.
func (u *unpacker) hidden(at string) bool {
	for len(u.hiding) > 0 && at != "." {
		if at = path.Dir(at); u.hiding[at] {
			return true
		}
	}
	return false
}
