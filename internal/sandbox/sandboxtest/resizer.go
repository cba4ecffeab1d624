package sandboxtest

import (
	"context"
	"maps"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The operations of a Resizer.
const (
	Resizable Op = "resizable"
	Resize    Op = "resize"
	Grow      Op = "grow"
)

// Resizer is a Fake whose instances can get other limits. Later names those that it
// leaves for the next start, with why.
type Resizer struct {
	*Fake
	Later map[string]string
}

// Capabilities implements sandbox.Backend.
func (f Resizer) Capabilities() sandbox.Capabilities {
	c := f.Fake.Capabilities()
	c.Resize = f
	return c
}

// Resizable implements sandbox.Resizer.
func (f Resizer) Resizable(ctx context.Context, sb *sandbox.Sandbox, _ sandbox.Limits) error {
	return f.hook(ctx, Resizable, sb.ID)
}

// Resize implements sandbox.Resizer.
func (f Resizer) Resize(ctx context.Context, sb *sandbox.Sandbox, to sandbox.Limits) sandbox.Resized {
	out := sandbox.Resized{Later: maps.Clone(f.Later), Notes: map[string]string{}}
	if out.Later == nil {
		out.Later = map[string]string{}
	}
	b, done := f.enter(Resize, sb.ID, false)
	defer done()
	if err := f.hook(ctx, Resize, sb.ID); err != nil || !f.isRunning(b) {
		for _, name := range []string{sandbox.LimitCPUs, sandbox.LimitMemory, sandbox.LimitPIDs} {
			out.Later[name] = "it can't now"
		}
		return out
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	has := to
	for name := range out.Later {
		switch name {
		case sandbox.LimitCPUs:
			has.CPUs = sb.Spec.Limits.CPUs
		case sandbox.LimitMemory:
			has.Memory = sb.Spec.Limits.Memory
		case sandbox.LimitPIDs:
			has.PIDs = sb.Spec.Limits.PIDs
		}
	}
	b.limits = &has
	return out
}

// Grow implements sandbox.Resizer.
func (f Resizer) Grow(ctx context.Context, id string, from, to sandbox.Limits) (sandbox.Limits, error) {
	b, done := f.enter(Grow, id, false)
	defer done()
	if err := f.hook(ctx, Grow, id); err != nil {
		return from, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b.disk = max(b.disk, to.Disk)
	from.Disk = b.disk
	return from, nil
}

// LimitsOf returns what the instance was last given by Resize, or nil, and the size
// that its disk was grown to, or 0.
func (f Resizer) LimitsOf(id string) (*sandbox.Limits, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.instances[id]; b != nil {
		return b.limits, b.disk
	}
	return nil, 0
}
