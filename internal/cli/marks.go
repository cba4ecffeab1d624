package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

const (
	maxMarks = 64 << 20 // bytes of one file of marks

	marksDir = "applied" // what applies wrote, one file for each sandbox
)

// loadMarks returns what earlier applies of a sandbox's changes wrote.
func (a *app) loadMarks(id string) ([]workspace.Mark, error) {
	if !sandbox.ValidID(id) {
		return nil, nil
	}
	b, err := a.readState(marksDir, id+".json", maxMarks)
	if err != nil || b == nil {
		return nil, err
	}
	var marks []workspace.Mark
	if err := json.Unmarshal(b, &marks); err != nil {
		return nil, fmt.Errorf("read what was applied before, of sandbox %s: %w", id, err)
	}
	return marks, nil
}

// readState returns a file of a directory of state, nil where there is none.
func (a *app) readState(sub, name string, limit int64) ([]byte, error) {
	dir, err := a.openState(sub, false)
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
func (a *app) writeState(sub, name string, b []byte) error {
	if a.env.StateDir == "" {
		return nil
	}
	dir, err := a.openState(sub, true)
	if err == nil {
		defer dir.close()
		if err = dir.write(name, b); err == nil {
			dir.prune(a.Now())
			return nil
		}
	}
	return fmt.Errorf("remember what was %s: %w", sub, err)
}

// saveMarks writes marks in the place of those of before; of several for a
// path the last counts.
func (a *app) saveMarks(id string, marks []workspace.Mark) error {
	if !sandbox.ValidID(id) {
		return nil
	}
	last := make(map[string]int, len(marks))
	for i, m := range marks {
		last[m.Path] = i
	}
	kept := make([]workspace.Mark, 0, len(last))
	for i, m := range marks {
		if last[m.Path] == i {
			kept = append(kept, m)
		}
	}
	b, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return a.writeState(marksDir, id+".json", b)
}

// forgetSandbox removes what is remembered of a sandbox that was removed.
// Where there is nothing, or it can't be removed, that is fine too: its name is
// nobody else's.
func (a *app) forgetSandbox(id string) {
	if !sandbox.ValidID(id) {
		return
	}
	for _, sub := range [...]string{marksDir, shownDir} {
		dir, err := a.openState(sub, false)
		if err != nil {
			continue
		}
		dir.each(func(name string, _ time.Time) {
			if strings.HasPrefix(name, id+".") {
				_ = dir.root.Remove(name)
			}
		})
		dir.close()
	}
}
