package session

import (
	"context"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// replace makes a session anew, in the place of what is there.
func (r *Runtime) replace(ctx context.Context, s *session, spec Spec, f *found) error {
	if err := r.shut(ctx, s); err != nil {
		return err
	}
	f.how = wasReplaced
	r.metrics.replaced.Add(1)
	return r.make(ctx, s, spec, f)
}

// make builds a session from nothing, or leaves nothing.
func (r *Runtime) make(ctx context.Context, s *session, spec Spec, f *found) error {
	err := r.become(ctx, s, step{to: creating})
	if err == nil {
		err = r.build(ctx, s, spec, f)
	}
	if err == nil {
		return nil
	}
	if eerr := r.erase(ctx, s); eerr != nil {
		r.log.Error("undo a failed session", "owner", s.id.owner, "session", shown(s.id.key), "cause", err, "error", eerr)
	}
	return err
}

// build makes the sandbox of a session. What it is to be is written down first:
// whatever happens then, it is found by its name.
func (r *Runtime) build(ctx context.Context, s *session, spec Spec, f *found) error {
	c := sandbox.Caller{Owner: s.id.owner}
	said := len(f.notices)
	want, rec, err := r.shape(ctx, c, spec, f)
	if err != nil {
		return err
	}
	if rec.Workspace.Project == 0 {
		look, err := r.guard(ctx, rec.Workspace, s.id.key) // before anything is begun
		if err != nil {
			return err
		}
		look.close()
	}
	rec.CreatedAt, rec.LastUsedAt = r.now(), r.now()
	if err := r.amend(ctx, s, func(to *record.Session) { *to = rec }); err != nil {
		if ferr := r.forget(ctx, s, rec.ID); ferr != nil { // whether it is there is not known
			r.log.Error("forget a session that could not be written", "error", ferr)
		}
		return failure(err, s.id.key, "write its record")
	}
	if rec.Workspace.Project != 0 { // written down by now, so that it is lifted whatever comes
		if err := r.hold(rec.Workspace); err != nil {
			return r.explain(err)
		}
	}
	sb, err := r.o.Manager.Create(ctx, c, want, nil)
	if err != nil {
		return r.explain(err)
	}
	f.notices = append(f.notices, otherwise(want, sb)...)
	err = r.become(ctx, s, step{to: awake, sandbox: sb, write: func(to *record.Session) { to.Notices = slices.Clone(f.notices[said:]) }})
	if err != nil {
		return r.explain(err)
	}
	r.metrics.created.Add(1)
	r.log.Info("session created", "owner", s.id.owner, "session", shown(s.id.key), "sandbox", sb.ID, "backend", sb.Backend)
	return nil
}

// erase takes a session to nothing. life must be held.
func (r *Runtime) erase(ctx context.Context, s *session) error {
	if err := r.shut(ctx, s); err != nil {
		return err
	}
	if r.stateOf(s) == absent {
		return nil
	}
	return r.become(ctx, s, step{to: absent})
}

// shut takes away what there is of a session: its sandbox first and its record
// last, so that a sandbox always has a record that leads to it. life must be
// held.
func (r *Runtime) shut(ctx context.Context, s *session) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	rec, is := r.record(s), r.stateOf(s)
	if rec.ID == "" {
		return nil
	}
	if is == awake {
		r.takeBackAll(ctx, s)
	}
	if is != closing {
		if err := r.become(ctx, s, step{to: closing, why: deletedMeanwhile(s)}); err != nil {
			return r.again(s, err)
		}
	}
	err := r.o.Manager.Remove(ctx, sandbox.Caller{Owner: s.id.owner}, rec.Sandbox, true)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return r.again(s, err)
	}
	r.letGo(rec.Workspace)
	if err := r.forget(ctx, s, rec.ID); err != nil {
		return r.again(s, err)
	}
	return nil
}

// again has Run try what failed once more.
func (r *Runtime) again(s *session, err error) error {
	r.later(s)
	r.log.Error("end a session", "owner", s.id.owner, "session", shown(s.id.key), "error", err)
	return err
}

// later has Run look at a session once more.
func (r *Runtime) later(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.retry = r.now().Add(retryDelay)
}

// deletedMeanwhile is why a call ends whose session does.
func deletedMeanwhile(s *session) error {
	return fault.Because(fault.ErrNotFound, sandbox.NotFound, "session %s was deleted meanwhile", shown(s.id.key))
}

// endedMeanwhile is why a call ends whose sandbox does.
func endedMeanwhile(s *session) error {
	return fault.Because(nil, sandbox.Unavailable, "session %s: its sandbox ended meanwhile", shown(s.id.key)).WithHint("try again")
}
