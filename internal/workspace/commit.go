package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// errMoved says that a path was changed on the host while Apply ran.
var errMoved = errors.New("it changed on the host while changes were applied")

type dirMode struct {
	path string
	mode uint32
}

// commit writes the plan. What changed on the host meanwhile is left alone and
// becomes a conflict; any other error ends it.
func (a *applier) commit() error {
	var failed error
	for _, it := range a.plan {
		if failed = context.Cause(a.ctx); failed != nil {
			break
		}
		staged, err := a.write(it)
		if !staged {
			err = a.done(it, err)
		}
		if err == nil && a.stage.full() {
			err = a.flush()
		}
		if failed = err; failed != nil {
			break
		}
	}
	if err := a.flush(); failed == nil {
		failed = err
	}
	if failed == nil {
		a.addWhole()
	}
	if err := a.settle(); failed == nil && err != nil {
		failed = noRoom("apply", err)
	}
	switch n := len(a.result.Conflicts); {
	case failed != nil:
		return failed
	case n > 0:
		return sandbox.Errorf(sandbox.Conflict, "apply: %s: %w", term.Escape(a.result.Conflicts[0].Item.Path), errMoved).
			WithHint("the other changes were applied; look again: carboy diff")
	}
	return nil
}

// done notes how an item ended, and returns an error that ends all.
func (a *applier) done(it *Item, err error) error {
	switch {
	case err == nil:
		a.result.Applied = append(a.result.Applied, *it)
	case moved(err):
		a.result.Conflicts = append(a.result.Conflicts, Outcome{Item: *it, Reason: errMoved.Error()})
	default:
		return noRoom("apply "+term.Escape(it.Path), err)
	}
	return nil
}

// moved reports whether an error means that the base is not as it was when it
// was compared.
func moved(err error) bool {
	return errors.Is(err, errMoved) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) ||
		errors.Is(err, unix.EXDEV) || errors.Is(err, errMount) || err != nil && gone(err)
}

// write applies one item. Of a file it reports that it is staged: it is
// written, and flush puts it in place.
func (a *applier) write(it *Item) (staged bool, err error) {
	dir, name, err := a.parent(it.Path)
	if err != nil {
		return false, err
	}
	if now, err := stampAt(dir, name); err != nil || !now.same(it.base) {
		if err == nil {
			err = errMoved
		}
		return false, err
	}
	parent, _ := splitPath(it.Path)
	a.touched[parent] = true
	rest := *it // what is left to do once a directory is out of the way
	if it.Was == Dir {
		if err := a.removeTree(it); err != nil || it.Kind == Deleted {
			return false, err
		}
		rest.Was, rest.base = "", stamp{}
		if dir, name, err = a.parent(it.Path); err != nil {
			return false, err
		}
	}
	switch {
	case it.Kind == Deleted:
		err = a.drop(dir, name, it.Path, func() error { return unix.Unlinkat(int(dir.Fd()), name, 0) })
	case it.Class == ModeChanged && !it.base.linked: // else what has its other names would change
		err = a.chmod(dir, name, &rest)
	case it.Kind == Dir:
		err = a.makeDir(dir, name, &rest)
	case it.Kind == Symlink:
		err = a.makeLink(dir, name, &rest)
	default:
		err = a.stageFile(dir, name, it, &rest)
		return err == nil, err
	}
	return false, err
}

// stampAt returns the stamp of name in dir, zero where there is nothing.
func stampAt(dir *os.File, name string) (stamp, error) {
	st, err := statAt(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return stamp{}, nil
	}
	return newStamp(&st), err
}

// parent returns the open directory that an item is to be in. Directories on
// the way that the host lacks are made as the workspace has them.
func (a *applier) parent(rel string) (*os.File, string, error) {
	dir, name, err := a.base.in(rel)
	if !errors.Is(err, unix.ENOENT) {
		return dir, name, err
	}
	up, _ := splitPath(rel)
	e := a.set.find(up)
	if e == nil || e.Kind != Dir {
		return nil, "", errMoved
	}
	updir, upname, err := a.parent(up)
	if err != nil {
		return nil, "", err
	}
	above, _ := splitPath(up)
	a.touched[above] = true
	if err := a.makeDir(updir, upname, &Item{Change: e.Change}); err != nil {
		return nil, "", err
	}
	return a.base.in(rel)
}

