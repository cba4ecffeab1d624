package sandbox

import (
	"context"
	"errors"
	"time"
)

// Pause stops a sandbox until Start: a paused one never expires, whatever its
// OnExpiry. One that does not run is a Conflict. Its files are kept and, where
// memory is set and its wall can, so are its processes: kept says whether they
// were. Connections into it and out of it end. What was begun is ended although
// ctx ends.
func (m *Manager) Pause(ctx context.Context, c Caller, ref string, memory bool) (sb *Sandbox, kept bool, err error) {
	sb, err = m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.registry.record(e)
		switch {
		case sb.State != StateRunning && sb.Ended == EndPaused:
			return Errorf(Conflict, "sandbox %s: it is paused already", sb.Spec.Name)
		case sb.State != StateRunning:
			return Errorf(Conflict, "sandbox %s: it is %s, and nothing in it runs that could be paused", sb.Spec.Name, sb.State).
				WithHint("carboy start %s", sb.Spec.Name)
		}
		if sb.Spec.Ephemeral {
			return Errorf(Conflict, "sandbox %s: it belongs to one command, and ends with it", sb.Spec.Name)
		}
		if _, held := m.heldBy(sb); held {
			_, at := m.disk.Room()
			return Errorf(Exhausted, "sandbox %s: it is held, for %s is full", sb.Spec.Name, diskAt(c.Owner, at)).
				WithHint("free some space there, then try again")
		}
		if s := m.lives.backends.suspender(sb); s != nil && memory {
			if err := s.Suspendable(ctx, sb.ID); err != nil {
				return err
			}
		}
		return m.lives.pause(ctx, e, EndPaused, memory)
	})
	return sb, err == nil && sb.Suspended, err
}

// SetOnExpiry changes what happens when a sandbox's TTL has run out.
func (m *Manager) SetOnExpiry(ctx context.Context, c Caller, ref string, on OnExpiry) (*Sandbox, error) {
	if err := checkOnExpiry(on); err != nil {
		return nil, err
	}
	return m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.registry.record(e).Clone()
		sb.Spec.OnExpiry = on
		if !sb.mayExpire() {
			sb.ExpiresAt = time.Time{}
		}
		return m.lives.save(ctx, e, sb)
	})
}

// mayExpire reports whether a TTL counts in sb's state: it does not for one
// that is stopped and would be stopped, and for a paused one.
func (sb *Sandbox) mayExpire() bool {
	return sb.State == StateRunning || sb.Spec.OnExpiry == OnExpiryRemove && sb.Ended != EndPaused
}

// pause takes a running sandbox to stopped. The turn must be held. That its
// memory is to be kept is written before; whether it was, finishStop sees.
func (l *lives) pause(ctx context.Context, e *entry, reason EndReason, memory bool) error {
	sb := l.registry.record(e)
	s := l.backends.suspender(sb)
	if !memory || s == nil {
		return l.stop(ctx, e, reason)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	sb = sb.Clone()
	sb.State, sb.Ended, sb.Suspended = StateStopping, reason, true
	if err := l.save(ctx, e, sb); err != nil {
		return err
	}
	l.registry.unwatch(e)
	if err := l.gates.close(ctx, sb); err != nil { // before the other end of its link is gone
		l.log.Warn("close gate", "id", sb.ID, "error", err)
	}
	if err := s.Suspend(ctx, sb.ID); err != nil {
		l.log.Error("suspend instance", "id", sb.ID, "error", err)
		l.note(ctx, sb, EventError, "its processes could not be kept: %s", userText(err))
	}
	return l.finishStop(ctx, e)
}

// keptMemory says whether an instance that has been ended can go on, which only one
// that was to be suspended can.
func (l *lives) keptMemory(sb *Sandbox) bool {
	s := l.backends.suspender(sb)
	return s != nil && sb.Suspended && s.Suspended(sb.ID)
}

// resume starts an instance, from its memory where it has any. One that turns out not
// to be able to starts without, and lost says so.
func (l *lives) resume(ctx context.Context, b Backend, sb *Sandbox, values SecretValues) (enforced []Enforcement, lost []string, err error) {
	enforced, err = l.gates.start(ctx, b, sb, values)
	s := l.backends.suspender(sb)
	if s == nil || !errors.Is(err, ErrMemoryLost) {
		return enforced, nil, err
	}
	l.log.Error("resume instance", "id", sb.ID, "error", err)
	_, err = l.gates.end(ctx, b, sb)
	if err = errors.Join(err, s.Forget(ctx, sb.ID)); err != nil {
		return nil, nil, err
	}
	enforced, err = l.gates.start(ctx, b, sb, values)
	return enforced, []string{"processes"}, err
}
