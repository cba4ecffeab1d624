package jail

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// ErrBusy says that something has a file of a mount open for writing, or mapped so.
var ErrBusy = errors.New("a file is open for writing")

// OccupiedError says that somebody is in a directory that was a part, and has to be mounted anew within another.
type OccupiedError struct{ Dir string }

// Error implements error.
func (e *OccupiedError) Error() string { return e.Dir + " is in use" }

// Part is a directory, and whether it and what is below are read-only, but for other parts in it.
type Part struct {
	Path     string
	ReadOnly bool
}

// Access is which parts of a mount are read-only. What is in none can be written to.
type Access struct {
	Mount string
	Parts []Part // at Mount or below, as control.CheckLock has them
}

// readOnly is what the innermost part around a path says.
func (a Access) readOnly(p string) bool {
	is := false
	for _, part := range a.Parts { // one around another comes before it
		if within(p, part.Path) {
			is = part.ReadOnly
		}
	}
	return is
}

// dirs are the parts that have to be mounts of their own.
func (a Access) dirs() (list []string) {
	for _, p := range a.Parts {
		if p.Path != a.Mount {
			list = append(list, p.Path)
		}
	}
	return list
}

// pins are the directories that lead to parts and can be written to: nobody renames a mount, and with it what is in it.
func (a Access) pins() (list []string) {
	dirs := a.dirs()
	for _, dir := range dirs {
		for dir = filepath.Dir(dir); dir != a.Mount; dir = filepath.Dir(dir) {
			if !slices.Contains(dirs, dir) && !slices.Contains(list, dir) && !a.readOnly(dir) {
				list = append(list, dir)
			}
		}
	}
	return list
}

// maxMounts bounds the directories that are mounts for one Access: each is one in every mount namespace.
const maxMounts = 512

