package tool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
)

const (
	fileMode  = 0o666 // of new files and directories, before the umask
	dirMode   = 0o777
	maxReopen = 8 // times that a file is looked for anew
)

// target is a file that is to be changed. A file is changed in place: it keeps
// its inode, its mode and its other names, and a watcher sees a write.
type target struct {
	rel, abs string
	flags    int
	make     bool // it, and the directories above it, where they are missing

	f       *os.File
	created bool
	size    int64 // when its turn came
}

// change runs fn with t open, on a thread with the user's rights and while
// nobody else changes the file through the agent.
func (c *call) change(t *target, fn func() error) error {
	for range maxReopen {
		done, err := c.tryChange(t, fn)
		if done || err != nil {
			return explain(t.abs, err)
		}
	}
	return failf(tools.ToolConflict, "it is replaced again and again: %s", short(t.abs))
}

func (c *call) tryChange(t *target, fn func() error) (done bool, err error) {
	var st unix.Stat_t
	if err := c.do(func(root int) error { return explain(t.abs, t.open(root, &st)) }); err != nil {
		return true, err
	}
	defer t.f.Close()
	release, err := c.s.opts.Turn(c.ctx, st.Dev, st.Ino)
	if err != nil {
		if c.ctx.Err() != nil {
			return true, err
		}
		return true, failf(tools.ToolConflict, "another has been writing to %s for long; try again", short(t.abs))
	}
	defer release()
	err = c.do(func(root int) error {
		var now unix.Stat_t // who had the turn before may have replaced it
		fd, err := beneath.Open(root, t.rel, unix.O_PATH)
		if err == nil {
			err = unix.Fstat(fd, &now)
			unix.Close(fd)
		}
		if err != nil || now.Dev != st.Dev || now.Ino != st.Ino {
			return nil
		}
		done, t.size = true, now.Size
		return fn()
	})
	return done, err
}

// open opens the file, or makes it.
func (t *target) open(root int, st *unix.Stat_t) error {
	t.created = false
	fd, err := beneath.Open(root, t.rel, t.flags|openFlags)
	if errors.Is(err, unix.ENOENT) && t.make {
		fd, err = t.create(root)
	}
	if errors.Is(err, unix.EACCES) && isDir(root, t.rel) {
		err = unix.EISDIR
	}
	if err != nil {
		return err
	}
	t.f = os.NewFile(uintptr(fd), t.abs)
	if err = unix.Fstat(fd, st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = failf(tools.ToolInvalid, "path must name a regular file: %s", short(t.abs))
	}
	if err != nil {
		t.f.Close()
		return err
	}
	return nil
}

func isDir(root int, rel string) bool {
	fd, err := beneath.Open(root, rel, unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// create makes the file, and the directories above it.
func (t *target) create(root int) (int, error) {
	dir, err := makeDirs(root, path.Dir(t.rel))
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, path.Base(t.rel), t.flags|openFlags|flags, fileMode)
	if !errors.Is(err, unix.EEXIST) {
		t.created = err == nil
		return fd, err
	}
	// Another made it meanwhile, or it is a link to nothing.
	fd, err = beneath.Open(root, t.rel, t.flags|openFlags)
	if errors.Is(err, unix.ENOENT) {
		err = failf(tools.ToolEscapes, "path leads through a symbolic link to nothing: %s", short(t.abs))
	}
	return fd, err
}

// makeDirs opens the directory rel as a place for names, and makes those that
// are missing on the way.
func makeDirs(root int, rel string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY
	fd, err := beneath.Open(root, rel, flags)
	if !errors.Is(err, unix.ENOENT) || rel == "." {
		return fd, err
	}
	above, err := makeDirs(root, path.Dir(rel))
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	if err := unix.Mkdirat(above, path.Base(rel), dirMode); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return beneath.Open(root, rel, flags)
}

// put makes data what the file holds. What goes beyond its end is written
// first, and the rest over what has its room already, so that a full disk
// loses nothing.
func (t *target) put(data []byte) error {
	fd := int(t.f.Fd())
	head := data[:min(t.size, int64(len(data)))]
	if tail := data[len(head):]; len(tail) > 0 {
		if n, err := writeAt(fd, tail, t.size); err != nil {
			if unix.Ftruncate(fd, t.size) != nil {
				return t.broken(n, len(data), err)
			}
			return err
		}
	}
	if n, err := writeAt(fd, head, 0); err != nil {
		return t.broken(n, len(data), err)
	}
	return unix.Ftruncate(fd, int64(len(data)))
}

// add appends data, all of it or nothing.
func (t *target) add(data []byte) error {
	for n := 0; n < len(data); {
		m, err := t.f.Write(data[n:])
		if n += m; err == nil {
			continue
		}
		var st unix.Stat_t
		if n > 0 && (unix.Fstat(int(t.f.Fd()), &st) != nil || st.Size != t.size+int64(n) ||
			unix.Ftruncate(int(t.f.Fd()), t.size) != nil) {
			return t.broken(n, len(data), err)
		}
		return err
	}
	return nil
}

// broken is an error after n of all bytes were written.
func (t *target) broken(n, all int, err error) error {
	if n == 0 {
		return err
	}
	text := explain(t.abs, err).Error()
	return failf(tools.ToolIncomplete, "%s; it has %d of the %d new bytes", text, n, all)
}

// giveUp removes a file that this call made and could not fill.
func (t *target) giveUp(root int) {
	if !t.created {
		return
	}
	dir, err := beneath.Open(root, path.Dir(t.rel), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	_ = unix.Unlinkat(dir, path.Base(t.rel), 0)
}

// writeAt writes all of data, and says how much came through.
func writeAt(fd int, data []byte, at int64) (n int, err error) {
	for n < len(data) {
		m, err := unix.Pwrite(fd, data[n:], at+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return n, err
		case m == 0:
			return n, fmt.Errorf("write: %w", io.ErrShortWrite)
		}
		n += max(m, 0)
	}
	return n, nil
}
