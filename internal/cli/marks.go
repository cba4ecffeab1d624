package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

const (
	maxMarks = 64 << 20            // bytes of one file of marks
	marksTTL = 30 * 24 * time.Hour // after which the marks of a sandbox are no longer of use
)

// marksFile is where the marks of a sandbox are, "" where nothing is kept.
func (a *app) marksFile(id string) string {
	if a.env.StateDir == "" || !sandbox.ValidID(id) {
		return ""
	}
	return filepath.Join(a.env.StateDir, "applied", id+".json")
}

// loadMarks returns what earlier applies of a sandbox's changes wrote.
func (a *app) loadMarks(id string) ([]workspace.Mark, error) {
	name := a.marksFile(id)
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was applied before: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	var marks []workspace.Mark
	if err := json.NewDecoder(io.LimitReader(f, maxMarks)).Decode(&marks); err != nil {
		return nil, fmt.Errorf("read what was applied before, in %s: %w", name, err)
	}
	return marks, nil
}

// saveMarks writes marks in the place of those of before; of several for a
// path the last counts. It removes what is too old to be of use.
func (a *app) saveMarks(id string, marks []workspace.Mark) error {
	name := a.marksFile(id)
	if name == "" {
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
	if err := writePrivate(name, b); err != nil {
		return fmt.Errorf("remember what was applied: %w", err)
	}
	a.pruneMarks(filepath.Dir(name))
	return nil
}

// writePrivate puts a file that only the caller can read in place in one step.
func writePrivate(name string, b []byte) (err error) {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // best effort: the first error is the one to tell
		}
	}()
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// pruneMarks removes the marks of sandboxes that are long gone. What can't be
// removed stays: it does no harm.
func (a *app) pruneMarks(dir string) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		if fi, err := e.Info(); err == nil && a.env.Now().Sub(fi.ModTime()) > marksTTL {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// forgetMarks removes the marks of a sandbox that was removed.
func (a *app) forgetMarks(id string) {
	if name := a.marksFile(id); name != "" {
		_ = os.Remove(name) // where there are none, that is fine too
	}
}
