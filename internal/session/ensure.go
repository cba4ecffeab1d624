package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// What a call found, as AuditRecord.SessionIs has it.
const (
	wasReused   = "reused"
	wasCreated  = "created"
	wasReplaced = "replaced"
	wasWoken    = "woken"
)

// found is what a call found, and what its user should know of that.
type found struct {
	how     string
	notices []string
}

func (f *found) say(format string, args ...any) {
	f.notices = append(f.notices, fmt.Sprintf(format, args...))
}

// errOutOfTurn says that the session has to be made anew, which only the holder
// of its turn may do.
var errOutOfTurn = errors.New("only in turn")

// acquire returns a session as spec wants it, with a lease on it.
func (r *Runtime) acquire(ctx context.Context, c sandbox.Caller, spec Spec) (*session, found, error) {
	return r.acquireIn(ctx, c, spec, new(waiting))
}

// acquireIn is acquire for one that waits as w says.
func (r *Runtime) acquireIn(ctx context.Context, c sandbox.Caller, spec Spec, w *waiting) (*session, found, error) {
	spec.Floor = c.Floor
	for {
		s := r.enter(id{c.Owner, spec.Key})
		f, err := r.settle(ctx, s, spec, w)
		switch {
		case err == nil:
			return s, f, nil
		case errors.Is(err, errGone):
			r.release(s)
		case errors.Is(err, errOutOfTurn):
			r.release(s)
			w.ordered, w.brief = true, true
		default:
			r.release(s)
			return nil, found{}, err
		}
	}
}

// errGone says that a session was deleted while it was waited for.
var errGone = errors.New("deleted meanwhile")

// settle waits for what w says, and makes the session ready.
func (r *Runtime) settle(ctx context.Context, s *session, spec Spec, w *waiting) (f found, err error) {
	if err := r.conflict(s, spec); err != nil { // which no waiting mends
		return f, err
	}
	if w.ordered {
		if err := w.turn(ctx, r, s); err != nil {
			return f, err
		}
		defer func() {
			if err != nil || w.brief {
				s.turn.give()
			}
		}()
	}
	if !s.life.take(ctx, nil) {
		return f, context.Cause(ctx)
	}
	defer s.life.give()
	if r.stateOf(s) == gone {
		return f, errGone
	}
	err = r.ensure(ctx, s, spec, w.ordered, &f)
	return f, err
}

// conflict reports all fields in which spec wants a session that is there
// otherwise.
func (r *Runtime) conflict(s *session, spec Spec) error {
	r.mu.Lock()
	is, d := s.state, r.differLocked(s, spec)
	r.mu.Unlock()
	if is != awake {
		return nil
	}
	if len(d) > 0 {
		r.metrics.conflicts.Add(1)
		return fault.Conflict(s.id.key, d)
	}
	return nil
}

// differLocked is request.Differences with aliases resolved, and with what a
// request may ask for besides: where it says nothing of that, anything will do.
func (r *Runtime) differLocked(s *session, spec Spec) []sessions.Difference {
	is, w := s.rec.Spec, s.rec.Workspace
	is.Image, spec.Image = r.ImageName(is.Image), r.ImageName(spec.Image)
	d := request.Differences(is, spec)
	if wall := cmp.Or(s.wall, r.shaper.wall(s.rec.Spec)); spec.Isolation != "" && spec.Isolation != wall {
		d = append(d, sessions.Difference{Field: "isolation", Is: wall, Asked: spec.Isolation})
	}
	if spec.Workspace.Quota == request.QuotaHard && w.Quota == request.QuotaSoft {
		d = append(d, sessions.Difference{Field: "quota", Is: w.Quota, Asked: spec.Workspace.Quota})
	}
	if n := w.Inodes; spec.Workspace.Inodes != 0 && spec.Workspace.Inodes != n {
		d = append(d, sessions.Difference{Field: "workspace_inodes", Is: n, Asked: spec.Workspace.Inodes})
	}
	return d
}

