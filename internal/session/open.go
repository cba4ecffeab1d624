package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/process"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

const (
	openAtOnce   = 8                // sessions that are looked at side by side
	strayTimeout = 15 * time.Second // to look for processes that nobody knows
)

// Open reads the records, and takes over the sessions that are there with
// their processes; what an earlier daemon left half done is ended by Run, or
// by the next call of that session. Sandboxes of sessions that no record leads
// to are removed. It is called once; the Manager has adopted its own by then.
func (r *Runtime) Open(ctx context.Context) error {
	if err := r.shaper.roots.MakeDefault(); err != nil {
		r.log.Warn("make the default workspace of sessions", "error", err)
	}
	records, err := r.o.Store.Sessions(ctx)
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, openAtOnce)
	errs := make([]error, len(records))
	known := map[id]bool{}
	away := r.seen.away(r.now())
	for n, rec := range records {
		known[id{rec.Owner, rec.Sandbox}] = true
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r.rest(ctx, &rec, away)
			errs[n] = r.load(ctx, rec)
		})
	}
	wg.Wait()
	if err := errors.Join(append(errs, r.sweep(ctx, known))...); err != nil {
		return err
	}
	r.sweepLedgers()
	r.seen.note(false)
	close(r.opened)
	r.nudge()
	return nil
}

// load takes one record over.
func (r *Runtime) load(ctx context.Context, rec record.Session) error {
	s := newSession(id{rec.Owner, rec.Key})
	s.rec, s.used = rec, r.now()
	s.skills = newSkills(rec.Skills)
	sb, err := r.o.Manager.Get(ctx, sandbox.Caller{Owner: rec.Owner}, rec.Sandbox)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return fmt.Errorf("read the sandbox of a session: %w", err)
	}
	runs := sb != nil && sb.State == sandbox.StateRunning
	if sb != nil {
		s.wall, s.sandboxID = sb.Backend, sb.ID
	}
	switch rec.State {
	case record.Creating:
		s.state = creating
	case record.Live:
		s.state = awake
	case record.Closing:
		s.state = closing
	case record.Asleep:
		s.state = asleep
		if runs { // it was about to fall asleep, or to wake
			s.state = sleeping
		}
	}
	if s.state == awake {
		s.over, s.end = context.WithCancelCause(context.Background())
	}
	r.mu.Lock()
	if s.state != asleep {
		r.countLocked(s) // though they be too many: none is turned out
	}
	r.sessions[s.id] = s
	r.mu.Unlock()
	if s.state == sleeping {
		s.life.take(ctx, nil)
		defer s.life.give()
		if err := r.become(ctx, s, step{to: awake}); err != nil {
			r.log.Error("wake a session that was half asleep", "session", shown(s.id.key), "error", err) // Run puts it to sleep
		}
	}
	r.reattach(ctx, s, rec, runs)
	return nil
}

// reattach finds the processes of a session again. Where its sandbox does not
// run they have ended with it.
func (r *Runtime) reattach(ctx context.Context, s *session, rec record.Session, runs bool) {
	for pid, text := range rec.Processes {
		var pr process.Record
		err := json.Unmarshal(text, &pr)
		m := &managed{}
		var p *process.Process
		if err == nil {
			p, err = process.Reattach(r.processOptions(s, m, pr.Spec), pr)
		}
		if err != nil {
			r.log.Error("find a process again", "session", shown(s.id.key), "process", pid, "error", err)
			continue
		}
		r.mu.Lock()
		m.p = p
		s.procs[pid] = m
		switch {
		case pr.ExitedAt != nil:
			m.ended = *pr.ExitedAt
		case !p.Running():
			m.ended = r.now()
		default:
			r.running++
		}
		r.mu.Unlock()
		r.metrics.restored.Add(1)
	}
	if !runs {
		r.abandonAll(s, false)
		return
	}
	r.watchProcesses(s)
	// A guest may take its time to answer: no other session waits for that, and
	// of this one only who starts a process.
	s.procTurn.take(ctx, nil)
	r.calls.Go(func() {
		defer s.procTurn.give()
		r.endStrays(r.closing, s)
	})
}

// endStrays ends the managed processes of a sandbox that no record leads to:
// those that a daemon began in its last moment.
func (r *Runtime) endStrays(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(ctx, strayTimeout)
	defer cancel()
	g := r.guest(s)
	ids, err := g.Tagged(ctx, process.Tag)
	if err != nil {
		r.log.Warn("look for processes without a record", "session", shown(s.id.key), "error", err)
		return
	}
	r.mu.Lock()
	known := map[string]bool{}
	for _, m := range s.procs {
		if m.p != nil {
			known[m.p.Record().Command] = true
		}
	}
	r.mu.Unlock()
	for _, id := range ids {
		if !known[id] {
			r.log.Warn("end a process without a record", "session", shown(s.id.key), "command", id)
			_ = g.Signal(ctx, id, 9, true, "session")
		}
	}
}

// sweep removes the sandboxes of sessions that no record leads to.
func (r *Runtime) sweep(ctx context.Context, known map[id]bool) error {
	all, err := r.o.Manager.List(ctx, sandbox.Caller{Owner: "daemon", Admin: true}, sandbox.Filter{})
	if err != nil {
		return fmt.Errorf("list the sandboxes of sessions: %w", err)
	}
	for _, sb := range all {
		_, ours := sb.Spec.Labels[Label]
		if !ours || !strings.HasPrefix(sb.Spec.Name, namePrefix) || known[id{sb.Owner, sb.Spec.Name}] {
			continue
		}
		r.log.Warn("remove a session's sandbox without a record", "id", sb.ID)
		if err := r.o.Manager.Remove(ctx, sandbox.Caller{Owner: sb.Owner}, sb.ID, true); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			r.log.Error("remove a session's sandbox without a record", "id", sb.ID, "error", err)
		}
	}
	return nil
}

// sweepLedgers removes the files of processes that no record leads to.
func (r *Runtime) sweepLedgers() {
	if r.o.ProcessDir == "" {
		return
	}
	known := map[string]bool{}
	r.mu.Lock()
	for _, s := range r.sessions {
		for _, m := range s.procs {
			if m.p != nil {
				known[m.p.Record().Command] = true
			}
		}
	}
	r.mu.Unlock()
	if err := process.Sweep(r.o.ProcessDir, known); err != nil {
		r.log.Warn("remove what is left of processes", "error", err)
	}
}
