package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// create calls mk to make rel, once more after taking away what an earlier
// entry put there.
func (u *unpacker) create(rel string, mk func(dir int, name string) error) error {
	dir, name, at, err := u.parent(rel)
	if err != nil {
		return err
	}
	u.changed(at)
	if err = mk(dir, name); err != unix.EEXIST {
		return err // of what came after the name was made, each has words before it
	}
	if err = unix.Unlinkat(dir, name, 0); is(err, unix.EISDIR) {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if is(err, unix.ENOTEMPTY, unix.EEXIST) {
			return refuse("it would take the place of a directory that the layer filled")
		}
		u.tree.forget(at)
		delete(u.hiding, at)
		if _, known := u.dirs[at]; known {
			u.names -= len(at)
			delete(u.dirs, at)
		}
	}
	if err != nil {
		return fmt.Errorf("replace: %w", err)
	}
	return mk(dir, name)
}

func (u *unpacker) file(rel string, h *tar.Header, attrs map[string]string) error {
	if h.Size > u.o.Limits.Bytes-u.res.Bytes {
		return refuse("with its %d bytes the layer's files take more than %d", h.Size, u.o.Limits.Bytes)
	}
	return u.create(rel, func(dir int, name string) error {
		fd, err := openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, newFile)
		if err != nil {
			return err
		}
		err = u.fill(fd, dir, name, h, attrs)
		if cerr := unix.Close(fd); err == nil && cerr != nil {
			err = fmt.Errorf("close: %w", cerr)
		}
		return err
	})
}

// fill gives the new file name all the rest.
func (u *unpacker) fill(fd, dir int, name string, h *tar.Header, attrs map[string]string) error {
	var err error
	if isSparse(h) {
		err = u.copySparse(fd)
	} else {
		err = u.copy(fd)
	}
	if err != nil {
		return err
	}
	if len(attrs) > 0 {
		if err := u.setXattrs(fd, h, attrs); err != nil {
			return err
		}
	}
	if u.owners && (h.Uid != u.uid || h.Gid != u.gid) {
		if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
			return ownerError(err, h.Uid, h.Gid)
		}
	}
	if err := unix.Fchmod(fd, uint32(h.Mode)&0o777); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	return setTime(dir, name, h.ModTime)
}

func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func (u *unpacker) copy(fd int) error {
	for u.open {
		n, err := u.read(u.buf)
		if err != nil && err != io.EOF {
			return err
		}
		if err := writeAll(fd, u.buf[:n]); err != nil {
			return err
		}
		u.res.Bytes += int64(n)
	}
	return nil
}

// zeros is what a hole is read as.
var zeros [4096]byte

// copySparse leaves a hole for each block of zeros. Holes count as bytes, but
// no block of them is written.
func (u *unpacker) copySparse(fd int) error {
	var size int64
	for u.open {
		if u.ctx.Err() != nil { // a hole takes nothing from the stream, which would tell
			return context.Cause(u.ctx)
		}
		n, err := u.read(u.buf)
		if err != nil && err != io.EOF {
			return err
		}
		if err := writeAround(fd, size, u.buf[:n]); err != nil {
			return err
		}
		size += int64(n)
	}
	u.res.Bytes += size
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("set size: %w", err)
	}
	return nil
}

// writeAround writes b at an offset, but for its blocks of zeros.
func writeAround(fd int, at int64, b []byte) error {
	for len(b) > 0 {
		block := b[:min(len(b), len(zeros))]
		b = b[len(block):]
		if !bytes.Equal(block, zeros[:len(block)]) {
			if _, err := unix.Seek(fd, at, io.SeekStart); err != nil {
				return fmt.Errorf("seek: %w", err)
			}
			if err := writeAll(fd, block); err != nil {
				return err
			}
		}
		at += int64(len(block))
	}
	return nil
}

func (u *unpacker) symlink(rel string, h *tar.Header) error {
	switch {
	case h.Linkname == "":
		return refuse("a symbolic link without a target")
	case len(h.Linkname) > maxTarget:
		return refuse("a symbolic link whose target is %d bytes long, over %d", len(h.Linkname), maxTarget)
	case strings.IndexByte(h.Linkname, 0) >= 0:
		return refuse("a symbolic link whose target holds a NUL byte")
	}
	return u.create(rel, func(dir int, name string) error {
		if err := unix.Symlinkat(h.Linkname, dir, name); err != nil {
			return err
		}
		if err := u.chownAt(dir, name, h); err != nil {
			return err
		}
		return setTime(dir, name, h.ModTime)
	})
}

func (u *unpacker) chownAt(dir int, name string, h *tar.Header) error {
	if !u.owners || h.Uid == u.uid && h.Gid == u.gid {
		return nil
	}
	if err := unix.Fchownat(dir, name, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return ownerError(err, h.Uid, h.Gid)
	}
	return nil
}

// ownerError tells a user namespace without the owner from other trouble.
func ownerError(err error, uid, gid int) error {
	if is(err, unix.EINVAL, unix.EPERM) {
		return unsupported(err, "give the daemon's user 65536 ids in /etc/subuid and /etc/subgid",
			"layer: owner %d:%d does not exist here", uid, gid)
	}
	return fmt.Errorf("chown: %w", err)
}

func (u *unpacker) fifo(rel string, h *tar.Header) error {
	return u.create(rel, func(dir int, name string) error {
		if err := unix.Mknodat(dir, name, unix.S_IFIFO|newFile, 0); err != nil {
			return err
		}
		if err := u.chownAt(dir, name, h); err != nil {
			return err
		}
		fd, err := openat(dir, name, unix.O_PATH, 0)
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer unix.Close(fd)
		if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), uint32(h.Mode)&0o777); err != nil {
			return fmt.Errorf("chmod: %w", err)
		}
		return setTime(dir, name, h.ModTime)
	})
}
