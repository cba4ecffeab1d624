package beneath

import (
	"context"
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK | unix.O_CLOEXEC

// Remove deletes what has a name in the open directory dir, with all that is in
// it, following no link. It stops at the first thing that it can't delete, and
// when ctx ends. What is not there is no error.
//
// A guest can make a tree deeper than any path and than the descriptors that
// a process may hold, so it goes down and up with one descriptor: up by "..",
// and only if that is the directory that it came from.
func Remove(ctx context.Context, dir int, name string) error {
	fd, err := Open(dir, ".", openDir)
	if errors.Is(err, unix.EACCES) {
		fd, err = Open(dir, ".", unix.O_PATH|unix.O_DIRECTORY)
	}
	if err != nil {
		return err
	}
	r := &remover{ctx: ctx, dir: fd}
	defer func() { unix.Close(r.dir) }()
	if err := r.run(name); err != nil {
		if where := path.Join(r.where()...); where != "" {
			return fmt.Errorf("%s: %w", where, err)
		}
		return err
	}
	return nil
}

// remover is in the directory dir; above are those between it and the one
// where it started, and names some of what is in it.
type remover struct {
	ctx   context.Context // of the one call that this is for
	dir   int
	above []level
	names []string
}

// level is a directory that was left for one of its own: what it is, and the
// name of the one below.
type level struct {
	dev, ino uint64
	name     string
}

func (r *remover) run(base string) error {
	name := base
	for {
		if err := r.ctx.Err(); err != nil {
			return context.Cause(r.ctx)
		}
		entered, err := r.unlink(name)
		if err != nil {
			return err
		}
		if !entered && len(r.above) == 0 {
			return nil
		}
		if name, err = r.next(); err != nil {
			return err
		}
		if name != "" {
			continue
		}
		if name, err = r.up(); err != nil { // it is empty: delete it from above
			return err
		}
	}
}

// unlink deletes name, unless that is a directory with something in it: then
// it enters that.
func (r *remover) unlink(name string) (entered bool, err error) {
	err = unix.Unlinkat(r.dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return false, err
	}
	rmErr := unix.Unlinkat(r.dir, name, unix.AT_REMOVEDIR)
	switch {
	case rmErr == nil || errors.Is(rmErr, unix.ENOENT):
		return false, nil
	case errors.Is(rmErr, unix.ENOTDIR):
		return false, err
	case !errors.Is(rmErr, unix.ENOTEMPTY) && !errors.Is(rmErr, unix.EEXIST):
		return false, rmErr
	}
	return true, r.down(name)
}

func (r *remover) down(name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(r.dir, &st); err != nil {
		return err
	}
	fd, err := OpenNoLinks(r.dir, name, openDir)
	if err != nil {
		return err
	}
	unix.Close(r.dir)
	r.dir, r.names = fd, nil
	r.above = append(r.above, level{st.Dev, st.Ino, name})
	return nil
}

// up goes back to the directory above and returns the name of the one left.
func (r *remover) up() (string, error) {
	last := r.above[len(r.above)-1]
	fd, err := unix.Openat(r.dir, "..", openDir, 0)
	if errors.Is(err, unix.EACCES) {
		fd, err = unix.Openat(r.dir, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != last.dev || st.Ino != last.ino {
		unix.Close(fd)
		return "", errors.Join(errors.New("a directory was moved meanwhile"), err)
	}
	unix.Close(r.dir)
	r.dir, r.names = fd, nil
	r.above = r.above[:len(r.above)-1]
	return last.name, nil
}

// next returns the name of something in the current directory, or "". It
// starts over when those it has read are gone, until nothing is left.
func (r *remover) next() (string, error) {
	if len(r.names) == 0 {
		if _, err := unix.Seek(r.dir, 0, 0); err != nil {
			return "", err
		}
	}
	for len(r.names) == 0 {
		buf := make([]byte, 8192)
		n, err := unix.ReadDirent(r.dir, buf)
		if err != nil || n <= 0 {
			return "", err
		}
		_, _, r.names = unix.ParseDirent(buf[:n], -1, nil)
	}
	name := r.names[0]
	r.names = r.names[1:]
	return name, nil
}

// where says how deep the remover is, for an error's text.
func (r *remover) where() []string {
	var names []string
	for _, l := range r.above[min(1, len(r.above)):] {
		if len(names) == 16 {
			return append(names, "…")
		}
		names = append(names, l.name)
	}
	return names
}
