package tool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// skipped are the directories that searches don't enter: what is in them is
// seldom what an agent looks for, and there is much of it.
var skipped = map[string]bool{
	".git": true, "node_modules": true, "__pycache__": true, ".venv": true,
	"venv": true, ".tox": true, "dist": true, "build": true,
}

const (
	maxNames  = 4096 // of one directory that are held at once
	lookEvery = 32   // entries between two looks at the clock
)

// errEnough ends a walk whose results are to be answered.
var errEnough = errors.New("enough")

// walk goes through a tree, directory by directory and by name, and follows no
// link. It ends early, with a cause, rather than go on for too long.
type walk struct {
	ctx      context.Context // of the one call that this is for
	deadline time.Time
	// visit gets what is in the tree but directories that are skipped: its
	// name in the open directory dir, and its path from the start.
	visit func(dir int, e dirent, rel string) error

	entries int // seen
	cause   tools.Cause
	tools.Searched
}

// stop ends the walk for a cause, which counts before a lesser one.
func (w *walk) stop(cause tools.Cause) error {
	w.cause = cause
	return errEnough
}

// note keeps a cause that does not end the walk.
func (w *walk) note(cause tools.Cause) {
	if w.cause == "" {
		w.cause = cause
	}
}

// tick ends the walk where its time is over.
func (w *walk) tick() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if time.Now().After(w.deadline) {
		return w.stop(tools.ByTime)
	}
	return nil
}

// run goes through the directory that is open as fd.
func (w *walk) run(fd int) error {
	err := w.dir(fd, "", 0)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (w *walk) dir(fd int, prefix string, depth int) error {
	d := newDirents(fd)
	for more := true; more; {
		var list []dirent
		for more && len(list) < maxNames {
			some, err := d.next()
			if err != nil {
				if depth == 0 {
					return err
				}
				w.Unreadable++
				return nil
			}
			more = len(some) > 0
			list = append(list, some...)
		}
		slices.SortFunc(list, func(a, b dirent) int { return strings.Compare(a.name, b.name) })
		for _, e := range list {
			if err := w.entry(fd, e, prefix, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walk) entry(dir int, e dirent, prefix string, depth int) error {
	if w.entries++; w.entries > tools.WalkEntries {
		return w.stop(tools.ByScan)
	}
	if w.entries%lookEvery == 1 {
		if err := w.tick(); err != nil {
			return err
		}
	}
	if e.kind == unix.DT_UNKNOWN {
		e.kind = kindOf(dir, e.name)
	}
	if e.kind == unix.DT_DIR && skipped[e.name] {
		if !slices.Contains(w.Skipped, e.name) {
			w.Skipped = append(w.Skipped, e.name)
		}
		return nil
	}
	rel := e.name
	if prefix != "" {
		rel = prefix + "/" + e.name
	}
	if err := w.visit(dir, e, rel); err != nil {
		return err
	}
	if e.kind != unix.DT_DIR {
		return nil
	}
	if depth+1 > tools.WalkDepth {
		w.note(tools.ByDepth)
		return nil
	}
	fd, err := beneath.OpenNoLinks(dir, e.name, unix.O_RDONLY|unix.O_DIRECTORY|openFlags)
	if err != nil {
		w.Unreadable++
		return nil
	}
	defer unix.Close(fd)
	return w.dir(fd, rel, depth+1)
}

// kindOf asks what a name is where its directory does not say.
func kindOf(dir int, name string) uint8 {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return unix.DT_UNKNOWN
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return unix.DT_DIR
	case unix.S_IFREG:
		return unix.DT_REG
	case unix.S_IFLNK:
		return unix.DT_LNK
	}
	return unix.DT_UNKNOWN
}
