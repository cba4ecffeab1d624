package sandbox

import (
	"context"
	"time"
)

// Start starts a stopped sandbox and returns once its guest answers. One that
// runs stays as it is. After an error it is stopped as before.
func (m *Manager) Start(ctx context.Context, c Caller, ref string) (*Sandbox, error) {
	return m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		if m.registry.record(e).State == StateRunning {
			return nil
		}
		if err := m.admitStart(c, e); err != nil {
			return err
		}
		return m.lives.restart(ctx, e)
	})
}

// Stop ends a sandbox's processes and keeps what Lost does not name. One that
// is stopped stays as it is. What was begun is ended although ctx ends.
func (m *Manager) Stop(ctx context.Context, c Caller, ref string) (*Sandbox, error) {
	interrupted := m.interruptSetUp(c, ref, "stopped")
	sb, err := m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		if m.registry.record(e).State == StateStopped {
			return nil
		}
		return m.lives.stop(ctx, e, EndStopped)
	})
	if interrupted && KindOf(err) == NotFound {
		return nil, Errorf(Conflict, "sandbox %s: it was still being set up, and is gone", refText(ref))
	}
	return sb, err
}

// Remove deletes a sandbox and all that it kept. One that runs is a Conflict,
// unless force is set.
func (m *Manager) Remove(ctx context.Context, c Caller, ref string, force bool) error {
	interrupted := false
	if force {
		interrupted = m.interruptSetUp(c, ref, "removed")
		m.dropHeld(ctx, c, ref)
	}
	_, err := m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.registry.record(e)
		if sb.State == StateRunning && !force {
			return Errorf(Conflict, "sandbox %s: it is running", sb.Spec.Name).
				WithHint("carboy stop %[1]s, or carboy rm -f %[1]s", sb.Spec.Name)
		}
		return m.lives.remove(ctx, e)
	})
	if interrupted && KindOf(err) == NotFound { // its create has undone it
		return nil
	}
	return err
}

// SetTTL makes a sandbox expire ttl from now, and ttl after each later start;
// 0 means never.
func (m *Manager) SetTTL(ctx context.Context, c Caller, ref string, ttl time.Duration) (*Sandbox, error) {
	if ttl != 0 {
		if err := checkTTL(ttl); err != nil {
			return nil, err
		}
	}
	return m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.registry.record(e).Clone()
		if err := m.quotas.Quota(sb.Owner).allowsTTL(ttl); err != nil {
			return err
		}
		sb.Spec.TTL = ttl
		sb.ExpiresAt = time.Time{}
		if sb.mayExpire() {
			sb.ExpiresAt = expiry(m.now(), ttl)
		}
		if err := m.lives.save(ctx, e, sb); err != nil {
			return err
		}
		if ttl == 0 {
			m.note(ctx, sb, eventTTL, "never expires")
		} else {
			m.note(ctx, sb, eventTTL, "expires %v from now", ttl)
		}
		return nil
	})
}

// change does something to one sandbox while it holds its turn, and returns
// the record after it, nil for a removed one.
func (m *Manager) change(
	ctx context.Context, c Caller, ref string, do func(context.Context, *entry) error,
) (*Sandbox, error) {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	e, unlock, err := m.lives.lock(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := do(ctx, e); err != nil {
		return nil, err
	}
	if sb := m.registry.record(e); sb != nil {
		return sb.Clone(), nil
	}
	return nil, nil
}
