package workspace

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Begun says of a Mark that it is of what an Apply was about to leave, and by what that is known if it came to it. A file is
// the one that was written aside, as long as nobody has written to it since.
type Begun struct {
	Kind Kind `json:"kind"` // "": as it was, wherever it went along
	// MTime and Size are a file's.
	MTime  int64  `json:"mtime,omitempty"` // ns since 1970
	Size   int64  `json:"size,omitempty"`
	Target string `json:"target,omitempty"` // a link's
}

// Finish returns marks in which each that is of something begun is of what the base has, or gone. Of several for the same the
// last counts.
func (b *Base) Finish(marks []Mark) []Mark {
	var done []Mark
	for _, m := range marks {
		if m.Begun != nil {
			var ok bool
			if m, ok = b.finish(m); !ok {
				continue
			}
		}
		done = append(done, m)
	}
	return LastMarks(done)
}

func (b *Base) finish(m Mark) (Mark, bool) {
	st, err := b.stat(m.Path)
	if err != nil || st == nil {
		return Mark{}, false
	}
	now, err := b.Stamp(m.Path)
	if err != nil || m.Ino != 0 && !m.same(now) {
		return Mark{}, false
	}
	now.Self, now.Made = m.Self, m.Made
	switch kind := st.Mode & unix.S_IFMT; m.Begun.Kind {
	case Dir:
		return now, kind == unix.S_IFDIR
	case Symlink:
		dir, name, err := b.in(m.Path)
		if err != nil || kind != unix.S_IFLNK {
			return Mark{}, false
		}
		target, err := readlinkAt(dir, name)
		return now, err == nil && target == m.Begun.Target
	case File:
		return now, kind == unix.S_IFREG && st.Mtim.Nano() == m.Begun.MTime && st.Size == m.Begun.Size
	}
	return now, m.CTime == now.CTime
}

// note has what is about to be done kept.
func (a *applier) note(marks []Mark) error {
	if a.opts.Note == nil || len(marks) == 0 {
		return nil
	}
	return a.opts.Note(marks)
}

// noteBegun notes what is planned but for files that are written anew: of those there is none yet.
func (a *applier) noteBegun() (err error) {
	var marks []Mark
	seen := map[string]bool{}
	for _, it := range a.plan {
		marks = a.begunAround(marks, seen, it.Path)
		if it.Was == Dir && it.Kind != Dir {
			if marks, err = a.begunTree(marks, it.Path); err != nil {
				return err
			}
		}
		m := a.begunItem(it)
		switch {
		case it.Kind == Symlink:
			m.Begun = &Begun{Kind: Symlink, Target: it.Target}
		case it.Kind == Dir && it.Was != Dir:
			m.Begun = &Begun{Kind: Dir}
		case it.Kind == File && it.Class == ModeChanged && !it.base.linked:
			m.Dev, m.Ino = it.base.dev, it.base.ino
			m.Begun = &Begun{Kind: File, MTime: it.base.mtime, Size: it.base.size}
		default:
			continue
		}
		seen[it.Path] = true
		marks = append(marks, m)
	}
	return a.note(marks)
}

// begunTree adds the directories of one that is removed: they lose what is in them one by one.
func (a *applier) begunTree(marks []Mark, rel string) ([]Mark, error) {
	add := func(dir string) {
		m, _ := a.anyTime(dir)
		marks = append(marks, m)
	}
	add(rel)
	err := a.base.walk(a.ctx, rel, func(rel string, st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			add(rel)
		}
		return nil
	})
	if context.Cause(a.ctx) == nil {
		err = nil // what is amiss is told where it is removed
	}
	return marks, err
}

// begunItem is the mark of what an item is about to be, as far as settle would have it.
func (a *applier) begunItem(it *Item) Mark {
	made := a.makes(it) || slices.ContainsFunc(a.marks[a.wasAt(it.Path)], func(m Mark) bool { return m.Made })
	return Mark{Path: it.Path, Self: it.Self, Made: made}
}

// begunAround adds the directories that a path is in, up to the first that is there: its change time is about to be another.
func (a *applier) begunAround(marks []Mark, seen map[string]bool, rel string) []Mark {
	for rel != "." {
		if rel, _ = splitPath(rel); seen[rel] {
			break
		}
		seen[rel] = true
		m, there := a.anyTime(rel)
		marks = append(marks, m)
		if there {
			break
		}
	}
	return marks
}

// anyTime is the mark of a directory whose change time is about to be another, or which is about to be made.
func (a *applier) anyTime(dir string) (m Mark, there bool) {
	if m, err := a.base.Stamp(dir); err == nil {
		for _, was := range a.marks[a.wasAt(dir)] {
			m.Made = m.Made || was.same(m) && was.Made
		}
		m.CTime, m.Begun = 0, &Begun{Kind: Dir}
		return m, true
	}
	return Mark{Path: dir, Begun: &Begun{Kind: Dir}}, false
}

// noteFiles notes files that are written aside.
func (a *applier) noteFiles(files []stagedFile) error {
	if a.opts.Note == nil {
		return nil
	}
	marks := make([]Mark, len(files))
	for i := range files {
		s := &files[i]
		st, err := statFile(s.f)
		if err != nil {
			return err
		}
		m := a.begunItem(s.it)
		m.Dev, m.Ino, m.Born = st.Dev, st.Ino, beneath.Born(s.f)
		m.Begun = &Begun{Kind: File, MTime: st.Mtim.Nano(), Size: st.Size}
		marks[i] = m
	}
	return a.note(marks)
}
