package service

import (
	"context"

	"github.com/carboy-sandbox/carboy/api/box"
)

// Runtime is what keeps sessions, for one caller. Its errors are classed by
// profile.Class.
type Runtime interface {
	Exec(ctx context.Context, spec box.Spec) (box.Result, error)
	Create(ctx context.Context, spec box.Spec) (box.SessionInfo, error)
	Get(ctx context.Context, id string) (box.SessionInfo, error)
	List(ctx context.Context) ([]box.SessionInfo, error)
	Delete(ctx context.Context, id string) error
	StartProcess(ctx context.Context, id string, p box.ProcessSpec) (box.ProcessInfo, error)
	Process(ctx context.Context, id, process string) (box.ProcessInfo, error)
	StopProcess(ctx context.Context, id, process string) error
	Status(ctx context.Context) (box.RuntimeStatus, error)
	Backend(ctx context.Context) (box.Backend, error)
}
