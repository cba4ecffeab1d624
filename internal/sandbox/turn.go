package sandbox

import (
	"context"
)

// findLocked returns the entry that ref means to c.
func (m *Manager) findLocked(c Caller, ref string) (*entry, error) {
	if ValidID(ref) {
		if e := m.entries[ref]; e != nil && e.sb != nil && (c.Admin || e.sb.Owner == c.Owner) {
			return e, nil
		}
		return nil, unknown(ref)
	}
	if id, ok := m.names[nameKey{c.Owner, ref}]; ok && m.entries[id].sb != nil {
		return m.entries[id], nil
	}
	if !c.Admin {
		return nil, unknown(ref)
	}
	var found *entry
	for key, id := range m.names {
		e := m.entries[id]
		if key.name != ref || e.sb == nil {
			continue
		}
		if found != nil {
			return nil, Errorf(Conflict, "sandbox %s: several owners have one of that name", refText(ref)).
				WithHint("use its ID")
		}
		found = e
	}
	if found == nil {
		return nil, unknown(ref)
	}
	return found, nil
}

func unknown(ref string) error {
	return Errorf(NotFound, "sandbox %s: not found", refText(ref)).WithHint("carboy ls")
}

// record returns the current record of e, which is not to be changed.
func (m *Manager) record(e *entry) *Sandbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.sb
}

// backend returns the wall of sb.
func (m *Manager) backend(sb *Sandbox) (Backend, error) {
	b, ok := m.backends[sb.Backend]
	if !ok {
		return nil, Errorf(Unsupported, "sandbox %s: its wall %s is not available here", sb.Spec.Name, refText(sb.Backend))
	}
	return b, nil
}

// lock finds a sandbox and waits for the turn to change it. What an earlier
// operation left unfinished is ended first. The returned function gives the
// turn back.
func (m *Manager) lock(ctx context.Context, c Caller, ref string) (*entry, func(), error) {
	m.mu.Lock()
	e, err := m.findLocked(c, ref)
	m.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	for moved := e; moved != nil; moved = m.movedTo(e) {
		if moved != e {
			m.give(e)
			e = moved
		}
		if err := m.take(ctx, e); err != nil {
			return nil, nil, failure(err, ref, "wait for it")
		}
	}
	taken := true
	defer func() { // a backend that panics must not keep the turn
		if taken {
			m.give(e)
		}
	}()
	if err := m.settle(ctx, e); err != nil {
		return nil, nil, err
	}
	if m.record(e) == nil {
		return nil, nil, unknown(ref)
	}
	taken = false
	return e, func() { m.give(e) }, nil
}

// movedTo returns what the sandbox of e goes on as, if that is another entry.
func (m *Manager) movedTo(e *entry) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.moved
}

// take waits for e's turn.
func (m *Manager) take(ctx context.Context, e *entry) error {
	select {
	case <-e.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *Manager) give(e *entry) {
	e.turn <- struct{}{}
	m.nudge()
}

// nudge makes Run look again for what is due.
func (m *Manager) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
