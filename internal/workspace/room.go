package workspace

import (
	"context"
	"fmt"

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
	m.need = &room{}
	if err := m.top(); err != nil {
		return fmt.Errorf("measure renamed directories: %w", err)
	}
	if *m.need == (room{}) {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(w.Upper.Fd()), &st); err != nil {
		return err
	}
	if m.need.bytes+spareRoom > st.Bavail*uint64(st.Bsize) || st.Files > 0 && m.need.files > st.Ffree {
		return sandbox.Errorf(sandbox.Exhausted, "apply: directories were renamed in the sandbox, and its disk has no room for the %d files in them (%d MiB): nothing was changed", m.need.files, m.need.bytes>>20).
			WithHint("make room in the sandbox, give it a larger disk (carboy set NAME --disk SIZE), or rename the directories back")
	}
	return nil
}

// blockRoom is what a file takes besides its content: attributes, and its part of a directory.
const blockRoom = 512

func (r *room) add(st *unix.Stat_t) {
	r.files++
	r.bytes += uint64(st.Blocks)*512 + blockRoom
}
