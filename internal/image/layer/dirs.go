package layer

import (
	"archive/tar"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// dirMeta is what a directory gets at the end.
type dirMeta struct {
	uid, gid int
	mode     uint32
	mod      time.Time // zero: as it is
}

// implied is what a directory gets that the layer does not list.
var implied = dirMeta{mode: 0o755}

// parent returns the open directory that rel is in, and the last part of rel.
func (u *unpacker) parent(rel string) (int, string, error) {
	dir, base := split(rel)
	fd, err := u.dir(dir)
	return fd, base, err
}

// dir opens the directory rel, and makes it where the layer implies it.
func (u *unpacker) dir(rel string) (int, error) {
	fd, err := u.tree.open(rel)
	if err == nil || !is(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP) {
		return fd, err
	}
	above, name, err := u.parent(rel)
	if err != nil {
		return -1, err
	}
	st, err := lstat(above, name)
	switch {
	case is(err, unix.ENOENT):
		err = unix.Mkdirat(above, name, newDir)
	case err != nil:
	case isWhiteout(&st):
		err = u.replaceByDir(above, name, rel)
	case kind(&st) == unix.S_IFLNK:
		err = refuse("its parent %s is a symbolic link that the layer made", quote(rel))
	default:
		err = refuse("its parent %s is no directory", quote(rel))
	}
	if err == nil {
		err = u.count()
	}
	if err == nil {
		err = u.later(rel, implied)
	}
	if err != nil {
		return -1, err
	}
	return u.tree.open(rel)
}

// later keeps what the directory rel gets at the end.
func (u *unpacker) later(rel string, m dirMeta) error {
	if _, known := u.dirs[rel]; !known {
		if u.dirNames += len(rel); u.dirNames > maxDirNames {
			return refuse("the names of the layer's directories take more than %d bytes", maxDirNames)
		}
	}
	u.dirs[rel] = m
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
	dir, name, err := u.parent(rel)
	if err != nil {
		return err
	}
	if rel != "." {
		if err := u.makeDir(dir, name, rel); err != nil {
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
	return u.later(rel, dirMeta{h.Uid, h.Gid, uint32(h.Mode) & 0o1777, h.ModTime})
}

// makeDir makes the directory rel, or leaves the one that is there.
func (u *unpacker) makeDir(dir int, name, rel string) error {
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

// opaque hides what the layers below have in the directory rel.
func (u *unpacker) opaque(rel string) error {
	dir, err := u.dir(rel)
	if err != nil {
		return err
	}
	return u.setOpaque(dir, ".", rel)
}

// whiteout hides what the layers below have as rel.
func (u *unpacker) whiteout(rel string) error {
	dir, name, err := u.parent(rel)
	if err != nil {
		return err
	}
	err = unix.Mknodat(dir, name, unix.S_IFCHR, 0)
	switch {
	case err == nil:
		return nil
	case is(err, unix.EPERM):
		return unsupported(err, "use Linux 5.8 or newer, or root", "layer: make a whiteout of %s: %v", quote(rel), err)
	case !is(err, unix.EEXIST):
		return fmt.Errorf("make a whiteout: %w", err)
	}
	st, err := lstat(dir, name)
	if err != nil || kind(&st) != unix.S_IFDIR {
		return err // what is there hides what is below
	}
	return u.setOpaque(dir, name, rel)
}
