// Package project holds a directory tree of the host to a size by the project
// quotas of its file system, which XFS and ext4 have: the kernel refuses what is
// too much, to whoever writes it.
//
// A tree becomes a project by a mark on each of its files and directories, which
// what is made there later inherits, and by a note on its root that says which
// project it is. It is walked as package quota walks one: by open directories,
// through no link, on one file system. It is left alone, and the reason said,
// where its file system enforces nothing, where something in it bears a project
// that is not its own, where a file in it has another name outside, and where
// something is mounted in it.
//
// The note is written first, the marks follow from the root down, and a limit is
// set last: who dies on the way leaves a tree without a limit, which the next one
// goes on with.
package project

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/mountinfo"
)

const (
	// first is the first of our projects; there are span of them. Those that
	// people give by hand and other programs count up begin at 1 or at 2^20.
	first, span = 0x5c000000, 1 << 24

	mostTries = 64
	undoTime  = time.Minute
)

// Limits are what a project may have. What files take on the disk counts, with
// directories and the root itself.
type Limits struct {
	Bytes, Inodes int64 // 0: any number
}

// Usage is what a project has.
type Usage struct{ Bytes, Inodes int64 }

// UnfitError says why a tree is no project, or is none any more.
type UnfitError struct {
	Why string
	// None is where that is not about the tree: its file system enforces no quotas
	// of projects.
	None bool
}

// Error is the reason alone, to be put after what it is about.
func (e *UnfitError) Error() string { return e.Why }

func unfit(format string, args ...any) error { return &UnfitError{Why: fmt.Sprintf(format, args...)} }

// unable is unfit for a whole file system.
func unable(format string, args ...any) error {
	return &UnfitError{Why: fmt.Sprintf(format, args...), None: true}
}

// Control makes projects. The zero value works; it is safe for concurrent use.
// A directory is one Control's at a time: where two daemons make it a project in
// the same moment, one of them may find it unfit.
type Control struct {
	byDevice bool // ask for quotas as kernels before 5.14 have it

	mu     sync.Mutex
	taking map[inode]chan struct{} // closed when somebody is done with a tree
}

type inode struct{ dev, ino uint64 }

