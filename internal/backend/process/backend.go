package process

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/enter"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Name is the wall's name in a Spec.
const Name = "process"

// Options place a Backend. All paths are absolute.
type Options struct {
	State  string          // instances live in State/boxes/process
	Cache  string          // the guest agent, the host image's skeleton and disk templates
	Log    *slog.Logger    // default: discard
	Images instance.Images // default: the host image alone
	// Snapshots has what instances may lie over besides; nil: there are none.
	Snapshots instance.Snapshots
}

// Backend is the process wall. Open makes one.
type Backend struct {
	*instance.Host
	spans *spans
}

var _ sandbox.Backend = (*Backend)(nil)

// Capabilities implements sandbox.Backend.
func (b *Backend) Capabilities() sandbox.Capabilities {
	c := b.Host.Capabilities()
	c.Warm = b
	return c
}

// The wall's own needs, on top of what an instance was promised.
const (
	// wallMemory is the guest agent's and its buffers'.
	wallMemory = 64 << 20
	// wallPIDs are the threads of the agent and of its inits.
	wallPIDs = 128
)

// limits are what the host enforces for a whole instance; commands have a group of
// their own within it.
func limits(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory + wallMemory, CPUs: l.CPUs, PIDs: l.PIDs + wallPIDs}
}

// Open looks at what this machine can do and puts the guest agent in place.
func Open(_ context.Context, opts Options) (*Backend, error) {
	host, err := instance.Open(instance.Options{
		Wall: Name, State: opts.State, Cache: opts.Cache, Log: opts.Log, Images: opts.Images, Snapshots: opts.Snapshots,
		Limits: limits, Stray: stray, OwnCommands: true,
	})
	if err != nil {
		return nil, err
	}
	b := &Backend{Host: host}
	b.spans = newSpans()
	return b, nil
}

// stray knows an instance's first process by the directory that it was told.
func stray(args []string, dir string) bool {
	return len(args) == 2 && args[0] == enter.Name && args[1] == filepath.Clean(dir)
}

// Start implements sandbox.Backend.
func (b *Backend) Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	enforced, err := b.report(sb.Spec)
	if err = errors.Join(err, instance.CheckLink(sb)); err != nil {
		return nil, err
	}
	p, err := b.start(ctx, sb)
	return b.Started(ctx, sb.ID, p, enforced, err)
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
	return b.report(sb.Spec)
}

func (b *Backend) start(ctx context.Context, sb *sandbox.Sandbox) (*instance.Layout, error) {
	p, cfg, err := b.Prepare(ctx, sb)
	if err != nil {
		return nil, err
	}
	p.Native = true
	if !b.Rootless() && !weak.On(weak.UserShared) {
		p.Base = b.spans.base(sb.ID)
	}
	kills, err := b.Enterable(sb, p, cfg)
	if err != nil {
		return nil, err
	}
	strict(cfg)
	if err := boundFiles(cfg, sb.Spec.Limits); err != nil {
		return nil, err
	}
	agent, err := b.HandOver(ctx, p, cfg)
	if err != nil {
		return nil, err
	}
	defer agent.Close()
	pid, err := b.launch(ctx, p, agent, sb.Link)
	if err != nil {
		return nil, err
	}
	return p, b.Join(ctx, p, kills, pid)
}

// Remove implements sandbox.Backend.
func (b *Backend) Remove(ctx context.Context, id string) error {
	if err := b.Host.Remove(ctx, id); err != nil {
		return err
	}
	b.spans.release(id)
	return nil
}

// strict is how commands are held where the kernel is the host's.
func strict(c *control.Config) {
	c.AllowRoot = false
	c.Strict = true
	c.OOMScore = commandScore
}

// commandScore makes the kernel choose a command before it chooses an agent.
const commandScore = 500
