package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/bottle"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/hostdir"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// maxSetUp is the size of the largest request that sets a sandbox up.
const maxSetUp = 8 << 20

// SkillFunc writes the files of an owner's skill as a tar archive.
type SkillFunc func(ctx context.Context, owner, name string, w io.Writer) error

// runner sets sandboxes up for p, and tells of each step.
func (a *sandboxAPI) runner(p *auth.Principal, told func(api.SetUpStep)) *bottle.Runner {
	return &bottle.Runner{
		Told: told,
		Open: func(name string) (*os.File, error) { return hostdir.OpenFile(a.specs.rules(p, nil), name) },
		Skill: func(ctx context.Context, name string, w io.Writer) error {
			if a.skill == nil {
				return sandbox.Errorf(sandbox.Unsupported, "there are no skills here")
			}
			return a.skill(ctx, p.Caller.Owner, name, w)
		},
	}
}

// doing is what a set-up does, once it was looked at: before anything is made.
func (a *sandboxAPI) doing(ctx context.Context, p *auth.Principal, s *api.SetUp, told func(api.SetUpStep)) (sandbox.SetUp, error) {
	do, err := a.runner(p, told).SetUp(s)
	if err != nil || a.hasSkill == nil {
		return do, err
	}
	for _, name := range s.Skills {
		if err := a.hasSkill(ctx, p.Caller.Owner, name); sandbox.KindOf(err) == sandbox.NotFound {
			return nil, sandbox.Errorf(sandbox.Invalid, "the skill %.64q is not installed", name).
				WithHint("carboy session skill ls lists those that are, and carboy session skill install FILE.zip adds some")
		} else if err != nil {
			return nil, err
		}
	}
	return do, nil
}

// withSetUp has the create of spec do what a request says of it.
func (a *sandboxAPI) withSetUp(ctx context.Context, p *auth.Principal, s *api.SetUp, spec *sandbox.Spec, told func(api.SetUpStep)) (context.Context, error) {
	if s == nil {
		return ctx, nil
	}
	if err := mayRun(p); err != nil {
		return ctx, err
	}
	do, err := a.doing(ctx, p, s, told)
	if err != nil {
		return ctx, err
	}
	spec.Agent = bottle.AgentOf(s)
	ctx, do = staying(ctx, s, do)
	return sandbox.WithSetUp(ctx, do), nil
}

// mayRun refuses those who may make sandboxes, and run nothing in them: a set-up runs commands,
// and tells what they say.
func mayRun(p *auth.Principal) error {
	if p.Allows(key.Exec) {
		return nil
	}
	return sandbox.Errorf(sandbox.Denied, "setup: this key has not the scope %s", key.Exec)
}

// staying is a context that a caller who leaves does not end any more once do has begun, where the
// daemon starts the agent itself. What the daemon's end interrupts is undone all the same.
func staying(ctx context.Context, s *api.SetUp, do sandbox.SetUp) (context.Context, sandbox.SetUp) {
	if s.Start == nil {
		return ctx, do
	}
	stays, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { leave(context.Cause(ctx)) })
	return stays, func(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error), note func(sandbox.Event)) (*sandbox.Agent, error) {
		stop()
		return do(ctx, sb, dial, note)
	}
}

// setUp sets up a sandbox that is there, once it runs.
func (a *sandboxAPI) setUp(w http.ResponseWriter, r *http.Request) {
	s, err := a.decodeSetUp(w, r)
	if err != nil {
		wire.Error(w, err)
		return
	}
	p, id := auth.Of(r), r.PathValue("id")
	if err := mayRun(p); err != nil {
		wire.Error(w, err)
		return
	}
	watchCreate(w, r, http.StatusOK, func(ctx context.Context, told func(api.SetUpStep)) (*api.Sandbox, error) {
		do, err := a.doing(ctx, p, &s, told)
		if err != nil {
			return nil, err
		}
		ctx, do = staying(ctx, &s, do)
		sb, err := a.m.Start(ctx, p.Caller, id)
		if err != nil {
			return nil, err
		}
		spec := sb.Spec
		if sb, err = a.m.SetUp(ctx, p.Caller, id, do); err != nil {
			return nil, a.ofHome(ctx, p, &s, &spec, err)
		}
		out := a.view(r, sb, &imageConfigs{images: a.images})
		return &out, nil
	})
}

func (a *sandboxAPI) decodeSetUp(w http.ResponseWriter, r *http.Request) (s api.SetUp, err error) {
	leave, err := a.reading(w, r)
	if err != nil {
		return s, err
	}
	defer leave()
	b, err := wire.Large(r, maxSetUp)
	if err == nil {
		err = wire.DecodeBytes(b, &s)
	}
	return s, err
}

// ofHome adds to the error of a set-up which command removes the home in which something may
// be amiss. One that was made for this create is gone.
func (a *sandboxAPI) ofHome(ctx context.Context, p *auth.Principal, s *api.SetUp, spec *sandbox.Spec, err error) error {
	_, own := errors.AsType[*bottle.ProviderError](err)
	kind := sandbox.KindOf(err)
	if s == nil || !own || kind == "" || kind == sandbox.Unavailable || kind == sandbox.Internal || wire.Describe(err).Hint != "" || ctx.Err() != nil {
		return err
	}
	for _, m := range spec.Mounts {
		if m.Home == "" || !a.specs.volumes.has(ctx, p, m.Volume) {
			continue
		}
		remove := "carboy volume rm " + shell.Word(m.VolumeName)
		if s.Resume {
			remove = "carboy rm -f " + shell.Word(spec.Name) + " && " + remove
		}
		return sandbox.Errorf(kind, "%w", err).
			WithHint("if what %s has kept for this directory is broken, this removes it, with its history: %s", s.Agent.Provider, remove)
	}
	return err
}