// ensure makes a session ready for spec. life must be held; ordered says that
// the turn is too.
func (r *Runtime) ensure(ctx context.Context, s *session, spec Spec, ordered bool, f *found) error {
	switch r.stateOf(s) {
	case absent:
		f.how = wasCreated
		return r.make(ctx, s, spec, f)
	case sleeping, waking: // which was left unfinished
		if err := r.layDown(ctx, s); err != nil {
			return err
		}
		return r.ensure(ctx, s, spec, ordered, f)
	case awake:
		if err := r.conflict(s, spec); err != nil {
			return err
		}
		if r.sameMounts(r.record(s), spec) {
			if err := r.revive(ctx, s, spec, f); err != nil {
				return err
			}
			return r.remember(ctx, s, spec)
		}
		if !ordered {
			return errOutOfTurn
		}
		f.say("session %s was made anew, since its extra mounts are others now: its processes, and what was not in a workspace of the host or a volume, are gone", shown(s.id.key))
	case asleep:
		if err := r.become(ctx, s, step{to: waking}); err != nil { // before anything is given up for it
			return err
		}
		r.mu.Lock()
		differs := len(r.differLocked(s, spec)) > 0
		r.mu.Unlock()
		if !differs && r.sameMounts(r.record(s), spec) {
			return r.rouse(ctx, s, spec, f)
		}
		f.say("session %s was idle, and is wanted otherwise now: it was begun anew", shown(s.id.key))
	case creating, closing: // which was left unfinished
	case gone:
		return errGone
	}
	return r.replace(ctx, s, spec, f)
}

// remember notes which skills a session is wanted with now, for its processes.
func (r *Runtime) remember(ctx context.Context, s *session, spec Spec) error {
	if request.SameMounts(r.record(s).Spec.Mounts, spec.Mounts) {
		return nil
	}
	err := r.amend(ctx, s, func(rec *record.Session) { rec.Spec.Mounts = slices.Clone(spec.Mounts) })
	return tidied(err, s.id.key, "write its record")
}

// sameMounts reports whether a session has the extra mounts of spec. Skills are
// none: they are brought.
func (r *Runtime) sameMounts(rec record.Session, spec Spec) bool {
	return request.SameMounts(r.shaper.realMounts(rec.Owner, rec.Spec.Mounts), r.shaper.realMounts(rec.Owner, spec.Mounts))
}

// revive sees that the sandbox of a live session runs. One that has ended is
// started again, or replaced where that can't be.
func (r *Runtime) revive(ctx context.Context, s *session, spec Spec, f *found) error {
	f.how = wasReused
	c := sandbox.Caller{Owner: s.id.owner, Floor: spec.Floor}
	rec := r.record(s)
	sb, notice, err := r.o.Manager.EnsureRunning(ctx, c, rec.Sandbox)
	if sandbox.KindOf(err) == sandbox.Conflict { // someone stopped it
		notice = fmt.Sprintf("session %s: its sandbox had been stopped, and was started again: its processes are gone", shown(s.id.key))
		if err = r.stillAllowed(ctx, s); sandbox.KindOf(err) == sandbox.Denied {
			return err
		}
		sb, err = r.o.Manager.Start(ctx, c, rec.Sandbox)
	}
	switch {
	case err == nil && notice == "":
		r.metrics.reused.Add(1)
		return nil
	case err == nil:
		if err := r.restarted(ctx, s, sb); err != nil {
			return err
		}
		f.how = wasReplaced
		f.say("%s", notice)
		r.metrics.replaced.Add(1)
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case sandbox.KindOf(err) != sandbox.NotFound && sandbox.KindOf(err) != sandbox.Internal:
		return r.explain(err)
	}
	r.log.Warn("replace a dead session", "owner", s.id.owner, "session", shown(s.id.key), "error", err)
	f.say("session %s: its sandbox was gone, and was replaced: its processes, and what was not in a workspace of the host or a volume, are lost", shown(s.id.key))
	return r.replace(ctx, s, spec, f)
}

// rouse goes on with a session that is waking.
func (r *Runtime) rouse(ctx context.Context, s *session, spec Spec, f *found) error {
	var sb *sandbox.Sandbox
	err := r.stillAllowed(ctx, s)
	if err == nil {
		sb, err = r.o.Manager.Start(ctx, sandbox.Caller{Owner: s.id.owner, Floor: spec.Floor}, r.record(s).Sandbox)
	}
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		f.say("session %s slept, and its sandbox was removed meanwhile: it was begun anew", shown(s.id.key))
		return r.replace(ctx, s, spec, f)
	case err != nil:
		if berr := r.become(ctx, s, step{to: asleep}); berr != nil {
			return berr
		}
		return r.explain(err)
	}
	if err := r.restarted(ctx, s, sb); err != nil {
		if r.become(ctx, s, step{to: sleeping}) == nil {
			_ = r.layDown(ctx, s) // which is tried again
		}
		return err
	}
	f.how = wasWoken
	r.metrics.woken.Add(1)
	return nil
}

// restarted notes that a session's sandbox was started again.
func (r *Runtime) restarted(ctx context.Context, s *session, sb *sandbox.Sandbox) error {
	return r.become(ctx, s, step{to: awake, sandbox: sb, why: endedMeanwhile(s)})
}
