package sandboxtest

import (
	"context"
	"fmt"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The operations of a Suspender.
const (
	Suspend     Op = "suspend"
	Suspendable Op = "suspendable"
)

// Suspender is a Fake whose instances can be stopped with their memory. What an instance
// has in memory is how often it was started without any.
type Suspender struct{ *Fake }

// Capabilities implements sandbox.Backend.
func (f Suspender) Capabilities() sandbox.Capabilities {
	c := f.Fake.Capabilities()
	c.Suspend = f
	return c
}

// Suspendable implements sandbox.Suspender.
func (f Suspender) Suspendable(ctx context.Context, id string) error {
	_, done := f.enter(Suspendable, id, false)
	defer done()
	return f.hook(ctx, Suspendable, id)
}

// Suspend implements sandbox.Suspender.
func (f Suspender) Suspend(ctx context.Context, id string) error {
	b, done := f.enter(Suspend, id, false)
	defer done()
	if !f.isRunning(b) {
		return f.fault("suspend of %s, which does not run", id)
	}
	if err := f.hook(ctx, Suspend, id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b.end(sandbox.EndStopped)
	b.suspended = true
	return nil
}

// Suspended implements sandbox.Suspender.
func (f Suspender) Suspended(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.instances[id]
	return b != nil && b.suspended
}

// Forget implements sandbox.Suspender.
func (f Suspender) Forget(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.instances[id]; b != nil {
		b.suspended = false
	}
	return nil
}

// Start implements sandbox.Backend: an instance with memory that does not start has
// lost it.
func (f Suspender) Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	resumed := f.Suspended(sb.ID)
	enforced, err := f.Fake.Start(ctx, sb)
	if !resumed {
		return enforced, err
	}
	if ferr := f.Forget(ctx, sb.ID); ferr != nil {
		return nil, ferr
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sandbox.ErrMemoryLost, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances[sb.ID].starts-- // it is still the same one
	return enforced, nil
}
