package sandbox

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// retryDelay is how long Run waits before it tries again what failed.
const retryDelay = 10 * time.Second

// Start starts a stopped sandbox and returns once its guest answers. One that
// runs stays as it is. After an error it is stopped as before.
func (m *Manager) Start(ctx context.Context, c Caller, ref string) (*Sandbox, error) {
	return m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		if m.record(e).State == StateRunning {
			return nil
		}
		return m.restart(ctx, e)
	})
}

// Stop ends a sandbox's processes and keeps what Lost does not name. One that
// is stopped stays as it is. What was begun is ended although ctx ends.
func (m *Manager) Stop(ctx context.Context, c Caller, ref string) (*Sandbox, error) {
	return m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		if m.record(e).State == StateStopped {
			return nil
		}
		return m.stop(ctx, e, EndStopped)
	})
}

// Remove deletes a sandbox and all that it kept. One that runs is a Conflict,
// unless force is set.
func (m *Manager) Remove(ctx context.Context, c Caller, ref string, force bool) error {
	_, err := m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.record(e)
		if sb.State == StateRunning && !force {
			return Errorf(Conflict, "sandbox %s: it is running", sb.Spec.Name).
				WithHint("carboy stop %[1]s, or carboy rm -f %[1]s", sb.Spec.Name)
		}
		return m.remove(ctx, e)
	})
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
		sb := m.record(e).Clone()
		if err := m.quotas.Quota(sb.Owner).allowsTTL(ttl); err != nil {
			return err
		}
		sb.Spec.TTL = ttl
		sb.ExpiresAt = time.Time{}
		if sb.mayExpire() {
			sb.ExpiresAt = expiry(m.now(), ttl)
		}
		if err := m.save(ctx, e, sb); err != nil {
			return err
		}
		if ttl == 0 {
			m.note(ctx, sb, EventTTL, "never expires")
		} else {
			m.note(ctx, sb, EventTTL, "expires %v from now", ttl)
		}
		return nil
	})
}

// change does something to one sandbox while it holds its turn, and returns
// the record after it, nil for a removed one.
func (m *Manager) change(
	ctx context.Context, c Caller, ref string, do func(context.Context, *entry) error,
) (*Sandbox, error) {
	ctx, done, err := m.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	e, unlock, err := m.lock(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := do(ctx, e); err != nil {
		return nil, err
	}
	if sb := m.record(e); sb != nil {
		return sb.Clone(), nil
	}
	return nil, nil
}

// stop takes a sandbox through stopping to stopped. The turn must be held.
func (m *Manager) stop(ctx context.Context, e *entry, reason EndReason) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	sb := m.record(e).Clone()
	if _, err := m.backend(sb); err != nil {
		return err
	}
	sb.State, sb.Ended = StateStopping, reason
	if err := m.save(ctx, e, sb); err != nil {
		return err
	}
	return m.finishStop(ctx, e)
}

// finishStop takes a sandbox from stopping to stopped.
func (m *Manager) finishStop(ctx context.Context, e *entry) error {
	sb := m.record(e).Clone()
	b, err := m.backend(sb)
	if err != nil {
		return err
	}
	m.unwatch(e)
	lost, err := m.endInstance(ctx, b, sb)
	if err != nil {
		m.log.Error("stop instance", "id", sb.ID, "error", err)
		m.retryLater(e)
		return failure(err, sb.Spec.Name, "stop")
	}
	if sb.Suspended = m.keptMemory(sb); sb.Suspended {
		lost = nil
	}
	sb.State, sb.Lost, sb.EndedAt = StateStopped, lost, m.now()
	if !sb.mayExpire() {
		sb.ExpiresAt = time.Time{}
	}
	if err := m.save(ctx, e, sb); err != nil {
		m.retryLater(e)
		return err
	}
	m.setDebt(e, gateKnows)
	m.note(ctx, sb, EventStopped, "stopped: %s%s", sb.Ended, lostText(lost))
	return nil
}

func lostText(lost []string) string {
	if len(lost) == 0 {
		return ""
	}
	return "; lost: " + strings.Join(lost, ", ")
}

// remove takes a sandbox from any state to nothing. The turn must be held.
func (m *Manager) remove(ctx context.Context, e *entry) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	sb := m.record(e).Clone()
	b, err := m.backend(sb)
	if err != nil {
		return err
	}
	if sb.State != StateRemoving {
		// One that never ran was promised to nobody: where even this can't be
		// written, its record says already that it is to be removed.
		wasBuilt := sb.Starts > 0
		sb.State = StateRemoving
		if err := m.save(ctx, e, sb); err != nil && wasBuilt {
			return err
		}
	}
	m.unwatch(e)
	if err := m.erase(ctx, b, sb); err != nil {
		m.log.Error("remove sandbox", "id", sb.ID, "error", err)
		m.retryLater(e)
		return failure(err, sb.Spec.Name, "remove")
	}
	m.log.Info("sandbox removed", "id", sb.ID, "name", sb.Spec.Name)
	m.forget(e, sb)
	m.collect(ctx)
	return nil
}

// forget drops the entry of a sandbox that is removed.
func (m *Manager) forget(e *entry, sb *Sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.sb = nil
	delete(m.entries, e.id)
	delete(m.names, nameKey{sb.Owner, sb.Spec.Name})
}

// erase deletes what there is of sb: its instance first and its record last, so
// that an instance always has a record that leads to it.
func (m *Manager) erase(ctx context.Context, b Backend, sb *Sandbox) error {
	if _, err := m.endInstance(ctx, b, sb); err != nil {
		return err
	}
	if err := m.removeGate(ctx, sb); err != nil {
		return err
	}
	if err := b.Remove(ctx, sb.ID); err != nil {
		return err
	}
	if err := m.events.Forget(ctx, sb.ID); err != nil {
		m.log.Warn("forget events", "id", sb.ID, "error", err)
	}
	return m.store.Delete(ctx, sb.ID)
}

// settle ends what an operation that failed, or a daemon that died, left
// between two states. The turn must be held. A settled sandbox runs, is
// stopped or is gone.
func (m *Manager) settle(ctx context.Context, e *entry) error {
	sb := m.record(e)
	if sb == nil {
		return nil
	}
	switch sb.State {
	case StateCreated:
		if sb.Starts == 0 {
			return m.remove(ctx, e)
		}
		return m.stop(ctx, e, cmp.Or(sb.Ended, EndCrashed))
	case StateStopping:
		ctx, cancel := detached(ctx)
		defer cancel()
		return m.finishStop(ctx, e)
	case StateRemoving:
		return m.remove(ctx, e)
	}
	return nil
}

// retryLater has Run settle e after a while.
func (m *Manager) retryLater(e *entry) {
	m.mu.Lock()
	e.retry = m.now().Add(retryDelay)
	m.mu.Unlock()
	m.nudge()
}
