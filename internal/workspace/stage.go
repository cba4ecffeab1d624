package workspace

import (
	"cmp"
	"os"

	"golang.org/x/sys/unix"
)

// stage holds files that are written and not yet in place. Several are synced
// together: the file system then commits its journal once for all of them
// instead of once for each.
type stage struct {
	files []stagedFile
	bytes int64
}

type stagedFile struct {
	it   *Item // as planned
	rest Item  // as write left it
	f    *os.File
	temp string // its temporary name, or none
}

// Bounds of a stage: open files, and bytes that would be lost with it.
const (
	stageFiles = 128
	stageBytes = 64 << 20
)

func (s *stage) full() bool { return len(s.files) >= stageFiles || s.bytes >= stageBytes }

// stageFile writes a file aside.
func (a *applier) stageFile(dir *os.File, name string, it, rest *Item) error {
	f, temp, err := newTemp(dir, it.Mode&0o777)
	if err != nil {
		return err
	}
	if it.Class == ModeChanged {
		err = a.copyBase(f, dir, name, it)
	} else {
		err = a.set.copyTo(a.ctx, it.entry, f)
	}
	if err == nil {
		err = a.setMode(f, rest)
	}
	if err != nil {
		f.Close()
		dropTemp(dir, temp)
		return err
	}
	a.stage.files = append(a.stage.files, stagedFile{it, *rest, f, temp})
	a.stage.bytes += it.Size
	if it.Was == Dir {
		a.stage.bytes = stageBytes // its place is empty: don't wait
	}
	return nil
}

// copyBase copies to out the file that it is to replace, as it was compared.
func (a *applier) copyBase(out, dir *os.File, name string, it *Item) error {
	f, st, err := openFileAt(dir, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if !newStamp(&st).same(it.base) {
		return errMoved
	}
	n, err := copyRange(a.ctx, out, f, 0, 0, st.Size)
	if err == nil && n < st.Size {
		err = errMoved
	}
	return err
}

// flush syncs the staged files and puts each in place, in one step. There may
// be many, so all are written before any is waited for, and each is compared
// with what is there. After an error it goes on with what can be placed and returns the first.
func (a *applier) flush() error {
	files := a.stage.files
	a.stage = stage{files: files[:0]}
	for i := range files { // begin to write all before waiting for any
		_ = unix.SyncFileRange(int(files[i].f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	errs := make([]error, len(files))
	for i := range files {
		errs[i] = files[i].f.Sync()
	}
	if err := a.noteFiles(files); err != nil {
		for i := range errs {
			errs[i] = cmp.Or(errs[i], err)
		}
	}
	var first error
	for i := range files {
		err := a.done(files[i].it, a.place(&files[i], errs[i]))
		files[i].f.Close()
		if first == nil {
			first = err
		}
	}
	clear(files)
	return first
}

// place puts a staged file where it belongs, or, if it could not be synced,
// drops it.
func (a *applier) place(s *stagedFile, failed error) error {
	dir, name, err := a.parent(s.rest.Path)
	if err != nil {
		return err // with the directory gone, so is what was staged in it
	}
	switch {
	case failed != nil:
		dropTemp(dir, s.temp)
		return failed
	case s.rest.Was == "":
		return placeNew(dir, s.f, s.temp, name)
	case s.temp == "":
		s.temp = tempName()
		if err := linkFile(s.f, dir, s.temp); err != nil {
			return err
		}
	}
	return a.replace(dir, s.temp, name, &s.rest)
}
