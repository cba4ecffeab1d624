package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/profile"
	"github.com/carboy-sandbox/carboy/internal/session/record"
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

// errOutOfTurn says that the session has to be made anew, which is the right of
// whoever has its turn.
var errOutOfTurn = errors.New("only in turn")

// acquire returns a session as spec wants it, with a lease on it.
func (r *Runtime) acquire(ctx context.Context, c sandbox.Caller, spec box.Spec) (*session, found, error) {
	return r.acquireIn(ctx, c, spec, new(waiting))
}

// acquireIn is acquire for one that waits as w says.
func (r *Runtime) acquireIn(ctx context.Context, c sandbox.Caller, spec box.Spec, w *waiting) (*session, found, error) {
	for {
		s, err := r.enter(id{c.Owner, spec.SessionID})
		if err != nil {
			return nil, found{}, err
		}
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
func (r *Runtime) settle(ctx context.Context, s *session, spec box.Spec, w *waiting) (f found, err error) {
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
	r.mu.Lock()
	gone := s.gone
	r.mu.Unlock()
	if gone {
		return f, errGone
	}
	err = r.ensure(ctx, s, spec, w.ordered, &f)
	return f, err
}

// conflict reports all fields in which spec wants a session that is there
// otherwise.
func (r *Runtime) conflict(s *session, spec box.Spec) error {
	r.mu.Lock()
	state, d := s.rec.State, r.differLocked(s, spec)
	r.mu.Unlock()
	if state != record.Live {
		return nil
	}
	if len(d) > 0 {
		r.metrics.conflicts.Add(1)
		return profile.Conflict(s.id.key, d)
	}
	return nil
}

// differLocked is profile.Conflicts with aliases resolved, and with what a
// request may ask for besides: where it says nothing of that, anything will do.
func (r *Runtime) differLocked(s *session, spec box.Spec) []box.Difference {
	is := r.infoLocked(s)
	is.Image, spec.Image = r.ImageName(is.Image), r.ImageName(spec.Image)
	d := profile.Conflicts(is, spec)
	if wall := cmp.Or(s.wall, r.wall(s.rec.Spec)); spec.Isolation != "" && spec.Isolation != wall {
		d = append(d, box.Difference{Field: "isolation", Is: wall, Asked: spec.Isolation})
	}
	if spec.Quota == box.QuotaHard && is.Quota == box.QuotaSoft {
		d = append(d, box.Difference{Field: "quota", Is: is.Quota, Asked: spec.Quota})
	}
	if n := s.rec.Workspace.Inodes; spec.WorkspaceInodes != 0 && spec.WorkspaceInodes != n {
		d = append(d, box.Difference{Field: "workspace_inodes", Is: n, Asked: spec.WorkspaceInodes})
	}
	return d
}

// ensure makes a session ready for spec. life must be held; ordered says that
// the turn is too.
func (r *Runtime) ensure(ctx context.Context, s *session, spec box.Spec, ordered bool, f *found) error {
	rec := r.record(s)
	switch rec.State {
	case "":
		f.how = wasCreated
		return r.make(ctx, s, spec, f)
	case record.Live:
		if err := r.conflict(s, spec); err != nil {
			return err
		}
		if r.sameMounts(rec, spec) {
			if err := r.revive(ctx, s, spec, f); err != nil {
				return err
			}
			return r.remember(ctx, s, spec)
		}
		if !ordered {
			return errOutOfTurn
		}
		f.say("session %s was made anew, since its extra mounts are others now: its processes, and what was not in a workspace of the host or a volume, are gone", shown(s.id.key))
	case record.Asleep:
		r.mu.Lock()
		differs := len(r.differLocked(s, spec)) > 0
		r.mu.Unlock()
		if !differs && r.sameMounts(rec, spec) {
			return r.rouse(ctx, s, spec, f)
		}
		r.mu.Lock()
		err := r.countLocked(s) // before anything is given up for it
		r.mu.Unlock()
		if err != nil {
			return err
		}
		f.say("session %s was idle, and is wanted otherwise now: it was begun anew", shown(s.id.key))
	}
	// What is left is being closed, was never finished, or is to be another.
	if err := r.erase(ctx, s); err != nil {
		return err
	}
	f.how = wasReplaced
	r.metrics.replaced.Add(1)
	return r.make(ctx, s, spec, f)
}

// remember notes which skills a session is wanted with now, for its processes.
func (r *Runtime) remember(ctx context.Context, s *session, spec box.Spec) error {
	if profile.SameMounts(r.record(s).Spec.ExtraMounts, spec.ExtraMounts) {
		return nil
	}
	err := r.amend(ctx, s, func(rec *record.Session) { rec.Spec.ExtraMounts = slices.Clone(spec.ExtraMounts) })
	return tidied(err, s.id.key, "write its record")
}

// sameMounts reports whether a session has the extra mounts of spec. Skills are
// none: they are brought.
func (r *Runtime) sameMounts(rec record.Session, spec box.Spec) bool {
	return profile.SameMounts(r.realMounts(rec.Owner, rec.Spec.ExtraMounts), r.realMounts(rec.Owner, spec.ExtraMounts))
}

// make builds a session from nothing. What it is to be is written down first:
// whatever happens then, its sandbox is found by its name.
func (r *Runtime) make(ctx context.Context, s *session, spec box.Spec, f *found) error {
	r.mu.Lock()
	err := r.countLocked(s)
	r.mu.Unlock()
	if err != nil {
		return err
	}
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
	rec.State, rec.CreatedAt, rec.LastUsedAt = record.Creating, r.now(), r.now()
	if err := r.amend(ctx, s, func(to *record.Session) { *to = rec }); err != nil {
		if ferr := r.forget(ctx, s, rec.ID); ferr != nil { // whether it is there is not known
			r.log.Error("forget a session that could not be written", "error", ferr)
		}
		return failure(err, s.id.key, "write its record")
	}
	if rec.Workspace.Project != 0 { // written down by now, so that it is lifted whatever comes
		if err := r.hold(rec.Workspace); err != nil {
			return r.unmade(ctx, s, err)
		}
	}
	sb, err := r.o.Manager.Create(ctx, c, want)
	if err != nil {
		return r.unmade(ctx, s, err)
	}
	f.notices = append(f.notices, otherwise(want, sb)...)
	err = r.amend(ctx, s, func(to *record.Session) { to.State, to.Notices = record.Live, slices.Clone(f.notices[said:]) })
	if err != nil {
		return r.unmade(ctx, s, err)
	}
	r.begun(s, sb)
	r.metrics.created.Add(1)
	r.log.Info("session created", "owner", s.id.owner, "session", shown(s.id.key), "sandbox", sb.ID, "backend", sb.Backend)
	return nil
}

// unmade takes a session that could not be made back to nothing.
func (r *Runtime) unmade(ctx context.Context, s *session, cause error) error {
	if err := r.erase(ctx, s); err != nil {
		r.log.Error("undo a failed session", "owner", s.id.owner, "session", shown(s.id.key), "cause", cause, "error", err)
	}
	return r.explain(cause)
}

// begun notes the sandbox that a session has now.
func (r *Runtime) begun(s *session, sb *sandbox.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.wall, s.box = sb.Backend, sb.ID
	s.over, s.end = context.WithCancelCause(context.Background())
	s.leaveGuestLocked()
	s.skills = newSkills(nil)
}

// erase takes a session to nothing: its sandbox first and its record last, so
// that a sandbox always has a record that leads to it. life must be held.
func (r *Runtime) erase(ctx context.Context, s *session) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	rec := r.record(s)
	if rec.State == "" {
		return nil
	}
	if rec.State == record.Live {
		r.takeBackAll(ctx, s)
	}
	if rec.State != record.Closing {
		if err := r.become(ctx, s, record.Closing); err != nil {
			return r.again(s, err)
		}
	}
	r.ended(s, deletedMeanwhile(s))
	r.abandonAll(s, true)
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
	r.mu.Lock()
	s.retry = r.now().Add(retryDelay)
	r.mu.Unlock()
	r.log.Error("end a session", "owner", s.id.owner, "session", shown(s.id.key), "error", err)
	return err
}

// deletedMeanwhile is why a call ends whose session does.
func deletedMeanwhile(s *session) error {
	return fail(ErrNotFound, sandbox.NotFound, "session %s was deleted meanwhile", shown(s.id.key))
}

// endedMeanwhile is why a call ends whose sandbox does.
func endedMeanwhile(s *session) error {
	return fail(nil, sandbox.Unavailable, "session %s: its sandbox ended meanwhile", shown(s.id.key)).WithHint("try again")
}

// ended ends the calls that are under way in a session's sandbox.
func (r *Runtime) ended(s *session, cause error) {
	r.mu.Lock()
	end := s.end
	s.leaveGuestLocked()
	r.mu.Unlock()
	if end != nil {
		end(cause)
	}
}

// revive sees that the sandbox of a live session runs. One that has ended is
// started again, or replaced where that can't be.
func (r *Runtime) revive(ctx context.Context, s *session, spec box.Spec, f *found) error {
	f.how = wasReused
	c := sandbox.Caller{Owner: s.id.owner}
	rec := r.record(s)
	sb, notice, err := r.o.Manager.EnsureRunning(ctx, c, rec.Sandbox)
	if sandbox.KindOf(err) == sandbox.Conflict { // someone stopped it
		notice = fmt.Sprintf("session %s: its sandbox had been stopped, and was started again: its processes are gone", shown(s.id.key))
		sb, err = r.o.Manager.Start(ctx, c, rec.Sandbox)
	}
	switch {
	case err == nil && notice == "":
		r.metrics.reused.Add(1)
		return nil
	case err == nil:
		r.restarted(s, sb)
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
	if err := r.erase(ctx, s); err != nil {
		return err
	}
	f.how = wasReplaced
	r.metrics.replaced.Add(1)
	return r.make(ctx, s, spec, f)
}

// rouse wakes a session that sleeps.
func (r *Runtime) rouse(ctx context.Context, s *session, spec box.Spec, f *found) error {
	r.mu.Lock()
	err := r.countLocked(s)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	asleep := func(err error) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.uncountLocked(s)
		return err
	}
	rec := r.record(s)
	sb, err := r.o.Manager.Start(ctx, sandbox.Caller{Owner: s.id.owner}, rec.Sandbox)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		f.say("session %s slept, and its sandbox was removed meanwhile: it was begun anew", shown(s.id.key))
		if err := r.erase(ctx, s); err != nil {
			return asleep(err)
		}
		f.how = wasReplaced
		r.metrics.replaced.Add(1)
		return r.make(ctx, s, spec, f)
	case err != nil:
		return asleep(r.explain(err))
	}
	if err := r.become(ctx, s, record.Live); err != nil {
		undo, cancel := detached(ctx)
		defer cancel()
		if _, serr := r.o.Manager.Stop(undo, sandbox.Caller{Owner: s.id.owner}, rec.Sandbox); serr != nil {
			r.log.Error("put a session back to sleep", "error", serr)
		}
		return asleep(err)
	}
	r.restarted(s, sb)
	f.how = wasWoken
	r.metrics.woken.Add(1)
	return nil
}

// restarted notes that a session's sandbox was started again.
func (r *Runtime) restarted(s *session, sb *sandbox.Sandbox) {
	r.ended(s, endedMeanwhile(s))
	r.abandonAll(s, false)
	r.mu.Lock()
	s.wall, s.box = sb.Backend, sb.ID
	s.over, s.end = context.WithCancelCause(context.Background())
	s.leaveGuestLocked()
	brought := s.skills.brought
	r.mu.Unlock()
	brought.Restarted() // which waits for whoever has the guest bring something
}
