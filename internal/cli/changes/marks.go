package changes

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/home/statedir"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

const (
	maxMarks = 64 << 20 // bytes of one file of marks

	marksDir = "applied" // what applies wrote, one file for each sandbox
)

// loadMarks returns what earlier applies of a sandbox's changes wrote.
func (r *Reviewer) loadMarks(id string) ([]workspace.Mark, error) {
	if !known(id) {
		return nil, nil
	}
	b, err := r.readState(marksDir, id+".json", maxMarks)
	if err != nil || b == nil {
		return nil, err
	}
	var marks []workspace.Mark
	if err := json.Unmarshal(b, &marks); err != nil {
		return nil, fmt.Errorf("read what was applied before, of sandbox %s: %w", id, err)
	}
	return marks, nil
}

// saveMarks writes marks in the place of those of before; of several for the
// same the last counts.
func (r *Reviewer) saveMarks(id string, marks []workspace.Mark) error {
	if !known(id) {
		return nil
	}
	b, err := json.Marshal(workspace.LastMarks(marks))
	if err != nil {
		return err
	}
	return r.writeState(marksDir, id+".json", b)
}

// Forget removes what is remembered of a sandbox that was removed.
// Where there is nothing, or it can't be removed, that is fine too: its name is
// nobody else's.
func (r *Reviewer) Forget(id string) {
	if !known(id) {
		return
	}
	for _, sub := range [...]string{marksDir, shownDir, syncedDir} {
		dir, err := statedir.Open(r.StateDir, sub, false)
		if err != nil {
			continue
		}
		dir.Each(func(name string, _ time.Time) {
			if strings.HasPrefix(name, id+".") {
				_ = dir.Remove(name)
			}
		})
		dir.Close()
	}
}
