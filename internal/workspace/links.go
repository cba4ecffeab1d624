package workspace

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A name that Apply removes, or puts another file at, is one of several that a
// file may have. The change time of the file then moves for the names that are
// left, in the base or elsewhere, and would look like a change of the host's.

// inode identifies a file whatever its names are.
type inode struct{ dev, ino uint64 }

func (s stamp) inode() inode { return inode{s.dev, s.ino} }

// lostName is what is known of a file that has lost names to Apply.
type lostName struct {
	path   string // the last of them
	before int64  // its change time before the first, in ns
	now    int64  // and after the last
	left   uint64 // how many it has then
	clean  bool   // before was no change of the host's
}

// drop calls remove, by which name in dir, which is at rel, leads to its file no
// more, and notes what that did to the file where it has other names.
func (a *applier) drop(dir *os.File, name, rel string, remove func() error) error {
	f, err := openAt(dir, name, unix.O_PATH, 0)
	if err != nil {
		return remove()
	}
	defer f.Close()
	was, err := statFile(f)
	if err != nil || was.Nlink < 2 || was.Mode&unix.S_IFMT == unix.S_IFDIR {
		return remove()
	}
	if err := remove(); err != nil {
		return err
	}
	if is, err := statFile(f); err == nil {
		a.lost(rel, &was, &is)
	}
	return nil
}

// lost notes that a file has a name less. What else happened to it meanwhile is not
// ours, and is left to be noticed.
func (a *applier) lost(rel string, was, is *unix.Stat_t) {
	before, now := newStamp(was), newStamp(is)
	id := before.inode()
	known, ok := a.lostNames[id]
	if !ok || known.now != before.ctime {
		known = lostName{before: before.ctime, clean: !a.changed(rel, before)}
	}
	now.ctime, now.linked = before.ctime, before.linked
	if now != before || is.Nlink != was.Nlink-1 {
		delete(a.lostNames, id)
		return
	}
	known.path, known.now, known.left = rel, is.Ctim.Nano(), uint64(is.Nlink)
	a.lostNames[id] = known
}

// asFound returns the stamp of st as it would be with the names that Apply
// removed. Where somebody else has changed the file since, it is as it is.
func (a *applier) asFound(st *unix.Stat_t) stamp {
	s := newStamp(st)
	if l, ok := a.lostNames[s.inode()]; ok && l.now == s.ctime && l.left == uint64(st.Nlink) {
		s.ctime, s.linked = l.before, true
	}
	return s
}

// markLost adds the marks of files that have names left.
func (a *applier) markLost(marks map[markKey]Mark) {
	for id, l := range a.lostNames {
		if l.clean {
			m := Mark{Path: l.path, Dev: id.dev, Ino: id.ino, CTime: l.now, Others: true}
			marks[m.key()] = m
		}
	}
}

// markKey tells marks apart: there is one for a path, and one for a file that lost
// a name.
type markKey struct {
	path string
	file inode
}

func (m Mark) key() markKey {
	if m.Others {
		return markKey{file: inode{m.Dev, m.Ino}}
	}
	return markKey{path: m.Path}
}

// maxOthers is how many marks of files that lost a name are kept. One that is not
// makes a change of the sandbox's to another of its names a conflict.
const maxOthers = 1 << 16

// LastMarks returns the last of marks for each path, and for each file that lost a
// name.
func LastMarks(marks []Mark) []Mark {
	last := make(map[markKey]int, len(marks))
	for i, m := range marks {
		last[m.key()] = i
	}
	var kept []Mark
	others := 0
	for i, m := range slices.Backward(marks) {
		if m.Others {
			others++
		}
		if last[m.key()] == i && (!m.Others || others <= maxOthers) {
			kept = append(kept, m)
		}
	}
	slices.Reverse(kept)
	return kept
}
