package sandbox

import (
	"context"
	"time"
)

// Pause stops a sandbox until Start: a paused one never expires, whatever its
// OnExpiry. One that does not run is a Conflict. Its files are kept and, where
// memory is set and its wall can, so are its processes: kept says whether they
// were. Connections into it and out of it end. What was begun is ended although
// ctx ends.
func (m *Manager) Pause(ctx context.Context, c Caller, ref string, memory bool) (sb *Sandbox, kept bool, err error) {
	sb, err = m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.record(e)
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
		if s, ok := m.backends[sb.Backend].(Suspender); ok && memory {
			if err := s.Suspendable(ctx, sb.ID); err != nil {
				return err
			}
		}
		return m.pause(ctx, e, EndPaused, memory)
	})
	return sb, err == nil && sb.Suspended, err
}

// SetOnExpiry changes what happens when a sandbox's TTL has run out.
func (m *Manager) SetOnExpiry(ctx context.Context, c Caller, ref string, on OnExpiry) (*Sandbox, error) {
	if err := checkOnExpiry(on); err != nil {
		return nil, err
	}
	return m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.record(e).Clone()
		sb.Spec.OnExpiry = on
		if !sb.mayExpire() {
			sb.ExpiresAt = time.Time{}
		}
		return m.save(ctx, e, sb)
	})
}

// mayExpire reports whether a TTL counts in sb's state: it does not for one
// that is stopped and would be stopped, and for a paused one.
func (sb *Sandbox) mayExpire() bool {
	return sb.State == StateRunning || sb.Spec.OnExpiry == OnExpiryRemove && sb.Ended != EndPaused
}
