package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/carboy-sandbox/carboy/internal/home/statedir"
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