// makeDir makes a directory, in place of the file or link that is there. It
// gets its mode less the umask when it is full: until then its owner can write.
func (a *applier) makeDir(dir *os.File, name string, it *Item) error {
	fd := int(dir.Fd())
	mode := it.Mode & 0o777
	if mode&0o700 != 0o700 {
		a.modes = append(a.modes, dirMode{it.Path, mode})
	}
	a.touched[it.Path] = true
	if it.Was == "" {
		return unix.Mkdirat(fd, name, mode|0o700)
	}
	return a.drop(dir, name, it.Path, func() error { return replaceByDir(fd, name, mode) })
}

// replaceByDir makes a directory in the place of a file or link.
func replaceByDir(fd int, name string, mode uint32) error {
	temp := tempName()
	if err := unix.Mkdirat(fd, temp, mode|0o700); err != nil {
		return err
	}
	err := unix.Renameat2(fd, temp, fd, name, unix.RENAME_EXCHANGE)
	if err == nil {
		return unix.Unlinkat(fd, temp, 0)
	}
	if errors.Is(err, unix.EINVAL) { // a file system that can't exchange
		if err = unix.Unlinkat(fd, name, 0); err == nil {
			err = unix.Renameat2(fd, temp, fd, name, 0)
		}
	}
	if err != nil {
		_ = unix.Unlinkat(fd, temp, unix.AT_REMOVEDIR)
	}
	return err
}

func (a *applier) makeLink(dir *os.File, name string, it *Item) error {
	fd := int(dir.Fd())
	if it.Was == "" {
		return unix.Symlinkat(it.Target, fd, name)
	}
	temp := tempName()
	if err := unix.Symlinkat(it.Target, fd, temp); err != nil {
		return err
	}
	return a.replace(dir, temp, name, it)
}

// replace puts temp in name's place, if that is still what was compared.
func (a *applier) replace(dir *os.File, temp, name string, it *Item) error {
	fd := int(dir.Fd())
	now, err := stampAt(dir, name)
	if err == nil && !now.same(it.base) {
		err = errMoved
	}
	if err == nil {
		err = a.drop(dir, name, it.Path, func() error { return unix.Renameat(fd, temp, fd, name) })
	}
	if err != nil {
		_ = unix.Unlinkat(fd, temp, 0)
	}
	return err
}

// setMode gives a new file the mode and owner of the file that it replaces.
func (a *applier) setMode(f *os.File, it *Item) error {
	st, err := statFile(f)
	if err != nil {
		return err
	}
	mode := st.Mode & 0o777
	if it.Was == File {
		mode = mergeMode(it.base.mode, it.Mode)
		if st.Uid != it.base.uid || st.Gid != it.base.gid {
			// Only root can give a file away; others keep it, and its group
			// if they are in it.
			if err := unix.Fchown(int(f.Fd()), int(it.base.uid), int(it.base.gid)); err != nil {
				_ = unix.Fchown(int(f.Fd()), -1, int(it.base.gid))
			}
		}
	}
	mode |= a.setID(it)
	if mode == st.Mode&0o7777 {
		return nil
	}
	return unix.Fchmod(int(f.Fd()), mode)
}

// setID returns the set-id bits that an item may have: none, unless the user
// named this very file.
func (a *applier) setID(it *Item) uint32 {
	for _, p := range a.allow {
		if p == it.Path {
			return it.Mode & 0o6000
		}
	}
	return 0
}

// mergeMode is the mode of a file that the host has: its own, executable if
// the workspace's is, for each user who can read it.
func mergeMode(host, change uint32) uint32 {
	mode := host & 0o777
	switch {
	case executable(change) == executable(host):
		return mode
	case executable(change):
		return mode | 0o100 | mode&0o444>>2
	}
	return mode &^ 0o111
}

