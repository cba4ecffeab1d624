package changes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/home"
)

// stateTTL is after how long what is remembered of a sandbox is of no use.
const stateTTL = 30 * 24 * time.Hour

// stateDir is a directory below the caller's own for state. What is in it is
// opened beneath it, and never by way of a link that somebody put there.
type stateDir struct{ root *os.Root }

// openState opens the directory sub, and with create makes what is missing. It
// returns fs.ErrNotExist where there is none, or where nothing is kept.
func (r *Reviewer) openState(sub string, create bool) (*stateDir, error) {
	if r.StateDir == "" {
		return nil, fs.ErrNotExist
	}
	if create {
		if err := home.Make(r.StateDir, 0o700); err != nil {
			return nil, err
		}
	}
	own, err := os.OpenRoot(r.StateDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = own.Close() }() // a directory
	if create {
		if err := own.Mkdir(sub, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	want, err := own.Lstat(sub)
	if err != nil {
		return nil, err
	}
	root, err := own.OpenRoot(sub)
	if err != nil {
		return nil, err
	}
	got, err := root.Stat(".")
	if err == nil && (!want.IsDir() || !os.SameFile(want, got)) {
		err = fmt.Errorf("%s in %s is a link, not a directory", sub, r.StateDir)
	}
	if err != nil {
		_ = root.Close() // a directory
		return nil, err
	}
	return &stateDir{root}, nil
}

func (d *stateDir) close() { _ = d.root.Close() }

// read returns a file of at most limit bytes.
func (d *stateDir) read(name string, limit int64) ([]byte, error) {
	// Without O_NONBLOCK a fifo in its place would keep the caller for ever.
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > limit {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", f.Name(), limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// write puts a file that only the caller can read in place in one step.
func (d *stateDir) write(name string, b []byte) error {
	at, err := d.root.Open(".")
	if err != nil {
		return err
	}
	dir := beneath.In(at)
	defer func() { _ = dir.Close() }() // a directory
	return durable.WriteIn(dir, name, b, durable.Options{})
}

// each calls f for every name and the time it was last written. What can't be
// looked at is left out: it is only tidied up.
func (d *stateDir) each(f func(name string, written time.Time)) {
	dir, err := d.root.Open(".")
	if err != nil {
		return
	}
	defer func() { _ = dir.Close() }() // a directory
	list, err := dir.ReadDir(-1)
	if err != nil {
		return
	}
	for _, e := range list {
		if fi, err := e.Info(); err == nil {
			f(e.Name(), fi.ModTime())
		}
	}
}

// prune removes what is too old to be of use. What can't be removed stays: it
// does no harm.
func (d *stateDir) prune(now time.Time) {
	d.each(func(name string, written time.Time) {
		if now.Sub(written) > stateTTL {
			_ = d.root.Remove(name)
		}
	})
}

// readState returns a file of a directory of state, nil where there is none.
func (r *Reviewer) readState(sub, name string, limit int64) ([]byte, error) {
	dir, err := r.openState(sub, false)
	if err == nil {
		defer dir.close()
		var b []byte
		if b, err = dir.read(name, limit); err == nil {
			return b, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nil, fmt.Errorf("read what was %s before: %w", sub, err)
}

// writeState puts a file into a directory of state, and removes what is too
// old to be of use.
func (r *Reviewer) writeState(sub, name string, b []byte) error {
	if r.StateDir == "" {
		return nil
	}
	dir, err := r.openState(sub, true)
	if err == nil {
		defer dir.close()
		if err = dir.write(name, b); err == nil {
			dir.prune(r.Now())
			return nil
		}
	}
	return fmt.Errorf("remember what was %s: %w", sub, err)
}
