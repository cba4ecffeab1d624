package session

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

const (
	longestLook = 30 * time.Second // between two looks for what is idle
	retryDelay  = 10 * time.Second // before what failed is tried again
	lookTimeout = 10 * time.Second // for changes
)

// Run reaps what is idle until ctx ends, and waits for what it began.
func (r *Runtime) Run(ctx context.Context) error {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	reaping := map[*session]bool{} // guarded by mu
	for {
		r.follow(ctx)
		due := r.due(reaping)
		for _, s := range due {
			tasks.Go(func() {
				r.reap(ctx, s)
				r.mu.Lock()
				delete(reaping, s)
				r.mu.Unlock()
				r.leave(s)
			})
		}
		r.forgetEnded(ctx)
		select {
		case <-r.opened:
			r.seen.note(false)
		default:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.closing.Done():
			return nil
		case <-r.wake:
		case <-r.clock.After(r.look()):
		}
	}
}

// look is how long Run waits before it looks again.
func (r *Runtime) look() time.Duration {
	if ttl := r.c.TTL(); ttl > 0 {
		return min(longestLook, ttl)
	}
	return longestLook
}

// due marks and returns the sessions that Run has to do something with, with a
// lease on each.
func (r *Runtime) due(reaping map[*session]bool) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.opened:
	default:
		return nil
	}
	now := r.now()
	var list []*session
	for _, s := range r.sessions {
		if !reaping[s] && r.dueLocked(s, now) {
			reaping[s] = true
			list = append(list, s)
		}
	}
	for _, s := range r.surplusLocked() {
		if !reaping[s] {
			reaping[s] = true
			list = append(list, s)
		}
	}
	for _, s := range list {
		s.leases++
	}
	return list
}

func (r *Runtime) dueLocked(s *session, now time.Time) bool {
	if s.leases > 0 {
		return false
	}
	if s.used.After(now) { // the clock was set back
		s.used = now
	}
	if s.rec.SleptAt.After(now) {
		s.rec.SleptAt = now
	}
	if now.Before(s.retry) && !s.retry.After(now.Add(retryDelay)) {
		return false
	}
	switch s.state {
	case awake:
		return r.idleLocked(s, now)
	case asleep:
		return now.Sub(s.rec.SleptAt) >= r.c.KeepIdle()
	case creating, sleeping, waking, closing: // nobody is at it
		return true
	case absent, gone:
	}
	return false
}

// idleLocked reports whether a live session's time has run out.
func (r *Runtime) idleLocked(s *session, now time.Time) bool {
	ttl := r.c.TTL()
	if ttl <= 0 || s.rec.Spec.Persistent || now.Sub(s.used) < ttl {
		return false
	}
	for _, m := range s.procs {
		if m.alive() {
			return false
		}
	}
	return true
}

// surplusLocked are the sleeping sessions that are too many: of the owner with the
// most, those that sleep longest, so that nobody pushes out another's.
func (r *Runtime) surplusLocked() []*session {
	var idle []*session
	for _, s := range r.sessions {
		if s.state == asleep && s.leases == 0 {
			idle = append(idle, s)
		}
	}
	n := len(idle) - r.c.Limits.MaxSleeping
	if n <= 0 {
		return nil
	}
	slices.SortFunc(idle, func(a, b *session) int {
		return cmp.Or(b.rec.SleptAt.Compare(a.rec.SleptAt), cmp.Compare(b.rec.ID, a.rec.ID))
	})
	// Of each owner's the place in a line that begins with the newest: the owner of
	// more has the higher places.
	place, of := make(map[*session]int, len(idle)), map[string]int{}
	for _, s := range idle {
		of[s.id.owner]++
		place[s] = of[s.id.owner]
	}
	slices.Reverse(idle)
	slices.SortStableFunc(idle, func(a, b *session) int { return cmp.Compare(place[b], place[a]) })
	return idle[:n]
}

// reap puts a session to sleep or removes it, unless somebody came meanwhile.
func (r *Runtime) reap(ctx context.Context, s *session) {
	if !s.life.take(ctx, nil) {
		return
	}
	defer s.life.give()
	r.mu.Lock()
	alone, is := s.leases == 1, s.state
	r.mu.Unlock()
	switch is {
	case absent, gone:
		return
	case awake, asleep:
		if !alone {
			return
		}
	case sleeping, waking:
		_ = r.layDown(ctx, s) // which is tried again
		return
	case creating, closing:
	}
	if is == awake && r.worthKeeping(ctx, s) {
		if !r.room.maySleep() { // it might lose what it wrote last
			r.later(s)
			return
		}
		r.sleep(ctx, s)
		return
	}
	if ctx.Err() != nil || r.erase(ctx, s) != nil {
		return // which is tried again
	}
	r.metrics.reaped.Add(1)
	r.log.Info("session reaped", "owner", s.id.owner, "session", shown(s.id.key), "was", is)
}

// worthKeeping reports whether an idle session has something that would be lost
// with it.
func (r *Runtime) worthKeeping(ctx context.Context, s *session) bool {
	rec := r.record(s)
	if rec.Workspace.Kind != record.Private || r.c.KeepIdle() <= 0 {
		return false
	}
	sb, err := r.o.Manager.Get(ctx, sandbox.Caller{Owner: s.id.owner}, rec.Sandbox)
	if err != nil || sb.State != sandbox.StateRunning {
		return sandbox.KindOf(err) != sandbox.NotFound // who else could say
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	g := r.guest(s)
	// Any file will do, but for what was brought there.
	const look = `for f in /workspace/* /workspace/.[!.]* /workspace/..?*; do
	if [ "$f" != /workspace/.skills ] && { [ -e "$f" ] || [ -L "$f" ]; }; then exit 0; fi
done
exit 3`
	out, err := g.Exec(ctx, &guestv1.Command{
		Argv: []string{"/bin/sh", "-c", look}, Cwd: "/", TimeoutMs: uint64(lookTimeout.Milliseconds()), OrphanGraceMs: 1000,
	}, nil, agent.Keep{})
	return err != nil || out.Exit.GetReason() != guestv1.Reason_REASON_EXITED || out.Exit.GetCode() != 3
}

// sleep stops an idle session's sandbox and keeps it. life must be held.
func (r *Runtime) sleep(ctx context.Context, s *session) {
	ctx, cancel := detached(ctx)
	defer cancel()
	r.takeBackAll(ctx, s)
	err := r.become(ctx, s, step{
		to: sleeping, write: func(rec *record.Session) { rec.SleptAt = r.now() },
		why: fault.Because(nil, sandbox.Unavailable, "session %s was put to sleep", shown(s.id.key)).WithHint("try again"),
	})
	if err != nil {
		_ = r.again(s, err)
		return
	}
	if r.layDown(ctx, s) == nil && r.stateOf(s) == asleep {
		r.metrics.slept.Add(1)
		r.log.Info("session asleep", "owner", s.id.owner, "session", shown(s.id.key))
	}
}

// layDown stops the sandbox of a session that is falling asleep, or was not to
// wake. One that can't be stopped is awake again. life must be held.
func (r *Runtime) layDown(ctx context.Context, s *session) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	_, err := r.o.Manager.Stop(ctx, sandbox.Caller{Owner: s.id.owner}, r.record(s).Sandbox)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		_ = r.again(s, err)
		return r.become(ctx, s, step{to: awake})
	}
	return r.become(ctx, s, step{to: asleep})
}
