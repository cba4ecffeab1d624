package session

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/session/quota"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// guard holds the workspace of one command to a soft quota: by looking before,
// while and after it runs. A nil guard looks at nothing.
type guard struct {
	dir    *os.File
	path   string
	key    string
	limits quota.Limits
	last   quota.Usage
	during *quota.Usage // what stopped the command
}

// errFull stops a command whose workspace has grown too large.
var errFull = errors.New("the workspace is over its quota")

// soft reports whether a workspace is held to its quota by looking alone.
func soft(w record.Workspace) bool { return w.Kind == record.HostDir && w.Quota == request.QuotaSoft }

// guard looks at a workspace before a command runs, and refuses one that is
// over its quota already. Where the file system holds it, that is seen to.
func (q *quotas) guard(ctx context.Context, w record.Workspace, key string) (*guard, error) {
	if w.Project != 0 {
		return nil, q.hold(w)
	}
	if !soft(w) {
		return nil, nil
	}
	g, err := q.unchecked(w, key)
	if err != nil {
		return nil, err
	}
	if g.last, err = quota.Scan(ctx, g.dir, g.limits); err == nil {
		err = quota.Check(quota.Before, g.last, g.limits, g.path, key)
	}
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// unchecked opens a workspace that has a soft quota, to look at it.
func (q *quotas) unchecked(w record.Workspace, key string) (*guard, error) {
	dir, err := open(w.Dir)
	if err != nil {
		return nil, err
	}
	g := &guard{dir: dir, path: w.Dir.Path, key: key, limits: quota.Limits{Bytes: w.Limit, Entries: q.entries}}
	if w.Inodes > 0 && w.Inodes < int64(g.limits.Entries) {
		g.limits.Entries = int(w.Inodes)
	}
	return g, nil
}

func (g *guard) close() {
	if g != nil {
		_ = g.dir.Close()
	}
}

// watch looks on while the command runs, and ends it by cancel. The returned
// function ends the watch.
func (g *guard) watch(ctx context.Context, cancel context.CancelCauseFunc, log *slog.Logger) (stop func()) {
	if g == nil {
		return func() {}
	}
	ctx, end := context.WithCancel(ctx)
	w := &quota.Watch{Dir: g.dir, Limits: g.limits, Last: &g.last, Log: log, Exceeded: func(u quota.Usage) {
		g.during = &u
		cancel(errFull)
	}}
	var watching sync.WaitGroup
	watching.Go(func() { w.Run(ctx) })
	return func() { end(); watching.Wait() }
}

// after looks once more, and says what is over the quota, if anything is. cause
// is why the command ended, if not by itself.
func (g *guard) after(ctx context.Context, cause error) error {
	if g == nil {
		return nil
	}
	if g.during != nil {
		return quota.Check(quota.During, *g.during, g.limits, g.path, g.key)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	u, err := quota.Scan(ctx, g.dir, g.limits)
	if err != nil {
		if cause != nil {
			return nil // which is said
		}
		return err
	}
	return quota.Check(quota.After, u, g.limits, g.path, g.key)
}

// watchProcesses sees that a session's workspace is looked at for as long as a
// managed process runs in it, where nothing else holds it to its quota: what
// they write comes between the commands, which look for themselves.
func (r *Runtime) watchProcesses(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := false
	if soft(s.rec.Workspace) && !r.closed {
		for _, m := range s.procs {
			want = want || m.p != nil && m.alive() && !m.stopped
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
	g, err := r.quotas.unchecked(w, s.id.key)
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
// that writes. They stay known, and say why, once: one that was stopped may be seen alive
// for a moment more.
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
		if m.p != nil && m.alive() && !m.stopped {
			running[pid], m.stopped = m, true
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
				r.mu.Lock()
				m.stopped = false // so that it is tried again
				r.mu.Unlock()
			}
			r.tell(AuditRecord{
				Time: r.now(), Owner: s.id.owner, Session: s.id.key, Sandbox: r.sandboxID(s),
				Action: "quota_stop", Process: pid, Error: r.class(err), Limits: []string{"quota"},
			})
		})
	}
	stops.Wait()
}
