package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// maxOpen is how many levels below the root are held open. What is deeper
	// is come back to by "..", and known again by its inode.
	maxOpen = 128
	batch   = 512 // names read at once
	// mostTries is how often a lookup is begun again that something was moved
	// under.
	mostTries = 16
)

// inode is what a file is, whatever its name.
type inode struct{ dev, ino uint64 }

// level is a directory that is being walked: its entries are read batch by
// batch, and what lies below each is walked before the next.
type level struct {
	dir   *os.File // nil: given up, to be opened again from below
	id    inode
	names []string // of the last batch, yet to be looked at
	done  bool     // no batch is left
}

type scan struct {
	ctx    context.Context
	limits Limits
	root   uint64 // its device
	linked map[inode]struct{}
	levels []*level
	usage  Usage
	visit  Visitor
}

// Visitor is told of what a Walk meets. Its error ends the walk. What it is given
// is closed afterwards.
type Visitor interface {
	// Dir is called for each directory, the root first, before its entries are
	// read.
	Dir(dir *os.File) error
	// Entry is called for what is no directory.
	Entry(dir *os.File, name string, st *unix.Stat_t) error
	// Mount is called for what is of another mount, and not entered.
	Mount(name string) error
}

// counting is the Visitor of who only counts.
type counting struct{}

func (counting) Dir(*os.File) error                         { return nil }
func (counting) Entry(*os.File, string, *unix.Stat_t) error { return nil }
func (counting) Mount(string) error                         { return nil }

// Scan counts what is below an open directory. It stops at the first limit
// that is passed, which is no error. What vanishes meanwhile is not counted.
// Errors are those of ctx, and a *sandbox.Error for a directory that can't be
// read: what is in there can't be counted.
func Scan(ctx context.Context, dir *os.File, limits Limits) (Usage, error) {
	return Walk(ctx, dir, limits, counting{})
}

// Walk is Scan that tells of what it meets. A tree that it counted as over its
// limits was not walked to its end.
func Walk(ctx context.Context, dir *os.File, limits Limits, v Visitor) (Usage, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return Usage{}, fmt.Errorf("stat the workspace: %w", err)
	}
	top, err := open(int(dir.Fd()), ".")
	if err != nil {
		return Usage{}, fmt.Errorf("open the workspace: %w", err)
	}
	s := &scan{ctx: ctx, limits: limits, root: st.Dev, linked: map[inode]struct{}{}, visit: v}
	s.levels = []*level{{dir: top, id: inode{st.Dev, st.Ino}}}
	defer s.close()
	if err = v.Dir(top); err == nil {
		err = s.walk()
	}
	return s.usage, err
}

func (s *scan) close() {
	for _, l := range s.levels {
		l.close()
	}
}

func (l *level) close() {
	if l.dir != nil {
		_ = l.dir.Close()
		l.dir = nil
	}
}

// open opens a directory beside no link and on no other mount.
func open(at int, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	how := &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(at, name, how)
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // the device is compared either way
			fd, err = unix.Openat(at, name, flags, 0)
		}
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), "workspace"), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN) && try < mostTries:
			continue
		}
		return nil, err
	}
}

func (s *scan) walk() error {
	for len(s.levels) > 0 && !s.usage.Over() {
		if err := s.ctx.Err(); err != nil {
			return context.Cause(s.ctx)
		}
		l := s.levels[len(s.levels)-1]
		name, err := s.next(l)
		switch {
		case err != nil:
			return err
		case name == "":
			s.leave()
		default:
			if err := s.look(l, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// next returns the next name in a directory, "" after the last.
func (s *scan) next(l *level) (string, error) {
	if len(l.names) == 0 && !l.done {
		names, err := l.dir.Readdirnames(batch)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ENOENT) {
			return "", fmt.Errorf("read a directory of the workspace: %w", err)
		}
		l.names, l.done = names, len(names) == 0
	}
	if len(l.names) == 0 {
		return "", nil
	}
	name := l.names[len(l.names)-1]
	l.names = l.names[:len(l.names)-1]
	return name, nil
}

// look counts one entry, and goes down where it is a directory.
func (s *scan) look(l *level, name string) error {
	if s.usage.Entries++; s.usage.Entries > s.limits.entries() {
		s.usage.OverEntries = true
		return nil
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(l.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("stat in the workspace: %w", err)
	case st.Dev != s.root:
		return s.visit.Mount(name)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return s.enter(l, name)
	}
	s.count(&st)
	return s.visit.Entry(l.dir, name, &st)
}

// count adds a file, unless it was met by another name.
func (s *scan) count(st *unix.Stat_t) {
	if st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if _, met := s.linked[id]; met {
			return
		}
		s.linked[id] = struct{}{}
	}
	s.usage.Bytes += max(st.Size, 0)
	if s.usage.Bytes < 0 { // files of holes can be as large as they say
		s.usage.Bytes = 1<<63 - 1
	}
	if s.limits.Bytes > 0 && s.usage.Bytes > s.limits.Bytes {
		s.usage.OverBytes = true
	}
}

// gone are the errors for a name that is no directory of this tree any more.
func gone(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// enter goes down into a directory.
func (s *scan) enter(l *level, name string) error {
	dir, err := open(int(l.dir.Fd()), name)
	if errors.Is(err, unix.EXDEV) {
		return s.visit.Mount(name)
	}
	if gone(err) {
		return nil
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return (&sandbox.Error{Kind: sandbox.Invalid, Msg: fmt.Sprintf("the workspace can't be counted: its directory %.100q can't be read", name), Err: err}).
			WithHint("give its owner the right to read it: chmod -R u+rwX")
	}
	if err != nil {
		return fmt.Errorf("open a directory of the workspace: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil || st.Dev != s.root {
		_ = dir.Close()
		return nil
	}
	if err := s.visit.Dir(dir); err != nil {
		_ = dir.Close()
		return err
	}
	s.levels = append(s.levels, &level{dir: dir, id: inode{st.Dev, st.Ino}})
	if len(s.levels) > maxOpen+1 {
		return s.fold(l)
	}
	return nil
}

// fold closes a deep directory while what is below it is walked. Its names are
// all read before: coming back, it is not where it was in its list.
func (s *scan) fold(l *level) error {
	for !l.done {
		names, err := l.dir.Readdirnames(batch)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("read a directory of the workspace: %w", err)
		}
		l.names, l.done = append(l.names, names...), len(names) == 0
		if s.usage.Entries+len(l.names) > s.limits.entries() {
			s.usage.OverEntries = true
			return nil
		}
	}
	l.close()
	return nil
}

// leave goes back up. A deep directory is opened again from the one below it,
// and one that is not there any more has been moved.
func (s *scan) leave() {
	last := len(s.levels) - 1
	l := s.levels[last]
	s.levels = s.levels[:last]
	defer l.close()
	if last == 0 || s.levels[last-1].dir != nil {
		return
	}
	up := s.levels[last-1]
	dir, err := open(int(l.dir.Fd()), "..")
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(dir.Fd()), &st)
	}
	if err != nil || (inode{st.Dev, st.Ino}) != up.id {
		if dir != nil {
			_ = dir.Close()
		}
		s.usage.Unsteady = true
		return
	}
	up.dir = dir
}
