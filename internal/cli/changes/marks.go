package changes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/home/statedir"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

const (
	maxMarks = 64 << 20     // bytes of one file of marks
	maxBegun = 4 * maxMarks // and of what was begun, which says more of each, and may be of several that were killed

	marksDir = "applied" // what applies wrote, one file for each sandbox

	begunSuffix = ".begun" // of the file with what an apply that has no end yet is about to write
)

// loadMarks returns what earlier applies of a sandbox's changes to base wrote. Where one was killed, what it had begun is
// looked at there.
func (r *Reviewer) loadMarks(id string, base *workspace.Base) ([]workspace.Mark, error) {
	if !known(id) {
		return nil, nil
	}
	b, err := r.readState(marksDir, id+".json", maxMarks)
	if err != nil {
		return nil, err
	}
	var marks []workspace.Mark
	if b != nil {
		err = json.Unmarshal(b, &marks)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was applied before, of sandbox %s: %w", id, err)
	}
	begun, err := r.readState(marksDir, id+begunSuffix, maxBegun)
	if err != nil || len(begun) == 0 {
		return marks, err
	}
	for line := range bytes.Lines(begun) {
		var more []workspace.Mark
		if json.Unmarshal(line, &more) == nil { // or it was killed as it wrote that: then it had not begun
			marks = append(marks, more...)
		}
	}
	return base.Finish(marks), nil
}

// saveMarks writes marks in the place of those of before; of several for the
// same the last counts.
func (r *Reviewer) saveMarks(id string, marks []workspace.Mark) error {
	if !known(id) {
		return nil
	}
	b, err := json.Marshal(workspace.LastMarks(marks))
	if err == nil {
		err = r.writeState(marksDir, id+".json", b)
	}
	if err != nil {
		return err
	}
	return r.removeState(marksDir, id+begunSuffix)
}

// finishMarks saves marks that loadMarks returned, where an apply was killed: notes then begin anew.
func (r *Reviewer) finishMarks(id string, marks []workspace.Mark) error {
	if !known(id) {
		return nil
	}
	if b, err := r.readState(marksDir, id+begunSuffix, maxBegun); err != nil || b == nil {
		return err
	}
	return r.saveMarks(id, marks)
}

// noteMarks adds a line of marks of what is about to be written.
func (r *Reviewer) noteMarks(id string, marks []workspace.Mark) error {
	if !known(id) {
		return nil
	}
	b, err := json.Marshal(marks)
	if err != nil {
		return err
	}
	return r.appendState(marksDir, id+begunSuffix, append(b, '\n'))
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
