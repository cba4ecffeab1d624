package sandboxtest

import (
	"context"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Lock is the operation of a Locker.
const Lock Op = "lock"

// Locker is a Fake whose instances' workspaces can be locked.
type Locker struct{ *Fake }

// Capabilities implements sandbox.Backend.
func (f Locker) Capabilities() sandbox.Capabilities {
	c := f.Fake.Capabilities()
	c.Lock = f
	return c
}

// Lock implements sandbox.Locker.
func (f Locker) Lock(ctx context.Context, id string, l sandbox.Lock) (out sandbox.LockOutcome, err error) {
	b, done := f.enter(Lock, id, false)
	defer done()
	if err := f.hook(ctx, Lock, id); err != nil {
		return out, err
	}
	if !f.isRunning(b) {
		return out, f.fault("lock of %s, which does not run", id)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(l.Access) > 0 && len(b.writers) > 0 && !slices.Equal(l.Access, b.access) {
		if !l.EndWriters {
			return sandbox.LockOutcome{Busy: true, InWay: b.writers, Now: b.access}, nil
		}
		out.Ended, b.writers = b.writers, nil
	}
	b.access = l.Access
	return out, nil
}

// SetWriters says what is in the way of locking an instance's workspace.
func (f Locker) SetWriters(id string, list ...sandbox.Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances[id].writers = list
}

// Locked is what of an instance's workspace is read-only.
func (f Locker) Locked(id string) sandbox.AccessList {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.instances[id].access
}
