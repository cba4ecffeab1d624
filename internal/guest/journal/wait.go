package journal

import (
	"context"
	"slices"
	"time"
)

// never is when a writer looks again that waits for a reader alone.
const never time.Duration = -1

// await returns when there may be room, at the latest after so long.
func await(ctx context.Context, space <-chan struct{}, look time.Duration) error {
	var due <-chan time.Time
	if look != never {
		timer := time.NewTimer(look)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-space:
	case <-due:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// leaveBehindLocked has the writer of a stream, which has no room since then, wait no more
// for the followers that were given their time. It returns when to look again: at once where
// one was left behind, and never where readers alone can change anything.
func (j *Journal) leaveBehindLocked(s Stream, since time.Time) (look time.Duration) {
	patience := j.patience
	if j.awaitedLocked(s, since) && (patience == 0 || patience > StuckAfter) {
		patience = StuckAfter
	}
	if patience == 0 {
		return never
	}
	look = never
	for _, f := range j.followers {
		if f.behind || j.streams[s].end-max(f.next[s]-Reserve, 0) < Capacity {
			continue
		}
		from := since
		if f.asked.After(from) {
			from = f.asked
		}
		left := max(patience-time.Since(from), 0)
		f.behind = left == 0
		if look == never || left < look {
			look = left
		}
	}
	return look
}

// awaitedLocked reports whether a reader has all of a stream, and waits for more or has asked for it
// since then.
func (j *Journal) awaitedLocked(s Stream, since time.Time) bool {
	if r := j.reads[s]; r.waiting > 0 || r.asked.After(since) {
		return true
	}
	return slices.ContainsFunc(j.followers, func(f *Follower) bool {
		return f.waits && f.next[s] == j.streams[s].end
	})
}
