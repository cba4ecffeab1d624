package project

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	looks "github.com/carboy-sandbox/carboy/internal/session/quota"
)

// inherit is the flag of a directory in which all that is made is of its
// project. Nothing of another project can be moved or linked there.
const inherit = 0x200

// names are those of a file that has several.
type names struct{ met, all uint64 }

// look finds out whether a tree can be a project, and changes nothing.
type look struct {
	own  uint32 // the project that parts of it may bear already; 0: none
	many map[uint64]names
}

func (k *look) Dir(dir *os.File) error { return k.bears(int(dir.Fd())) }

func (k *look) Mount(name string) error {
	return unfit("something is mounted in it, at %.100q", name)
}

func (k *look) Entry(dir *os.File, name string, st *unix.Stat_t) error {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT == unix.S_IFREG {
		n := k.many[st.Ino]
		k.many[st.Ino] = names{n.met + 1, uint64(st.Nlink)} //nolint:unconvert // 32 bits on arm64
	}
	return withFile(dir, name, st, k.bears)
}

func (k *look) bears(fd int) error {
	is, err := attributes(fd)
	if err != nil {
		return fmt.Errorf("read the project of a file of the workspace: %w", err)
	}
	if is.project != 0 && is.project != k.own {
		return unfit("it, or something in it, is of project %d, which is not its own", is.project)
	}
	return nil
}

// survey is nil for a tree that can be a project.
func survey(ctx context.Context, dir *os.File, own uint32, most int) error {
	k := &look{own: own, many: map[uint64]names{}}
	if err := walk(ctx, dir, most, k); err != nil {
		return err
	}
	for _, n := range k.many {
		if n.met != n.all {
			return unfit("a file in it has another name outside")
		}
	}
	return nil
}

func walk(ctx context.Context, dir *os.File, most int, v looks.Visitor) error {
	u, err := looks.Walk(ctx, dir, looks.Limits{Entries: most}, v)
	switch {
	case err != nil:
		return err
	case u.Unsteady:
		return unfit("directories in it were moved about meanwhile")
	case u.Over():
		return unfit("it has more than %d files and directories", looks.Limits{Entries: most}.Most())
	}
	return nil
}

// marker takes what bears one project into another.
type marker struct{ from, to uint32 }

func (m marker) Dir(dir *os.File) error { return m.set(int(dir.Fd()), true) }

func (m marker) Mount(string) error { return nil }

func (m marker) Entry(dir *os.File, name string, st *unix.Stat_t) error {
	return withFile(dir, name, st, func(fd int) error { return m.set(fd, false) })
}

func (m marker) set(fd int, dir bool) error {
	is, err := attributes(fd)
	if err != nil {
		return fmt.Errorf("read the project of a file of the workspace: %w", err)
	}
	want := is
	if is.project == m.from {
		want.project = m.to
	}
	if dir && want.project == m.to {
		want.flags &^= inherit
		if m.to != 0 {
			want.flags |= inherit
		}
	}
	if want == is {
		return nil
	}
	if err := setAttributes(fd, want); err != nil {
		return fmt.Errorf("set the project of a file of the workspace: %w", err)
	}
	return nil
}

// mark makes a tree a project, from its root down: what is made meanwhile is in
// a directory that has been marked, or will be.
func mark(ctx context.Context, dir *os.File, id uint32, most int) error {
	return walk(ctx, dir, most, marker{from: 0, to: id})
}

func clearMarks(ctx context.Context, dir *os.File, id uint32, most int) error {
	return walk(ctx, dir, most, marker{from: id, to: 0})
}

// withFile opens a file, to be asked about. There is no way to ask about a
// symbolic link, a pipe or a device: they are not of any project that was not
// there before them, and hold nothing.
func withFile(dir *os.File, name string, st *unix.Stat_t, do func(fd int) error) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP): // something else by now
		return nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ETXTBSY), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return unfit("its file %.100q can't be opened: %v", name, err)
	case err != nil:
		return fmt.Errorf("open a file of the workspace: %w", err)
	}
	defer unix.Close(fd)
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil || is.Dev != st.Dev || is.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	return do(fd)
}
