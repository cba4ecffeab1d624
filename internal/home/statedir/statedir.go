// Package statedir keeps small files in a directory below the caller's own for
// state. What is in it is opened beneath it, and never by way of a link that somebody
// put there; a file is there whole, or not at all. It refuses a directory of state
// that others could lead elsewhere.
package statedir

import (
	"cmp"
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

// Dir is one that is open.
type Dir struct{ root *os.Root }

// Open opens the directory sub of state, and with create makes what is missing. It
// returns fs.ErrNotExist where there is none, or where state is "".
func Open(state, sub string, create bool) (*Dir, error) {
	if state == "" {
		return nil, fs.ErrNotExist
	}
	if create {
		if err := home.Make(state, 0o700); err != nil {
			return nil, err
		}
	}
	own, err := os.OpenRoot(state)
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
		err = fmt.Errorf("%s in %s is a link, not a directory", sub, state)
	}
	if err != nil {
		_ = root.Close() // a directory
		return nil, err
	}
	return &Dir{root}, nil
}

// Close closes it.
func (d *Dir) Close() { _ = d.root.Close() }

// Read returns a file of at most limit bytes.
func (d *Dir) Read(name string, limit int64) ([]byte, error) { return d.read(name, limit, false) }

// ReadOwn is Read of a file that decides something: one of another user's, or that
// others may write to, is refused.
func (d *Dir) ReadOwn(name string, limit int64) ([]byte, error) { return d.read(name, limit, true) }

func (d *Dir) read(name string, limit int64, own bool) ([]byte, error) {
	// Without O_NONBLOCK a fifo in its place would keep the caller for ever.
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > limit:
		return nil, fmt.Errorf("%s is no file of at most %d bytes", f.Name(), limit)
	case own && (int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0):
		return nil, fmt.Errorf("%s is another user's, or others may write to it", f.Name())
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// Write puts a file that only the caller can read in place in one step.
func (d *Dir) Write(name string, b []byte) error {
	at, err := d.root.Open(".")
	if err != nil {
		return err
	}
	dir := beneath.In(at)
	defer func() { _ = dir.Close() }() // a directory
	return durable.WriteIn(dir, name, b, durable.Options{})
}

// Append adds to a file that only the caller can read, and makes it where there is none. What a caller that was killed, or
// a full disk, let it write in part is left.
func (d *Dir) Append(name string, b []byte) error {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	if fi, serr := f.Stat(); serr != nil || !fi.Mode().IsRegular() {
		err = cmp.Or(serr, fmt.Errorf("%s is no file", f.Name()))
	} else {
		_, err = f.Write(b)
	}
	return errors.Join(err, f.Close())
}

// Remove removes a file.
func (d *Dir) Remove(name string) error { return d.root.Remove(name) }

// Each calls f for every name and the time it was last written. What can't be
// looked at is left out: it is only tidied up.
func (d *Dir) Each(f func(name string, written time.Time)) {
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

// Prune removes what was written before a time. What can't be removed stays: it does
// no harm.
func (d *Dir) Prune(before time.Time) {
	d.Each(func(name string, written time.Time) {
		if written.Before(before) {
			_ = d.root.Remove(name)
		}
	})
}
