package workspace

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// A directory that was renamed in the workspace is renamed in the base, where all of that is taken: what is in it
// is not written anew, and a sandbox that runs, and has the base's open, has it open still. What differs then is
// found by another look, and written as ever.

// move of a directory of the base, in its place to which it went in the workspace.
type move struct{ from, to string }

// carryOut does what is planned.
func (a *applier) carryOut() error {
	plan := a.plan
	moved, err := a.moveDirs()
	if err == nil && moved {
		a.whole = plan
		a.moveMarks()
		err = a.lookAgain()
	}
	if err == nil {
		err = a.noteBegun()
	}
	if err != nil {
		a.plan = nil
		return errors.Join(err, a.settle())
	}
	return a.commit()
}

// lookAgain makes the plan of what differs still.
func (a *applier) lookAgain() error {
	diff, err := Compare(a.ctx, a.base, a.set, a.opts.compare())
	if err != nil {
		return err
	}
	a.plan, a.dirs = nil, map[string]bool{}
	a.result.Held, a.result.Declined = []Item{}, []Item{}
	if err := a.preflight(diff); err != nil {
		if len(a.result.Conflicts) == 0 {
			return err
		}
		return sandbox.Errorf(sandbox.Conflict, "apply: %s: %w", term.Escape(a.result.Conflicts[0].Item.Path), errMoved).
			WithHint("directories were renamed, and no more; look again: carboy diff")
	}
	return nil
}

// addWhole adds what was done by renaming to what was applied: the rest of the plan as it was before.
func (a *applier) addWhole() {
	not := map[string]bool{}
	for i := range a.result.Held {
		not[a.result.Held[i].Path] = true
	}
	for i := range a.result.Conflicts {
		not[a.result.Conflicts[i].Item.Path] = true
	}
	was := make(map[string]int, len(a.whole))
	for i := range a.result.Applied {
		was[a.result.Applied[i].Path] = i
	}
	for _, it := range a.whole {
		if i, ok := was[it.Path]; ok {
			a.result.Applied[i] = *it // as it was found at first
		} else if !not[it.Path] {
			a.result.Applied = append(a.result.Applied, *it)
		}
	}
}

// moveDirs renames directories of the base as the workspace has them, as far as the plan has both places and
// nothing stands at the new one. It reports whether it did any.
func (a *applier) moveDirs() (any bool, err error) {
	if a.opts.Confirm != nil || a.opts.Force || a.opts.DryRun {
		return false, nil // what is asked for is this change or that
	}
	added, moves := a.planMoves()
	if len(moves) == 0 {
		return false, nil
	}
	if err := a.note(a.marksAlong(moves)); err != nil {
		return false, err
	}
	for i, m := range moves {
		if below(m.to, m.from) || a.opts.Still != nil && !a.opts.Still() {
			continue
		}
		done, err := a.moveDir(m, added[m.to].Origin)
		if err != nil {
			return any, err
		}
		if !done {
			continue
		}
		any = true
		for j := range moves[i+1:] { // what was in it went along
			if next := &moves[i+1+j]; below(next.from, m.from) {
				next.from = m.to + next.from[len(m.from):]
			}
		}
	}
	a.base.forget()
	return any, nil
}

// planMoves lists the directories that may be renamed, and the new ones that the plan has.
func (a *applier) planMoves() (added map[string]*Item, moves []move) {
	added = map[string]*Item{}
	for _, it := range a.plan {
		if it.Class == Added && it.Kind == Dir {
			added[it.Path] = it
		}
	}
	for _, it := range a.plan {
		if it.Class != Removed || it.Was != Dir {
			continue
		}
		for _, m := range it.moves {
			if added[m.to] != nil {
				moves = append(moves, m)
			}
		}
	}
	return added, moves
}

// marksAlong is where moves may put what applies left, with the directories whose change times are about to be others.
func (a *applier) marksAlong(moves []move) (marks []Mark) {
	all := slices.Clone(a.opts.Applied)
	for _, b := range a.opts.Brought {
		all = append(all, b.Mark)
	}
	seen := map[string]bool{}
	for _, move := range outermost(moves) {
		for _, m := range all {
			if !m.Others && below(m.Path, move.from) {
				m.Path, m.Begun = move.to+m.Path[len(move.from):], &Begun{}
				marks = append(marks, m)
			}
		}
		if m, there := a.anyTime(move.from); there {
			m.Path = move.to
			marks = append(marks, m)
		}
		marks = a.begunAround(marks, seen, move.from)
		marks = a.begunAround(marks, seen, move.to)
	}
	return marks
}