// mounts are the directories that have to be mounts of their own; what is around another comes first.
func (a Access) mounts() ([]string, error) {
	list := slices.Concat(a.dirs(), a.pins())
	if len(list) > maxMounts {
		return nil, fmt.Errorf("%d directories are parts or lead to them: more than %d", len(list), maxMounts)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// Covered is what SetAccess has mounted over itself: what was opened there before keeps the mount below.
type Covered struct {
	Dirs []string // that are read-only now
	Pins []string // that lead to such: from one of those below they would be reached by no mount
}

func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// SetAccess makes parts of a mount read-only, and the rest writable, wherever commands and the agent see it, and where
// later ones will. Each part becomes a mount of its own, and so does each directory that leads to one, so that another directory
// can't be renamed to be it, and nothing can be moved or linked out of it.
//
// Files of the mount that are open for writing are in the way of making all of it read-only: ErrBusy. For a directory that
// is covered so, what was opened before keeps the mount below: covered is called with these once all is done, while nothing can
// use them, and its error ends it. After any error all is as it was. That what is read-only can't be written to is tried.
func (j *Jail) SetAccess(want Access, covered func(Covered) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return errors.New("the jail is closed")
	}
	wanted, err := want.mounts()
	if err != nil {
		return err
	}
	known := j.covers[want.Mount]
	all := slices.Concat(known, wanted)
	slices.Sort(all)
	all = slices.Compact(all)
	fresh := map[string]bool{}
	spaces := j.mountSpaces()
	done := 0
	for ; done < len(spaces) && err == nil; done++ {
		err = inMounts(spaces[done], func() error { return arrange(want, known, fresh) })
	}
	if now := want.coveredBy(fresh); err == nil && covered != nil && len(now.Dirs)+len(now.Pins) > 0 {
		err = covered(now)
	}
	if err != nil {
		was := Access{Mount: want.Mount, Parts: j.access[want.Mount]}
		for _, ns := range slices.Backward(spaces[:done]) {
			err = errors.Join(err, inMounts(ns, func() error { return arrange(was, all, map[string]bool{}) }))
		}
		return err
	}
	if j.access == nil {
		j.access, j.covers = map[string][]Part{}, map[string][]string{}
	}
	j.access[want.Mount], j.covers[want.Mount] = want.Parts, all
	if !j.shedding {
		j.shedding = true
		j.done.Go(func() { j.shed(want.Mount) })
	}
	return nil
}

// shedAgain is between two attempts at mounts that are not wanted any more, and that somebody is in.
const shedAgain = time.Second

// shed unmounts what is not wanted any more once nobody is in it: until then nothing can be moved across it.
func (j *Jail) shed(mount string) {
	for {
		j.mu.Lock()
		left := !j.closed && j.unmount(mount)
		j.shedding = left
		j.mu.Unlock()
		if !left {
			return
		}
		select {
		case <-j.stop:
			return
		case <-time.After(shedAgain):
		}
	}
}

// unmount tries that once, and reports whether something is left.
func (j *Jail) unmount(mount string) (left bool) {
	wanted, err := Access{Mount: mount, Parts: j.access[mount]}.mounts()
	if err != nil {
		return false
	}
	var gone []string
	for _, dir := range j.covers[mount] {
		if !slices.ContainsFunc(wanted, func(w string) bool { return within(w, dir) }) {
			gone = append(gone, dir)
		}
	}
	for _, ns := range j.mountSpaces() {
		err := inMounts(ns, func() error {
			mounts, err := mountsHere()
			for _, dir := range slices.Backward(gone) { // what is within comes first
				if _, ok := mounts[dir]; ok && unix.Unmount(dir, 0) != nil {
					left = true
				}
			}
			return err
		})
		left = left || err != nil
	}
	if !left {
		j.covers[mount] = slices.DeleteFunc(slices.Clone(j.covers[mount]), func(dir string) bool { return slices.Contains(gone, dir) })
	}
	return left
}

// coveredBy is what somebody may have below what was mounted or changed.
func (a Access) coveredBy(fresh map[string]bool) (c Covered) {
	dirs, pins := a.dirs(), a.pins()
	for _, dir := range slices.Sorted(maps.Keys(fresh)) {
		switch {
		case !fresh[dir]:
		case slices.Contains(pins, dir):
			c.Pins = append(c.Pins, dir)
		case slices.Contains(dirs, dir) && a.readOnly(dir):
			c.Dirs = append(c.Dirs, dir)
		}
	}
	return c
}

// Access is what SetAccess made of a mount.
func (j *Jail) Access(mount string) []Part {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.access[mount]
}

// mountSpaces are the mount namespaces there are: the agent's own, which is nil, of which later cells have copies, and
// nobody makes one while mu is held; that of the first cell, in which services go on; and that of the cell.
func (j *Jail) mountSpaces() []*os.File {
	spaces := []*os.File{nil, j.mountNS}
	if ns := j.cell.mounts(); ns != nil && !sameFile(ns, j.mountNS) {
		spaces = append(spaces, ns)
	}
	return spaces
}

// arrange makes the mounts of the calling thread's namespace those of want. known are directories that are mounts for it
// already, where they are mounts at all; fresh gets those that are covered now, or changed.
func arrange(want Access, known []string, fresh map[string]bool) error {
	mounts, err := mountsHere()
	if err != nil {
		return err
	}
	if _, ok := mounts[want.Mount]; !ok {
		return fmt.Errorf("%s is not a mount of its own", want.Mount)
	}
	wanted, err := want.mounts()
	if err != nil {
		return err
	}
	for _, dir := range wanted {
		_, ok := mounts[dir]
		if ok && slices.Contains(known, dir) {
			continue
		}
		if err := apart(mounts, known, dir); err != nil {
			return err
		}
		if err := cover(want.Mount, dir); err != nil {
			return err
		}
		fresh[dir] = true
	}
	if mounts, err = mountsHere(); err != nil {
		return err
	}
	for _, dir := range slices.Concat([]string{want.Mount}, known, wanted) {
		m, ok := mounts[dir]
		if !ok {
			continue
		}
		changed, err := setReadOnly(m, want.readOnly(dir))
		if err != nil {
			return err
		}
		fresh[dir] = fresh[dir] || changed
	}
	for _, dir := range slices.Backward(known) { // what is within comes first
		if _, ok := mounts[dir]; ok && !slices.Contains(wanted, dir) {
			_ = unix.Unmount(dir, 0) // unless somebody is in it: then it is as what is around it
		}
	}
	return nil
}

// apart sees to it that nothing is mounted at a directory or in it. What is for other parts is mounted anew afterwards.
func apart(mounts map[string]mountPoint, known []string, dir string) error {
	for _, inner := range slices.Backward(slices.Sorted(maps.Keys(mounts))) {
		switch {
		case !within(inner, dir):
			continue
		case inner == dir:
			return fmt.Errorf("%s is a mount of its own, which is left as it is", dir)
		case !slices.Contains(known, inner):
			return fmt.Errorf("%s is mounted in %s, and what has a mount in it can't be locked apart, nor can what it leads to", inner, dir)
		}
		err := unix.Unmount(inner, 0)
		if errors.Is(err, unix.EBUSY) {
			return &OccupiedError{inner}
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", inner, err)
		}
		delete(mounts, inner)
	}
	return nil
}

// cover mounts a directory of a mount over itself.
func cover(mount, dir string) error {
	was, err := identify(mount, dir)
	if err != nil {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	mounts, err := mountsHere()
	if err == nil {
		var is [2]uint64
		is, err = identify(mount, dir)
		if _, ok := mounts[dir]; err == nil && (!ok || is != was) { // somebody who shares it has put another there
			err = fmt.Errorf("mount %s: it changed meanwhile", dir)
		}
	}
	if err != nil {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
	}
	return err
}

// identify says which directory is at a path below a mount, to which no link may lead.
func identify(mount, dir string) (id [2]uint64, err error) {
	top, err := unix.Open(mount, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return id, &os.PathError{Op: "open", Path: mount, Err: err}
	}
	defer unix.Close(top)
	fd, err := beneath.OpenNoLinks(top, strings.TrimPrefix(dir, mount+"/"), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return id, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return id, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return [2]uint64{st.Dev, st.Ino}, nil
}

// setReadOnly remounts, unless that changes nothing.
func setReadOnly(m mountPoint, readOnly bool) (changed bool, err error) {
	if m.readOnly == readOnly {
		return false, nil
	}
	flags := unix.MS_BIND | unix.MS_REMOUNT | m.flags
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	err = unix.Mount("", m.path, "", flags, "")
	switch {
	case errors.Is(err, unix.EBUSY):
		return false, ErrBusy
	case err != nil:
		return false, fmt.Errorf("remount %s: %w", m.path, err)
	case readOnly:
		return true, tryWrite(m.path)
	}
	return true, nil
}

// mountsHere are the mounts that the calling thread sees.
func mountsHere() (map[string]mountPoint, error) {
	// The /proc that commands see does not know this thread: another one looks.
	task := filepath.Join(strconv.Itoa(os.Getpid()), "task", strconv.Itoa(unix.Gettid()))
	var list []mountPoint
	var err error
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		list, err = mountsOf(task)
	}()
	<-looked
	if err != nil {
		return nil, err
	}
	mounts := make(map[string]mountPoint, len(list))
	for _, m := range list {
		mounts[m.path] = m
	}
	return mounts, nil
}
