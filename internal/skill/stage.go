package skill

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// What a change makes stands below stageDir until it is whole, and then gets
// its place by a rename. A change with several renames writes first into
// journal what it is about to put where: a daemon that finds that file has
// to undo them. All this is done with the namespace locked, so that whatever
// is found there is of a daemon that is gone.
var (
	stageDir = path.Join(ownDir, "stage")
	journal  = path.Join(ownDir, "journal")
)

const (
	maxJournal = 1 << 20
	gonePrefix = "gone-" // in ownDir: of a package that is being removed
)

// step is called with what was just done. Tests stop there.
var step = func(string) {}

// move is one rename of a change.
type move struct {
	To  string `json:"to"` // a directory in the namespace that was not there
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`

	from string
}

// staged calls fn with a new, empty directory, whose name is a path in the
// namespace too. It is gone afterwards, with what was not moved away.
func staged(dir *os.Root, fn func(stage string) error) error {
	stage := path.Join(stageDir, rand.Text())
	if err := dir.MkdirAll(stage, 0o700); err != nil {
		return err
	}
	defer dir.RemoveAll(stageDir) //nolint:errcheck // the next change finds what is left
	return fn(stage)
}

// undo puts everything back to where it was before a change that was cut off,
// and removes what that was to remove.
func undo(dir *os.Root) error {
	entries, err := readDir(dir, ownDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), gonePrefix) {
			if err := dir.RemoveAll(path.Join(ownDir, e.Name())); err != nil {
				return err
			}
		}
	}
	text, err := readJournal(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return dir.RemoveAll(stageDir)
	case err != nil:
		return err
	}
	var moves []move
	if err := json.Unmarshal(text, &moves); err != nil {
		moves = nil // it was being written: nothing was moved yet
	}
	if err := dir.MkdirAll(stageDir, 0o700); err != nil {
		return err
	}
	for _, m := range moves {
		if err := m.back(dir); err != nil {
			return err
		}
	}
	if err := dir.Remove(journal); err != nil {
		return err
	}
	return dir.RemoveAll(stageDir)
}

func readJournal(dir *os.Root) ([]byte, error) {
	f, err := dir.Open(journal)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxJournal))
}

// back undoes a move, unless something else is in that place.
func (m move) back(dir *os.Root) error {
	st, err := dir.Lstat(m.To)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if dev, ino := inode(st); dev != m.Dev || ino != m.Ino {
		return nil
	}
	return dir.Rename(m.To, path.Join(stageDir, rand.Text()))
}

func inode(st fs.FileInfo) (dev, ino uint64) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return sys.Dev, sys.Ino
}

// place moves directories of a stage to where they are to be, all or none.
// What is in one of the places already is a Conflict.
func place(dir *os.Root, moves []move) error {
	for i, m := range moves {
		st, err := dir.Lstat(m.from)
		if err != nil {
			return err
		}
		moves[i].Dev, moves[i].Ino = inode(st)
	}
	text, err := json.Marshal(moves)
	if err != nil {
		return err
	}
	if err := putFile(dir, dir, journal, text, 0o600); err != nil {
		return err
	}
	step("journal")
	for _, m := range moves {
		if err := rename(dir, m.from, m.To, unix.RENAME_NOREPLACE); err != nil {
			if uerr := undo(dir); uerr != nil {
				return uerr
			}
			if errors.Is(err, fs.ErrExist) {
				return exists(m.To)
			}
			return err
		}
		step("moved " + m.To)
	}
	return dir.Remove(journal)
}

func exists(to string) error {
	return sandbox.Errorf(sandbox.Conflict, "Skill directory already exists: %s", describe(to)).
		WithHint("delete that skill first, or take another name")
}

// rename is renameat2 in one namespace. What is above both must be there.
func rename(dir *os.Root, from, to string, flags uint) error {
	a, err := dir.Open(path.Dir(from))
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := dir.Open(path.Dir(to))
	if err != nil {
		return err
	}
	defer b.Close()
	err = unix.Renameat2(int(a.Fd()), path.Base(from), int(b.Fd()), path.Base(to), flags)
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// putFile makes or replaces a file of pkg, which is a directory in dir or dir
// itself, in one step. What is above it must be there.
func putFile(dir, pkg *os.Root, rel string, text []byte, mode fs.FileMode) error {
	if err := dir.MkdirAll(stageDir, 0o700); err != nil {
		return err
	}
	from, err := openRoot(dir, stageDir)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := openRoot(pkg, path.Dir(rel))
	if err != nil {
		return err
	}
	defer to.Close()
	f, err := durable.Create(from, durable.Options{Mode: mode, Step: func(done string) error {
		if done == durable.Written {
			step("wrote " + path.Base(rel))
		}
		return nil
	}})
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return f.Commit(to, path.Base(rel))
}

// openRoot opens a directory of an os.Root.
func openRoot(r *os.Root, name string) (*beneath.Dir, error) {
	f, err := r.Open(name)
	if err != nil {
		return nil, err
	}
	return beneath.In(f), nil
}