// alone waits until nobody else makes a tree a project.
func (c *Control) alone(ctx context.Context, dir *os.File) (done func(), err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat the workspace: %w", err)
	}
	key, mine := inode{st.Dev, st.Ino}, make(chan struct{})
	for {
		c.mu.Lock()
		other := c.taking[key]
		if other == nil {
			if c.taking == nil {
				c.taking = map[inode]chan struct{}{}
			}
			c.taking[key] = mine
		}
		c.mu.Unlock()
		if other == nil {
			return func() {
				c.mu.Lock()
				delete(c.taking, key)
				c.mu.Unlock()
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Take makes the tree below an open directory a project, if it is not yet one of
// ours, and returns its ID. It sets no limit. A tree of more than most entries is
// refused. An *UnfitError is for what was left as it is; any other is a failure,
// after which it was undone as far as that went.
func (c *Control) Take(ctx context.Context, dir *os.File, most int) (id uint32, err error) {
	fs, err := c.system(dir)
	if err != nil {
		return 0, err
	}
	done, err := c.alone(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer done()
	n, err := readNote(dir)
	if err != nil {
		return 0, err
	}
	is, err := attributes(int(dir.Fd()))
	if err != nil {
		return 0, unable("its file system tells of no projects: %v", err)
	}
	if n.done && is.project == n.id && is.flags&inherit != 0 {
		return n.id, nil
	}
	if err := survey(ctx, dir, n.id, most); err != nil {
		return 0, err
	}
	if n.id == 0 {
		if n, err = fs.begin(dir, rand.Reader); err != nil {
			return 0, err
		}
	}
	if err = mark(ctx, dir, n.id, most); err == nil {
		err = n.finish(dir)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		return 0, errors.Join(err, c.unmark(undo, dir, n.id, most))
	}
	return n.id, nil
}

// unmark takes the marks of a project from a tree, and the note last.
func (c *Control) unmark(ctx context.Context, dir *os.File, id uint32, most int) error {
	if err := clearMarks(ctx, dir, id, most); err != nil {
		return err
	}
	return dropNote(dir)
}

// Hold sees that a project has these limits, and returns what it uses. The
// directory must be the one that Take was given. An *UnfitError is for one that
// is not held any more: its file system was mounted otherwise, or somebody took
// it out of the project.
func (c *Control) Hold(dir *os.File, id uint32, l Limits) (Usage, error) {
	fs, err := c.system(dir)
	if err != nil {
		return Usage{}, err
	}
	is, err := attributes(int(dir.Fd()))
	if err != nil {
		return Usage{}, fmt.Errorf("read the project of a workspace: %w", err)
	}
	if is.project != id || is.flags&inherit == 0 {
		return Usage{}, unfit("it was taken out of project %d", id)
	}
	q, err := fs.get(id)
	if err != nil {
		return Usage{}, err
	}
	if want := l.bounds(fs.xfs); want != q.hard {
		if err := fs.set(id, want); err != nil {
			return Usage{}, err
		}
	}
	return q.usage, nil
}

// Lift takes the limits from a project. Any directory of its file system will do.
func (c *Control) Lift(at *os.File, id uint32) error {
	fs, err := c.system(at)
	if _, ok := errors.AsType[*UnfitError](err); ok {
		return nil // which enforces none
	}
	if err != nil {
		return err
	}
	q, err := fs.get(id)
	if err != nil || q.hard == (bounds{}) {
		return err
	}
	return fs.set(id, bounds{})
}

// Of returns the project whose root an open directory is; 0: of none of ours.
func (c *Control) Of(dir *os.File) uint32 {
	n, err := readNote(dir)
	if err != nil {
		return 0
	}
	return n.id
}

// noteName is an attribute that nobody but the machine's own root sees.
const noteName = "trusted.carboy.project"

// note says that a directory is the root of a project. It holds for one inode:
// a copy of the directory is another.
type note struct {
	id   uint32
	ino  uint64
	done bool // everything in it is marked
}

func (n note) String() string {
	state := "begun"
	if n.done {
		state = "done"
	}
	return fmt.Sprintf("1 %d %d %s", n.id, n.ino, state)
}

// parseNote reads what String wrote; anything else is none.
func parseNote(s string) (n note, ok bool) {
	var state string
	if len(s) > noteSize {
		return note{}, false
	}
	if _, err := fmt.Sscanf(s, "1 %d %d %s", &n.id, &n.ino, &state); err != nil {
		return note{}, false
	}
	n.done = state == "done"
	if n.String() != s || n.id < first || n.id-first >= span {
		return note{}, false
	}
	return n, true
}

const noteSize = 64

// readNote returns a directory's note; the zero one where it has none.
func readNote(dir *os.File) (note, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return note{}, fmt.Errorf("stat the workspace: %w", err)
	}
	text := make([]byte, noteSize+1)
	size, err := unix.Fgetxattr(int(dir.Fd()), noteName, text)
	switch {
	case errors.Is(err, unix.ENODATA):
		return note{}, nil
	case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.EPERM):
		return note{}, unfit("it can't be noted which project it is: %v", err)
	case err != nil && !errors.Is(err, unix.ERANGE):
		return note{}, fmt.Errorf("read the project of a workspace: %w", err)
	}
	if n, ok := parseNote(string(text[:max(size, 0)])); ok && n.ino == st.Ino {
		return n, nil
	}
	return note{}, nil // a copy's, or whoever's
}

func (n note) finish(dir *os.File) error {
	n.done = true
	if err := unix.Fsetxattr(int(dir.Fd()), noteName, []byte(n.String()), 0); err != nil {
		return fmt.Errorf("note the project of a workspace: %w", err)
	}
	return nil
}

func dropNote(dir *os.File) error {
	if err := unix.Fremovexattr(int(dir.Fd()), noteName); err != nil && !errors.Is(err, unix.ENODATA) {
		return fmt.Errorf("forget the project of a workspace: %w", err)
	}
	return nil
}

// begin notes a project that nobody uses. Who comes second takes that of the
// first.
func (s *system) begin(dir *os.File, random io.Reader) (note, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return note{}, fmt.Errorf("stat the workspace: %w", err)
	}
	for range mostTries {
		id, err := newID(random)
		if err != nil {
			return note{}, err
		}
		if used, err := s.used(id); err != nil || used {
			if err != nil {
				return note{}, err
			}
			continue
		}
		n := note{id: id, ino: st.Ino}
		err = unix.Fsetxattr(int(dir.Fd()), noteName, []byte(n.String()), unix.XATTR_CREATE)
		if !errors.Is(err, unix.EEXIST) {
			if err != nil {
				return note{}, unfit("it can't be noted which project it is: %v", err)
			}
			return n, nil
		}
		if other, err := readNote(dir); err != nil || other.id != 0 {
			return other, err
		}
		if err := dropNote(dir); err != nil { // it is none of this directory
			return note{}, err
		}
	}
	return note{}, unfit("no project of ours is free there")
}

func newID(random io.Reader) (uint32, error) {
	var b [4]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return 0, fmt.Errorf("choose a project: %w", err)
	}
	return first + binary.LittleEndian.Uint32(b[:])%span, nil
}

// device returns the block device of a file system, out of a mountinfo.
func device(mounts, dev string) string {
	for line := range strings.Lines(mounts) {
		if m, ok := mountinfo.Parse(line); ok && m.Device == dev && strings.HasPrefix(m.Source, "/") {
			return m.Source
		}
	}
	return ""
}

// blocks is how many of 512 bytes hold so many.
func blocks(bytes int64) uint64 { return (uint64(max(bytes, 0)) + 511) / 512 }

// bounds is l as the kernel has it. Where a file system has a part for real-time
// files, these are limited too.
func (l Limits) bounds(xfs bool) bounds {
	b := bounds{blocks: blocks(l.Bytes), inodes: uint64(max(l.Inodes, 0))}
	if xfs {
		b.realtime = b.blocks
	}
	return b
}