func (a *applier) chmod(dir *os.File, name string, it *Item) error {
	f, st, err := openFileAt(dir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if !newStamp(&st).same(it.base) {
		return errMoved
	}
	return unix.Fchmod(int(f.Fd()), mergeMode(st.Mode, it.Mode)|a.setID(it))
}

// removeTree removes a directory of the base and what is in it, as long as it
// is as it was compared, and, unless it is forced, as it was when the workspace
// was made.
func (a *applier) removeTree(it *Item) error {
	sum := newTreeSum()
	err := a.base.walk(a.ctx, it.Path, func(rel string, st *unix.Stat_t) error {
		sum.add(rel, a.asFound(st))
		return nil
	})
	if err == nil && sum.sum() != it.tree {
		err = errMoved
	}
	if err != nil {
		return err
	}
	a.base.forget() // it may be what is removed
	parent, name, err := a.base.in(it.Path)
	if err != nil {
		return err
	}
	return a.removeDir(parent, name, it.Path, keptDirs(it))
}

// removeDir removes a directory and what is in it, but for those directories that are kept.
func (a *applier) removeDir(parent *os.File, name, rel string, kept map[string]bool) error {
	d, err := openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := listDir(d)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := context.Cause(a.ctx); err != nil {
			return err
		}
		st, err := statAt(d, n)
		if err != nil {
			return err
		}
		p := joinPath(rel, n)
		if !a.opts.Force && a.changed(p, a.asFound(&st)) {
			return errMoved
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = a.removeDir(d, n, p, kept)
		} else {
			err = a.drop(d, n, p, func() error { return unix.Unlinkat(int(d.Fd()), n, 0) })
		}
		if err != nil {
			return err
		}
	}
	if kept[rel] {
		a.touched[rel] = true
		return nil
	}
	return unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
}

// settle gives new directories their modes, syncs what was written to, and
// notes how Apply left things. What comes after is younger.
func (a *applier) settle() error {
	a.base.forget()
	slices.SortFunc(a.result.Applied, func(a, b Item) int { return comparePaths(a.Path, b.Path) })
	marks := map[markKey]Mark{}
	for _, m := range a.opts.Applied {
		marks[m.key()] = m
	}
	a.markLost(marks)
	for _, it := range a.result.Applied {
		key := markKey{path: it.Path}
		was := marks[key]
		a.mark(marks, it.Path)
		if m, ok := marks[key]; ok {
			m.Self, m.Made = it.Self, was.Made || a.makes(&it)
			marks[key] = m
		}
	}
	var errs []error
	for i := len(a.modes) - 1; i >= 0; i-- {
		errs = append(errs, a.settleMode(a.modes[i]))
	}
	for dir := range a.touched {
		errs = append(errs, a.syncDir(dir))
		a.mark(marks, dir)
	}
	a.forgetGone(marks)
	for _, m := range marks {
		a.result.Marks = append(a.result.Marks, m)
	}
	sortMarks(a.result.Marks)
	outlast(a.result.Marks)
	return errors.Join(errs...)
}

// forgetGone drops the marks of what went with a directory: another file may have its inode soon.
func (a *applier) forgetGone(marks map[markKey]Mark) {
	gone := map[string]bool{}
	for i := range a.result.Applied {
		if it := &a.result.Applied[i]; it.Was == Dir && it.Kind != Dir {
			gone[it.Path] = true
		}
	}
	for key := range marks {
		for p := key.path; len(gone) > 0 && p != "" && p != "."; p, _ = splitPath(p) {
			if gone[p] {
				a.mark(marks, key.path)
				break
			}
		}
	}
}

// makes reports whether an item that was applied is Made. A directory that a copy began with is not named in a stream
// unless something in it is another.
func (a *applier) makes(it *Item) bool {
	if it.Kind == Dir && it.Copied && a.set.header.Apart {
		return false
	}
	return it.Class == Added || it.Class == TypeChanged && it.Kind == Dir
}

func (a *applier) settleMode(m dirMode) error {
	d, err := a.base.openDir(m.path)
	if err != nil {
		return nil // it was not made, or is no longer there
	}
	defer d.Close()
	st, err := statFile(d)
	if err != nil {
		return err
	}
	return unix.Fchmod(int(d.Fd()), st.Mode&0o7777&^(0o700&^m.mode))
}

func (a *applier) syncDir(rel string) error {
	d, err := a.base.openDir(rel)
	if err != nil {
		return nil // removed since, with what is above it
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("sync %s: %w", term.Escape(rel), err)
	}
	return nil
}

func (a *applier) mark(marks map[markKey]Mark, rel string) {
	m, err := a.base.Stamp(rel)
	if err != nil {
		delete(marks, markKey{path: rel})
		return
	}
	if was := marks[markKey{path: rel}]; was.same(m) {
		m.Self, m.Made = was.Self, was.Made
	}
	marks[markKey{path: rel}] = m
}
