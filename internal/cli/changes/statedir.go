package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home/statedir"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// stateTTL is after how long what is remembered of a sandbox is of no use.
const stateTTL = 30 * 24 * time.Hour

// readState returns a file of a directory of state, nil where there is none.
func (r *Reviewer) readState(sub, name string, limit int64) ([]byte, error) {
	dir, err := statedir.Open(r.StateDir, sub, false)
	if err == nil {
		defer dir.Close()
		var b []byte
		if b, err = dir.Read(name, limit); err == nil {
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
	dir, err := statedir.Open(r.StateDir, sub, true)
	if err == nil {
		defer dir.Close()
		if err = dir.Write(name, b); err == nil {
			dir.Prune(r.Now().Add(-stateTTL))
			return nil
		}
	}
	return fmt.Errorf("remember what was %s: %w", sub, err)
}

// appendState adds to a file of a directory of state.
func (r *Reviewer) appendState(sub, name string, b []byte) error {
	if r.StateDir == "" {
		return nil
	}
	dir, err := statedir.Open(r.StateDir, sub, true)
	if err == nil {
		defer dir.Close()
		err = dir.Append(name, b)
	}
	if err != nil {
		return fmt.Errorf("remember what is about to be %s: %w", sub, err)
	}
	return nil
}

// removeState removes a file of a directory of state, which may not be there.
func (r *Reviewer) removeState(sub, name string) error {
	dir, err := statedir.Open(r.StateDir, sub, false)
	if err == nil {
		defer dir.Close()
		err = dir.Remove(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget what was about to be %s: %w", sub, err)
	}
	return nil
}

// lock sees to it that no other command of its kind, which keeps its state in sub, works on the
// same: else that is a Conflict. The kernel gives the lock back where the process ends.
func (r *Reviewer) lock(sub, command string, sb subject) (unlock func(), err error) {
	if r.StateDir == "" || !known(sb.ID) {
		return func() {}, nil
	}
	dir, err := statedir.Open(r.StateDir, sub, true)
	if err != nil {
		return nil, err
	}
	dir.Close()
	root, err := os.OpenRoot(filepath.Join(r.StateDir, sub))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // a directory
	f, err := root.OpenFile(sb.ID+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // it was not written to
		return nil, sandbox.Errorf(sandbox.Conflict, "%s: another carboy %s of it is running", sb, command).
			WithHint("try again when that is done")
	}
	return func() { _ = f.Close() }, nil // as above
}
