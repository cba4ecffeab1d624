package session

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// takeBackTimeout bounds what is taken back of a sandbox that goes.
const takeBackTimeout = 30 * time.Second

// skills is what a session's sandbox has of them.
type skills struct{ brought *skill.Brought }

// newSkills reads what a record has.
func newSkills(kept json.RawMessage) skills {
	b := new(skill.Brought)
	if len(kept) > 0 {
		_ = json.Unmarshal(kept, b) // else they are brought again
	}
	return skills{b}
}

// wanted are the skills of a request.
func (r *Runtime) wanted(ctx context.Context, s *session, spec Spec) ([]skill.Placed, error) {
	if r.o.Skills == nil {
		if spec.Skill != "" {
			return nil, sandbox.Errorf(sandbox.Unsupported, "skill %s: there are no skills here", spec.Skill)
		}
		return nil, nil
	}
	mounts := spec.Mounts
	if spec.Skill != "" {
		m, err := r.o.Skills.Named(ctx, s.id.owner, spec.Skill)
		if err != nil {
			return nil, err
		}
		mounts = append(slices.Clone(mounts), m)
	}
	var want []skill.Placed
	for _, m := range mounts {
		if m.Mode == request.NotMounted {
			continue
		}
		p, ok, err := r.shaper.skillOf(s.id.owner, m)
		if err != nil {
			return nil, err
		}
		if ok && !slices.ContainsFunc(want, func(w skill.Placed) bool { return w.Name == p.Name }) {
			want = append(want, p)
		}
	}
	return want, nil
}

// bring has the skills of a request in the session's sandbox.
func (r *Runtime) bring(ctx context.Context, s *session, spec Spec) (notices []string, err error) {
	want, err := r.wanted(ctx, s, spec)
	if err != nil || r.o.Skills == nil || len(want) == 0 && !r.brought(s).Any() {
		return nil, err
	}
	g := r.guest(s)
	before := r.broughtText(s)
	notices, err = r.o.Skills.Bring(ctx, s.id.owner, g, r.brought(s), want)
	if kerr := r.keepSkills(ctx, s, before); err == nil {
		err = kerr
	}
	return notices, err
}

// brought is what the session's sandbox of now has.
func (r *Runtime) brought(s *session) *skill.Brought {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.skills.brought
}

func (r *Runtime) broughtText(s *session) string {
	b, _ := r.brought(s).MarshalJSON()
	return string(b)
}

// keepSkills writes down what the sandbox has of skills, if that has changed.
func (r *Runtime) keepSkills(ctx context.Context, s *session, before string) error {
	now := r.broughtText(s)
	if now == before {
		return nil
	}
	return r.amend(ctx, s, func(rec *record.Session) { rec.Skills = json.RawMessage(now) })
}

// takeBack takes what a command may have changed of its skills into the store:
// of the one that is named, and those that its text or its directory names.
func (r *Runtime) takeBack(ctx context.Context, s *session, named string, cmd Command) (notices []string) {
	if r.o.Skills == nil {
		return nil
	}
	var touched []skill.Placed
	dir := path.Clean(cmd.Dir) + "/"
	for _, p := range r.brought(s).Writable() {
		at := tools.SkillsPath + "/" + p.Name + "/"
		if named == p.Name || strings.Contains(cmd.Line, p.Name) || strings.HasPrefix(dir, at) || dir == tools.SkillsPath+"/" {
			touched = append(touched, p)
		}
	}
	return r.takeBackThose(ctx, s, touched)
}

// takeBackAll takes back all that may have been changed, before the sandbox
// goes.
func (r *Runtime) takeBackAll(ctx context.Context, s *session) {
	if r.o.Skills == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, takeBackTimeout)
	defer cancel()
	if writable := r.brought(s).Writable(); len(writable) > 0 {
		for _, n := range r.takeBackThose(ctx, s, writable) {
			r.log.Warn("take back a skill", "owner", s.id.owner, "session", shown(s.id.key), "notice", n)
		}
	}
}

func (r *Runtime) takeBackThose(ctx context.Context, s *session, list []skill.Placed) (notices []string) {
	if len(list) == 0 {
		return nil
	}
	g := r.guest(s)
	before := r.broughtText(s)
	for _, p := range list {
		t, err := r.o.Skills.TakeBack(ctx, s.id.owner, g, r.brought(s), p)
		notices = append(notices, t.Notices...)
		if err != nil {
			r.log.Warn("take back a skill", "owner", s.id.owner, "session", shown(s.id.key), "skill", p.Name, "error", err)
			notices = append(notices, "skill "+p.Name+": what was changed could not be taken back: "+userText(err))
		}
	}
	if err := r.keepSkills(ctx, s, before); err != nil {
		r.log.Warn("keep what a session has of skills", "error", err)
	}
	return notices
}

// userText is what of an error a user may read.
func userText(err error) string {
	if sandbox.KindOf(err) == sandbox.Internal {
		return "the daemon's log says why"
	}
	return err.Error()
}
