package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
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
	c := sandbox.Caller{Owner: s.id.owner, Floor: spec.Floor}
	said := len(f.notices)
	want, rec, err := r.shaper.shape(ctx, c, spec, f)
	if err != nil {
		return err
	}
	if rec.Workspace.Project == 0 {
		look, err := r.quotas.guard(ctx, rec.Workspace, s.id.key) // before anything is begun
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
		if err := r.quotas.hold(rec.Workspace); err != nil {
			return r.explain(err)
		}
	}
	sb, err := r.o.Manager.Create(ctx, c, want, nil)
	if err != nil {
		return r.explain(limited(err))
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

// limited is err, where a limit can't be kept with what mends that: a session has limits
// whether or not they were asked for, and none can be left out.
func limited(err error) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind != sandbox.Unsupported || !strings.Contains(e.Msg, "can't be limited here") {
		return err
	}
	return e.WithHint("every session has limits: have root run the daemon, or mend what carboy doctor names")
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

// shut removes a session: its sandbox first and its record
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
	r.quotas.letGo(rec.Workspace)
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

// KeepWarm keeps sandboxes ready that fit sessions of spec, before anyone asks
// for one. It fails with Unsupported where there can be none: with
// a network, or anything of the host in it.
func (r *Runtime) KeepWarm(ctx context.Context, c sandbox.Caller, spec Spec) error {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	if err := request.Check(spec); err != nil {
		return err
	}
	want, _, err := r.shaper.shape(ctx, c, spec, new(found))
	if err != nil {
		return tidied(err, spec.Key, "keep one warm")
	}
	want.Name, want.Labels = "", nil
	return r.o.Manager.KeepWarm(ctx, c, want)
}

// otherwise says in what a sandbox is not as was wanted: in a limit, or in
// what is held of its promises.
func otherwise(want sandbox.Spec, is *sandbox.Sandbox) (notices []string) {
	w, l := want.Limits, is.Spec.Limits
	if w.CPUs > 0 && w.CPUs != l.CPUs {
		notices = append(notices, fmt.Sprintf("cpus is %v and not %v: the sandbox could not have more", l.CPUs, w.CPUs))
	}
	for _, of := range []struct {
		name           string
		want, is, unit int64
	}{
		{"memory_mb", w.Memory, l.Memory, 1 << 20},
		{"pids_limit", w.PIDs, l.PIDs, 1},
		{"workspace_quota_mb", w.Disk, l.Disk, 1 << 20},
		{"workspace_inodes", w.Inodes, l.Inodes, 1},
	} {
		if of.want > 0 && of.want != of.is {
			notices = append(notices, fmt.Sprintf("%s is %d and not %d: so the sandbox has it", of.name, of.is/of.unit, of.want/of.unit))
		}
	}
	for _, e := range is.Enforced {
		if !e.Enforced {
			notices = append(notices, fmt.Sprintf("%.40s is not held to here: %.300s", e.Promise, e.Reason))
		}
	}
	return notices
}

// stillAllowed refuses to start a session's sandbox again that has more than one
// that is made now may have: the configuration is another than when it was made,
// or somebody put another directory in the place of one of its own. It keeps its
// files, and is for its owner to delete. One that runs keeps what it has.
func (r *Runtime) stillAllowed(ctx context.Context, s *session) error {
	sb, err := r.o.Manager.Get(ctx, sandbox.Caller{Owner: s.id.owner}, r.record(s).Sandbox)
	if err != nil {
		if sandbox.KindOf(err) == sandbox.NotFound { // which is told of where it is missed
			return nil
		}
		return err
	}
	if r.shaper.allows(sb.Backend) != nil {
		return sandbox.Errorf(sandbox.Denied, "session %s is behind %s, which is weaker than %s, which sessions have here by now",
			shown(s.id.key), sb.Backend, r.c.Isolation).
			WithHint("delete the session, or have box.allowed_isolation name its wall")
	}
	dirs := []sandbox.HostDir{sb.Spec.Workspace.Source}
	for _, m := range sb.Spec.Mounts {
		dirs = append(dirs, m.Source)
	}
	for _, dir := range dirs {
		if dir == (sandbox.HostDir{}) {
			continue
		}
		if err := r.stillThere(s, dir); err != nil {
			return err
		}
	}
	return nil
}

// stillThere refuses a directory that is another by now, or that no session gets
// any more.
func (r *Runtime) stillThere(s *session, dir sandbox.HostDir) error {
	is, err := r.shaper.roots.Open(dir.Path, hostroot.Access{UID: uidOf(s.id.owner)})
	if err != nil {
		return err
	}
	defer is.Close()
	if is.Dev != dir.Dev || is.Ino != dir.Ino {
		return otherDir(dir)
	}
	return nil
}

func otherDir(d sandbox.HostDir) error {
	return sandbox.Errorf(sandbox.Conflict, "host_path %s: it is another directory than when the session was made", d.Path).
		WithHint("delete the session")
}
