package access

import (
	"context"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/service"
)

// Runtime is what is asked of sessions. *session.Runtime is it.
type Runtime interface {
	ImageName(name string) string
	Exec(ctx context.Context, c sandbox.Caller, spec sessions.Spec) (*session.Result, error)
	Create(ctx context.Context, c sandbox.Caller, spec sessions.Spec) (sessions.SessionInfo, error)
	Get(ctx context.Context, c sandbox.Caller, id string) (sessions.SessionInfo, error)
	List(ctx context.Context, c sandbox.Caller) ([]sessions.SessionInfo, error)
	Delete(ctx context.Context, c sandbox.Caller, id string) error
	StartProcess(ctx context.Context, c sandbox.Caller, id string, spec sessions.ProcessSpec) (sessions.ProcessInfo, error)
	Process(ctx context.Context, c sandbox.Caller, id, pid string) (sessions.ProcessInfo, error)
	StopProcess(ctx context.Context, c sandbox.Caller, id, pid string) error
	Status(ctx context.Context, c sandbox.Caller) (sessions.RuntimeStatus, error)
	Backend(ctx context.Context) sessions.Backend
	Borrow(ctx context.Context, c sandbox.Caller, id string, job session.Job) (*session.Use, error)
}

var _ Runtime = (*session.Runtime)(nil)

// bound is a Runtime for one caller.
type bound struct {
	r Runtime
	c Caller
}

var _ service.Runtime = bound{}

// mayHave refuses the machine's own programs to whom they are not granted.
func (b bound) mayHave(spec sessions.Spec) error {
	image := b.r.ImageName(spec.Image)
	if image != sandbox.DefaultImage || b.c.HostImage {
		return nil
	}
	return sandbox.Errorf(sandbox.Denied, "image %s: this key may not see the machine's own programs", image).
		WithHint(`set "host_image": true in the key file, or name another image`)
}

func (b bound) Exec(ctx context.Context, spec sessions.Spec) (sessions.Result, error) {
	if err := b.mayHave(spec); err != nil {
		return sessions.Result{}, err
	}
	res, err := b.r.Exec(ctx, b.c.Caller, spec)
	if err != nil {
		return sessions.Result{}, err
	}
	return res.Wire(), nil
}

func (b bound) Create(ctx context.Context, spec sessions.Spec) (sessions.SessionInfo, error) {
	if err := b.mayHave(spec); err != nil {
		return sessions.SessionInfo{}, err
	}
	return b.r.Create(ctx, b.c.Caller, spec)
}

func (b bound) Get(ctx context.Context, id string) (sessions.SessionInfo, error) {
	return b.r.Get(ctx, b.c.Caller, id)
}

func (b bound) List(ctx context.Context) ([]sessions.SessionInfo, error) {
	return b.r.List(ctx, b.c.Caller)
}

func (b bound) Delete(ctx context.Context, id string) error { return b.r.Delete(ctx, b.c.Caller, id) }

func (b bound) StartProcess(ctx context.Context, id string, p sessions.ProcessSpec) (sessions.ProcessInfo, error) {
	return b.r.StartProcess(ctx, b.c.Caller, id, p)
}

func (b bound) Process(ctx context.Context, id, process string) (sessions.ProcessInfo, error) {
	return b.r.Process(ctx, b.c.Caller, id, process)
}

func (b bound) StopProcess(ctx context.Context, id, process string) error {
	return b.r.StopProcess(ctx, b.c.Caller, id, process)
}

func (b bound) Status(ctx context.Context) (sessions.RuntimeStatus, error) {
	return b.r.Status(ctx, b.c.Caller)
}

func (b bound) Backend(ctx context.Context) (sessions.Backend, error) { return b.r.Backend(ctx), nil }