// outermost leaves out the moves that others do as well, with a directory around.
func outermost(moves []move) []move {
	goes := make(map[string]string, len(moves))
	return slices.DeleteFunc(slices.Clone(moves), func(m move) bool {
		for p, _ := splitPath(m.from); p != "."; p, _ = splitPath(p) {
			if to, ok := goes[p]; ok && m.to == to+m.from[len(p):] {
				return true
			}
		}
		goes[m.from] = m.to
		return false
	})
}

// moveDir renames one directory, unless something is not as it was, or the file system can't.
func (a *applier) moveDir(m move, origin Origin) (bool, error) {
	near, err := a.ownNew(m.to)
	if err != nil {
		return false, ignoreMoved(err)
	}
	defer near.Close()
	defer a.ownTouch(near)()
	to, toName, err := a.parent(m.to)
	if err != nil {
		return false, ignoreMoved(err)
	}
	up, _ := splitPath(m.from)
	from, err := a.base.openDir(up)
	if err != nil {
		return false, ignoreMoved(err)
	}
	defer from.Close()
	_, name := splitPath(m.from)
	if identify(from, name) != origin {
		return false, nil
	}
	sub, err := openBeneath(from, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false, nil
	}
	defer sub.Close()
	own := a.ownTouch(from, to, sub)
	defer own()
	err = unix.Renameat2(int(from.Fd()), name, int(to.Fd()), toName, unix.RENAME_NOREPLACE)
	if err != nil {
		return false, nil // it is written anew, and the old one removed
	}
	a.moved = append(a.moved, m)
	above, _ := splitPath(m.to)
	a.touched[up], a.touched[above], a.touched[m.to] = true, true, true
	a.base.forget()
	return true, nil
}

// ownTime is what renames did to a directory's change time.
type ownTime struct{ was, is int64 }

// ownTouch has the change times of directories, as a rename leaves them, count as those before.
func (a *applier) ownTouch(dirs ...*os.File) (after func()) {
	was := make([]int64, len(dirs))
	for i, d := range dirs {
		if st, err := statFile(d); err == nil {
			was[i] = a.ctime(newStamp(&st))
		}
	}
	return func() {
		for i, d := range dirs {
			if st, err := statFile(d); err == nil {
				a.own[inode{st.Dev, st.Ino}] = ownTime{was[i], st.Ctim.Nano()}
			}
		}
	}
}

// ownNew has directories around a path that are not there yet count as old ones once they are: this apply makes
// them. It returns the one that they will be in.
func (a *applier) ownNew(rel string) (*os.File, error) {
	p, _ := splitPath(rel)
	for ; p != "."; p, _ = splitPath(p) {
		st, err := a.base.stat(p)
		if err != nil {
			return nil, err
		}
		if st != nil {
			break
		}
		a.made[p] = true
	}
	return a.base.openDir(p)
}

// wasAt is the path of something of the base before this apply renamed directories.
func (a *applier) wasAt(rel string) string {
	for _, m := range slices.Backward(a.moved) {
		if below(rel, m.to) {
			rel = m.from + rel[len(m.to):]
		}
	}
	return rel
}

// moveMarks has what applies and syncs left known where it is now. marks stays as it is: it is asked by wasAt.
func (a *applier) moveMarks() {
	now := func(rel string) string {
		for _, m := range a.moved {
			if below(rel, m.from) {
				rel = m.to + rel[len(m.from):]
			}
		}
		return rel
	}
	applied := slices.Clone(a.opts.Applied)
	for i := range applied {
		applied[i].Path = now(applied[i].Path)
	}
	for _, b := range a.opts.Brought {
		if p := now(b.Path); p != b.Path {
			b.Path = p
			applied = append(applied, b.Mark)
		}
	}
	a.opts.Applied = applied
}

// ctime is a directory's change time, but for what this apply did to it.
func (a *applier) ctime(s stamp) int64 {
	if own, ok := a.own[s.inode()]; ok && own.is == s.ctime {
		return own.was
	}
	return s.ctime
}

// ignoreMoved drops an error that only says that the base is not as it was: that is told where it is written to.
func ignoreMoved(err error) error {
	if moved(err) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}
