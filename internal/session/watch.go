package session

import (
	"context"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/session/quota"
)

// watchProcesses sees that a session's workspace is looked at for as long as a
// managed process runs in it, where nothing else holds it to its quota: what
// they write comes between the commands, which look for themselves.
func (r *Runtime) watchProcesses(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := false
	if soft(s.rec.Workspace) && !r.closed {
		for _, m := range s.procs {
			want = want || m.p != nil && m.alive()
		}
	}
	switch {
	case want && s.unwatch == nil:
		ctx, cancel := context.WithCancel(r.closing)
		s.unwatch = cancel
		r.calls.Go(func() { r.watchWorkspace(ctx, s) })
	case !want && s.unwatch != nil:
		s.unwatch()
		s.unwatch = nil
	}
}

// watchWorkspace looks on until ctx ends, or the workspace is over its quota.
func (r *Runtime) watchWorkspace(ctx context.Context, s *session) {
	w := r.record(s).Workspace
	g, err := r.unchecked(w, s.id.key)
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("watch a workspace", "session", shown(s.id.key), "error", err)
		}
		return
	}
	defer g.close()
	watch := &quota.Watch{Dir: g.dir, Limits: g.limits, Patient: true, Log: r.log, Exceeded: func(u quota.Usage) {
		r.stopWriters(ctx, s, quota.Check(quota.Writing, u, g.limits, g.path, g.key))
	}}
	if !watch.Run(ctx) {
		return
	}
	r.mu.Lock()
	if ctx.Err() == nil { // else another has begun
		s.unwatch()
		s.unwatch = nil
	}
	r.mu.Unlock()
	r.watchProcesses(s) // one may have been started meanwhile
}

// stopWriters ends all managed processes of a session, for any may be the one
// that writes. They stay known, and say why.
func (r *Runtime) stopWriters(ctx context.Context, s *session, why error) {
	if !s.procTurn.take(ctx, nil) {
		return
	}
	defer s.procTurn.give()
	// The end of the last one ends the watch, which must not end the stop.
	stop, cancel := context.WithTimeout(r.closing, undoTimeout)
	defer cancel()
	r.mu.Lock()
	running := map[string]*managed{}
	for pid, m := range s.procs {
		if m.p != nil && m.alive() {
			running[pid] = m
		}
	}
	r.mu.Unlock()
	var stops sync.WaitGroup
	for pid, m := range running {
		m.p.Notice(why.Error() + ": the session's managed processes were stopped")
		r.metrics.quotaStops.Add(1)
		stops.Go(func() {
			err := m.p.Stop(stop)
			if err != nil {
				r.log.Error("stop a process at its workspace's quota", "session", shown(s.id.key), "process", pid, "error", err)
			}
			r.tell(AuditRecord{
				Time: r.now(), Owner: s.id.owner, Session: s.id.key, Sandbox: r.sandboxID(s),
				Action: "quota_stop", Process: pid, Error: r.class(err), Limits: []string{"quota"},
			})
		})
	}
	stops.Wait()
}
