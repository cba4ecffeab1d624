package workspace

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// room is what copies need on a disk.
type room struct{ bytes, files uint64 }

// spareRoom is what is left of the disk when all is copied.
const spareRoom = 1 << 20

// measure refuses what the disk has no room for.
func (w Whole) measure(ctx context.Context) error {
	m := w.walk(ctx)
	defer m.lower.close()
	m.loose = func(at place, upper *os.File) error { return m.underView(at, upper, m.count) }
	if err := m.top(); err != nil {
		return fmt.Errorf("measure renamed directories: %w", err)
	}
	if m.need == (room{}) {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(w.Upper.Fd()), &st); err != nil {
		return err
	}
	if m.need.bytes+spareRoom > st.Bavail*uint64(st.Bsize) || st.Files > 0 && m.need.files > st.Ffree {
		return sandbox.Errorf(sandbox.Exhausted, "apply: directories were renamed in the sandbox, and its disk has no room for the %d files in them (%d MiB): nothing was changed", m.need.files, m.need.bytes>>20).
			WithHint("make room in the sandbox, give it a larger disk (carboy resize), or rename the directories back")
	}
	return nil
}

// count adds up what of a directory lies in the base alone.
func (m *wholeWalk) count(at place, view *os.File) error {
	names, err := listView(at, view)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := context.Cause(m.ctx); err != nil {
			return err
		}
		st, err := statAt(view, name)
		if err != nil {
			continue
		}
		up := at.upper != nil && inUpper(at.upper, name, &st)
		if !up {
			m.need.files++
			m.need.bytes += uint64(st.Blocks)*512 + blockRoom
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || at.depth >= MaxDepth {
			continue
		}
		if err := m.countDir(at, view, name, up); err != nil {
			return err
		}
	}
	return nil
}

// blockRoom is what a file takes besides its content: attributes, and its part of a directory.
const blockRoom = 512

func (m *wholeWalk) countDir(at place, view *os.File, name string, up bool) error {
	sub, err := openBeneath(view, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer sub.Close()
	here := place{rel: joinPath(at.rel, name), depth: at.depth + 1}
	if up {
		d, err := openDirAt(at.upper, name)
		if err != nil {
			return nil
		}
		defer d.Close()
		if here, err = placeOf(at, name, d); err != nil {
			return err
		}
		if here.low == "" {
			return m.dir(here)
		}
	}
	return m.count(here, sub)
}
