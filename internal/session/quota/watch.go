package quota

import (
	"context"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How often a tree is looked at.
const (
	// glance is how often the free space of the file system is asked for. Less
	// of it than the tree may still take is reason for a scan at once.
	glance = 20 * time.Millisecond
	// A scan of its own account comes share times its own cost after the last
	// one, and one for a reason rush times.
	share, rush = 10, 2

	shortest = 100 * time.Millisecond // between two scans without a reason
	longest  = 5 * time.Second

	// Those of a patient Watch, which scans at first that often, and less and
	// less while it finds nothing new.
	calmGlance   = time.Second
	calmShortest = time.Second
	calmLongest  = time.Minute
)

// Watch is a tree to look at while a command runs.
type Watch struct {
	Dir    *os.File // stays the caller's, open until Run has returned
	Limits Limits
	// Last is what a scan before has found: then the first is not at once.
	Last *Usage
	// Patient is a watch of what runs for long, and mostly does nothing: it looks
	// about once a second whether the file system has filled, and at the tree once
	// a minute where that does not change.
	Patient bool
	// Exceeded is called once, when a limit was passed.
	Exceeded func(Usage)
	Log      *slog.Logger // default: discard
}

// Run looks at the tree until ctx ends or a limit was passed, and says
// whether it was. It spends on scans a tenth of one core, and a half while the
// file system fills by as much as the tree may still take.
func (w *Watch) Run(ctx context.Context) (exceeded bool) {
	log := w.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	every, p, failed := glance, pace{}, false
	if w.Patient {
		every, p.calm = calmGlance, calmShortest
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	if w.Last != nil {
		p.scanned(time.Now(), 0, w.Limits.room(*w.Last), w.free())
	}
	for {
		if now := time.Now(); p.due(now, w.free()) {
			u, err := Scan(ctx, w.Dir, w.Limits)
			if ctx.Err() != nil {
				return false
			}
			if err != nil && !failed {
				log.Warn("count a workspace while a command runs", "err", err)
				failed = true
			}
			if u.Over() {
				w.Exceeded(u)
				return true
			}
			done := time.Now()
			p.scanned(done, done.Sub(now), w.Limits.room(u), w.free())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// free returns how many bytes the file system has free.
func (w *Watch) free() int64 {
	var st unix.Statfs_t
	if unix.Fstatfs(int(w.Dir.Fd()), &st) != nil {
		return 0
	}
	return int64(st.Bfree) * st.Bsize
}

// pace says when to scan.
type pace struct {
	last time.Time
	cost time.Duration
	room int64         // what the tree might still take
	free int64         // of the file system, at the last scan
	calm time.Duration // until the next scan without a reason, of a patient watch; 0: of another
}

func (p *pace) scanned(at time.Time, cost time.Duration, room, free int64) {
	if p.calm > 0 {
		p.calm = min(2*p.calm, calmLongest)
		if p.room != room {
			p.calm = calmShortest
		}
	}
	p.last, p.cost, p.room, p.free = at, cost, room, free
}

// due reports whether a scan is. Where the file system has lost as much as
// the tree had room for, that is a reason; it may be another's doing.
func (p *pace) due(now time.Time, free int64) bool {
	since := now.Sub(p.last)
	if p.calm > 0 && !p.last.IsZero() {
		// A patient watch comes late, so that a part of the room is reason enough.
		return since >= max(p.calm, share*p.cost) || p.free-free > p.room/4 && since >= share*p.cost
	}
	if p.last.IsZero() || since >= min(max(shortest, share*p.cost), max(longest, rush*p.cost)) {
		return true
	}
	return p.free-free > p.room && since >= rush*p.cost
}
