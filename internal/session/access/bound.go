package access

import (
	"context"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/service"
)

// Runtime is what is asked of sessions. *session.Runtime is it.
type Runtime interface {
	ImageName(name string) string
	Exec(ctx context.Context, c sandbox.Caller, spec langbot.Spec) (*session.Result, error)
	Create(ctx context.Context, c sandbox.Caller, spec langbot.Spec) (langbot.SessionInfo, error)
	Get(ctx context.Context, c sandbox.Caller, id string) (langbot.SessionInfo, error)
	List(ctx context.Context, c sandbox.Caller) ([]langbot.SessionInfo, error)
	Delete(ctx context.Context, c sandbox.Caller, id string) error
	StartProcess(ctx context.Context, c sandbox.Caller, id string, spec langbot.ProcessSpec) (langbot.ProcessInfo, error)
	Process(ctx context.Context, c sandbox.Caller, id, pid string) (langbot.ProcessInfo, error)
	StopProcess(ctx context.Context, c sandbox.Caller, id, pid string) error
	Status(ctx context.Context, c sandbox.Caller) (langbot.RuntimeStatus, error)
	Backend(ctx context.Context) langbot.Backend
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
func (b bound) mayHave(spec langbot.Spec) error {
	image := b.r.ImageName(spec.Image)
	if image != sandbox.DefaultImage || b.c.HostImage {
		return nil
	}
	return sandbox.Errorf(sandbox.Denied, "image %s: this key may not see the machine's own programs", image).
		WithHint(`set "host_image": true in the key file, or name another image`)
}

func (b bound) Exec(ctx context.Context, spec langbot.Spec) (langbot.Result, error) {
	if err := b.mayHave(spec); err != nil {
		return langbot.Result{}, err
	}
	res, err := b.r.Exec(ctx, b.c.Caller, spec)
	if err != nil {
		return langbot.Result{}, err
	}
	return res.Wire(), nil
}

func (b bound) Create(ctx context.Context, spec langbot.Spec) (langbot.SessionInfo, error) {
	if err := b.mayHave(spec); err != nil {
		return langbot.SessionInfo{}, err
	}
	return b.r.Create(ctx, b.c.Caller, spec)
}

func (b bound) Get(ctx context.Context, id string) (langbot.SessionInfo, error) {
	return b.r.Get(ctx, b.c.Caller, id)
}

func (b bound) List(ctx context.Context) ([]langbot.SessionInfo, error) {
	return b.r.List(ctx, b.c.Caller)
}

func (b bound) Delete(ctx context.Context, id string) error { return b.r.Delete(ctx, b.c.Caller, id) }

func (b bound) StartProcess(ctx context.Context, id string, p langbot.ProcessSpec) (langbot.ProcessInfo, error) {
	return b.r.StartProcess(ctx, b.c.Caller, id, p)
}

func (b bound) Process(ctx context.Context, id, process string) (langbot.ProcessInfo, error) {
	return b.r.Process(ctx, b.c.Caller, id, process)
}

func (b bound) StopProcess(ctx context.Context, id, process string) error {
	return b.r.StopProcess(ctx, b.c.Caller, id, process)
}

func (b bound) Status(ctx context.Context) (langbot.RuntimeStatus, error) {
	return b.r.Status(ctx, b.c.Caller)
}

func (b bound) Backend(ctx context.Context) (langbot.Backend, error) { return b.r.Backend(ctx), nil }
