package gvisor

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Name is the wall's name in a Spec.
const Name = "gvisor"

// Options place a Backend. All paths are absolute.
type Options struct {
	State  string          // instances live in State/boxes/gvisor
	Cache  string          // the guest agent, the host image's skeleton and disk templates
	Log    *slog.Logger    // default: discard
	Images instance.Images // default: the host image alone
	// Snapshots has what instances may lie over besides; nil: there are none.
	Snapshots instance.Snapshots
	// DebugDir receives gVisor's debug logs where it is set.
	DebugDir string
}

// Backend is the gVisor wall. Open makes one.
type Backend struct {
	*instance.Host
	debugDir string
}

var _ sandbox.Backend = (*Backend)(nil)

// Capabilities implements sandbox.Backend.
func (b *Backend) Capabilities() sandbox.Capabilities {
	c := b.Host.Capabilities()
	c.Warm, c.Suspend = b, b
	return c
}

// The wall's own needs, on top of what an instance was promised.
const (
	// wallMemory is what sentry, gofer and the guest kernel's tables take
	// beside the guest's own memory: measured at 40 to 90 MiB under load.
	wallMemory = 128 << 20
	// wallPIDs bounds the wall's threads on the host: each guest thread
	// takes one or two. The guest's own limit is kept inside.
	wallPIDs = 512
)

// limits are what the host enforces for an instance.
func limits(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory + wallMemory, CPUs: l.CPUs, PIDs: 2*l.PIDs + wallPIDs, OOMTogether: true}
}

// Open looks at what this machine can do and puts the guest agent in place.
// From then on this process reaps the instances whose launchers have left.
func Open(_ context.Context, opts Options) (*Backend, error) {
	host, err := instance.Open(instance.Options{
		Wall: Name, State: opts.State, Cache: opts.Cache, Log: opts.Log, Images: opts.Images, Snapshots: opts.Snapshots,
		Limits: limits, OOMEndsInstance: true, Stray: stray,
	})
	if err != nil {
		return nil, err
	}
	return &Backend{Host: host, debugDir: opts.DebugDir}, nil
}

// stray knows a wall process by gVisor's own flag that holds the instance's
// directory.
func stray(args []string, dir string) bool {
	args = afterPrewarmer(args)
	return (args[0] == roleSentry || args[0] == roleGofer) &&
		slices.Contains(args[1:], "--root="+filepath.Join(dir, instance.DirState))
}

// launchOrder is what the daemon hands to a launcher.
type launchOrder struct {
	instance.Layout
	Memory int64   `json:"memory"` // bytes that the guest sees
	CPUs   float64 `json:"cpus"`
	// LogDir receives gVisor's debug logs where it is set.
	LogDir string `json:"log_dir"`
}

// launched is what a launcher answers.
type launched struct {
	Sentry  int    `json:"sentry"` // pids on the host
	Gofer   int    `json:"gofer"`
	Instead string `json:"instead"` // see instance.Layout
}

// Start implements sandbox.Backend.
func (b *Backend) Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	enforced, err := b.report(sb.Spec, sb.Owner)
	if err = errors.Join(err, instance.CheckLink(sb)); err != nil {
		return nil, err
	}
	resume := b.Suspended(sb.ID)
	p, err := b.start(ctx, sb, resume)
	enforced, err = b.Started(ctx, sb.ID, p, enforced, err)
	if resume && err != nil && ctx.Err() == nil {
		return nil, instance.NotResumed(err)
	}
	if resume && err == nil {
		err = b.Forget(ctx, sb.ID) // it holds what is outdated from now on
	}
	return enforced, err
}

// Warm implements sandbox.Warmer.
func (b *Backend) Warm(ctx context.Context, id string, spec sandbox.Spec, owner string) error {
	_, err := b.Start(ctx, &sandbox.Sandbox{ID: id, Owner: owner, Spec: spec})
	return err
}

// Claim implements sandbox.Warmer.
func (b *Backend) Claim(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	if err := b.Host.Claim(ctx, sb); err != nil {
		return nil, err
	}
	return b.report(sb.Spec, sb.Owner)
}

func (b *Backend) start(ctx context.Context, sb *sandbox.Sandbox, resume bool) (*instance.Layout, error) {
	prepared, cfg, err := b.Prepare(ctx, sb)
	if err != nil {
		return nil, err
	}
	p := &launchOrder{Layout: *prepared, Memory: sb.Spec.Limits.Memory, CPUs: sb.Spec.Limits.CPUs, LogDir: b.debugDir}
	if resume {
		if err := errors.Join(b.Resume(&p.Layout), sameProgram(p.Dir)); err != nil {
			return nil, err
		}
	}
	kills, err := b.Enterable(sb, &p.Layout, cfg)
	if err != nil {
		return nil, err
	}
	agent, err := b.HandOver(ctx, &p.Layout, cfg)
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	var pids launched
	if err := b.Launch(ctx, roleLauncher, p, &pids, agent, sb.Link); err != nil {
		return nil, err
	}
	p.Instead = pids.Instead
	return &p.Layout, b.Join(ctx, &p.Layout, kills, pids.Sentry, pids.Gofer)
}
