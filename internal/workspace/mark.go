package workspace

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// same reports whether both marks are of one file, whatever was done to it between. A file system gives the inode
// number of a file that was deleted to the next one that is made, often at once: what tells them apart is when they
// were made. Where that is not known of both, the number has to do.
func (m Mark) same(n Mark) bool {
	return m.Dev == n.Dev && m.Ino == n.Ino && (m.Born == n.Born || m.Born == 0 || n.Born == 0)
}

// Stamp returns what identifies what the base has at rel, which must be there.
func (b *Base) Stamp(rel string) (Mark, error) {
	st, err := b.stat(rel)
	switch {
	case err != nil:
		return Mark{}, err
	case st == nil:
		return Mark{}, b.explain(rel, unix.ENOENT)
	}
	m := newMark(rel, st)
	if dir, name, err := b.in(rel); err == nil {
		m.Born = beneath.BornAt(dir, name)
	}
	return m, nil
}

// newMark makes a mark of what a stat says, which does not tell of a birth.
func newMark(rel string, st *unix.Stat_t) Mark {
	return Mark{Path: rel, Dev: st.Dev, Ino: st.Ino, CTime: st.Ctim.Nano()}
}

// maxOutlast is how long an apply waits for the clock at most: some ticks of the slowest.
const maxOutlast = 50 * time.Millisecond

// outlast waits until what is made or changed on the host gets later times than those of marks. File systems take them
// from the kernel's coarse clock. In the rest of its tick, a file made in the place of one that was applied could have
// all its times, and its inode number; an edit of one could not be told from what was applied. A time that the clock
// is far from is another clock's, a server's or this one's before it was set: there is nothing to wait for.
func outlast(marks []Mark) {
	newest, near := int64(0), coarseTime()+int64(maxOutlast)
	for _, m := range marks {
		for _, t := range [...]int64{m.CTime, m.Born} {
			if t <= near {
				newest = max(newest, t)
			}
		}
	}
	for end := time.Now().Add(maxOutlast); coarseTime() <= newest && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// coarseTime is the clock of file systems, in ns since 1970.
func coarseTime() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) // every kernel has it
	return now.Nano()
}
