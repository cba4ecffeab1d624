package session

import (
	"context"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/process"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// endProcess ends a process, if there is one of that ID, and forgets it.
// procTurn must be held.
func (r *Runtime) endProcess(ctx context.Context, s *session, pid string) error {
	r.mu.Lock()
	m := s.procs[pid]
	r.mu.Unlock()
	if m == nil {
		return nil
	}
	if err := m.p.Stop(ctx); err != nil {
		return err
	}
	return r.discard(ctx, s, pid, m)
}

// discard forgets a process that has ended.
func (r *Runtime) discard(ctx context.Context, s *session, pid string, m *managed) error {
	if err := m.p.Discard(); err != nil {
		r.log.Warn("forget a process", "session", shown(s.id.key), "process", pid, "error", err)
	}
	r.uncountProcess(s, pid, m)
	r.watchProcesses(s)
	err := r.amend(ctx, s, func(rec *record.Session) { delete(rec.Processes, pid) })
	if err != nil { // whatever is written next of the session has it right
		s.writing.Lock()
		r.mu.Lock()
		delete(s.rec.Processes, pid)
		r.mu.Unlock()
		s.writing.Unlock()
	}
	return err
}

// abandonSince is abandonAll for those of the sandbox that ends with over, if
// there is none in its place yet.
func (r *Runtime) abandonSince(over context.Context, s *session) {
	r.mu.Lock()
	var list []*process.Process
	if s.over == over {
		for _, m := range s.procs {
			if m.p == nil {
				m.quit(endedMeanwhile(s))
				continue
			}
			list = append(list, m.p) // one that has ended, too: it may be waited for
			r.endedLocked(m)
		}
	}
	r.mu.Unlock()
	for _, p := range list {
		p.Abandon()
	}
}

// abandonAll says to the processes of a session that their sandbox is gone.
// With forget, they are no longer known.
func (r *Runtime) abandonAll(s *session, forget bool) {
	r.mu.Lock()
	var list []*process.Process
	why := endedMeanwhile(s)
	if forget {
		why = deletedMeanwhile(s)
	}
	for _, m := range s.procs {
		r.endedLocked(m)
		if m.p != nil {
			list = append(list, m.p)
		} else {
			m.quit(why)
		}
	}
	if forget {
		clear(s.procs)
	}
	r.mu.Unlock()
	r.watchProcesses(s)
	for _, p := range list {
		p.Abandon()
	}
}

// detachAll gives up this end of all processes.
func (r *Runtime) detachAll() {
	r.mu.Lock()
	var list []*process.Process
	for _, s := range r.sessions {
		s.leaveGuestLocked()
		for _, m := range s.procs {
			if m.p != nil {
				list = append(list, m.p)
			}
		}
	}
	r.mu.Unlock()
	for _, p := range list {
		p.Close()
	}
}

// completed is a process that has ended and is remembered.
type completed struct {
	s   *session
	pid string
	m   *managed
}

// maxCompletedBytes is how long what all processes that are remembered were
// started with may be: it is in their sessions' records, which are written whole.
const maxCompletedBytes = 2 << 20

// forgetEnded forgets the processes that ended long ago, and the oldest of
// those that are too many.
func (r *Runtime) forgetEnded(ctx context.Context) {
	r.mu.Lock()
	var all []completed
	for _, s := range r.sessions {
		for pid, m := range s.procs {
			if m.p != nil && !m.ended.IsZero() {
				if now := r.now(); m.ended.After(now) { // the clock was set back
					m.ended = now
				}
				all = append(all, completed{s, pid, m})
			}
		}
	}
	slices.SortFunc(all, func(a, b completed) int { return b.m.ended.Compare(a.m.ended) }) // the newest first
	now, keep := r.now(), time.Duration(r.c.Limits.CompletedSec)*time.Second
	n, bytes := 0, 0
	for n < len(all) && n < r.c.Limits.MaxCompleted && now.Sub(all[n].m.ended) < keep {
		if bytes += all[n].m.p.Size(); bytes > maxCompletedBytes {
			break
		}
		n++
	}
	all = all[n:]
	r.mu.Unlock()
	for _, e := range all {
		if e.m.p.Reading() {
			continue // whose output is not cut off for what others have ended
		}
		if !e.s.procTurn.try() {
			continue // its holder may wait for the guest; the next look finds this one again
		}
		if err := r.discard(ctx, e.s, e.pid, e.m); err != nil {
			r.log.Warn("forget a process", "session", shown(e.s.id.key), "process", e.pid, "error", err)
		}
		e.s.procTurn.give()
	}
}
