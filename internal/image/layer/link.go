package layer

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// link makes rel a name of a file or link, of this layer or of those below.
func (u *unpacker) link(rel string, h *tar.Header) error {
	old, err := place(h.Linkname, u.o.Limits.Path)
	if err != nil {
		return refuse("its target %s can't be: %v", quote(h.Linkname), err)
	}
	if m, _, _ := marks(old); m != ordinary {
		return refuse("a hard link to %s, which a whiteout is called", quote(h.Linkname))
	}
	_, _, at, err := u.parent(rel)
	if err != nil {
		return err
	}
	w, err := u.walk(path.Dir(old))
	if err != nil {
		return err
	}
	from := path.Join(w.end().rel, path.Base(old))
	if from == at {
		return refuse("a hard link to itself")
	}
	if err := u.linkable(w, from); err != nil {
		return err
	}
	return u.create(rel, func(dir int, name string) error {
		fd, err := u.tree.open(path.Dir(from)) // dir was the last, and stays open
		if err != nil {
			return fmt.Errorf("open the target's directory: %w", err)
		}
		return unix.Linkat(fd, path.Base(from), dir, name, 0)
	})
}

// linkable sees to it that this layer has from, which is in the last directory of w. It refuses
// a target that is not there, or nothing to link to.
func (u *unpacker) linkable(w way, from string) error {
	other := refuse("a hard link to %s, which is neither a file nor a symbolic link", quote(from))
	if w.end().mine {
		dir, err := u.tree.open(w.end().rel)
		if err != nil {
			return fmt.Errorf("open the target's directory: %w", err)
		}
		st, err := lstat(dir, path.Base(from))
		switch {
		case err == nil && kind(&st) != unix.S_IFREG && kind(&st) != unix.S_IFLNK:
			return other
		case !is(err, unix.ENOENT):
			return err
		}
	}
	f, err := u.below.look(w.end().below.trees, from)
	switch {
	case err != nil:
		return err
	case f.st.Mode == 0:
		return refuse("a hard link to %s, which neither the layer nor one below it has", quote(from))
	case !f.is(unix.S_IFREG) && !f.is(unix.S_IFLNK):
		return other
	}
	dir, err := u.make(w)
	if err == nil {
		err = u.copyUp(f, from, dir)
	}
	return err
}

// copyUp makes in dir what a layer below has as rel, a file or a link.
func (u *unpacker) copyUp(f found, rel string, dir int) error {
	name := path.Base(rel)
	if f.is(unix.S_IFLNK) {
		target, err := u.below.readlink(f.tree, rel)
		if err == nil {
			err = unix.Symlinkat(target, dir, name)
		}
		if err == nil && u.owners {
			err = unix.Fchownat(dir, name, int(f.st.Uid), int(f.st.Gid), unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil {
			return fmt.Errorf("copy a link from below: %w", err)
		}
		return setTime(dir, name, time.Unix(f.st.Mtim.Unix()))
	}
	if f.st.Size > u.o.Limits.Bytes-u.res.Bytes {
		return refuse("with the %d bytes of %s the layer's files take more than %d", f.st.Size, quote(rel), u.o.Limits.Bytes)
	}
	err := in(f.tree, rel, func(below int, name string) error {
		from, err := openat(below, name, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(from)
		to, err := openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, newFile)
		if err != nil {
			return err
		}
		defer unix.Close(to)
		return u.copyFile(from, to, &f.st)
	})
	if err != nil {
		return fmt.Errorf("copy a file from below: %w", err)
	}
	u.res.Bytes += f.st.Size
	return setTime(dir, name, time.Unix(f.st.Mtim.Unix()))
}

// copyFile gives the new file to all that from has, which st is of.
func (u *unpacker) copyFile(from, to int, st *unix.Stat_t) error {
	if unix.IoctlFileClone(to, from) != nil { // file systems that share blocks are few
		if err := u.copyContents(from, to, st.Size); err != nil {
			return err
		}
	}
	if err := copyXattrs(from, to); err != nil {
		return err
	}
	if u.owners {
		if err := unix.Fchown(to, int(st.Uid), int(st.Gid)); err != nil {
			return ownerError(err, int(st.Uid), int(st.Gid))
		}
	}
	return unix.Fchmod(to, st.Mode&0o777)
}

func (u *unpacker) copyContents(from, to int, size int64) error {
	buf := make([]byte, chunkSize)
	for at := int64(0); ; {
		if u.ctx.Err() != nil {
			return context.Cause(u.ctx)
		}
		n, err := retry(func() (int, error) { return unix.Pread(from, buf, at) })
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := writeAround(to, at, buf[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	if _, err := unix.Seek(to, 0, io.SeekStart); err != nil {
		return err
	}
	return unix.Ftruncate(to, size)
}
