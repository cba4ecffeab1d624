package sandbox

import (
	"context"
	"errors"
	"time"
)

// claimTimeout is how long a warm instance may take to become somebody's, before
// a new one is started instead.
const claimTimeout = 5 * time.Second

// errClaim is why an instance has to be started after all.
var errClaim = errors.New("claim a warm instance")

// start starts the instance of sb, from its memory where it has any, or claims the
// one that was kept warm for it. It says what was lost by that. After errClaim
// the warm one must be given up, by renew.
func (m *Manager) start(ctx context.Context, e *entry, b Backend, sb *Sandbox) (_ []Enforcement, lost []string, err error) {
	if e.warm == nil {
		return m.resume(ctx, b, sb)
	}
	enforced, err := m.claim(ctx, e, sb)
	return enforced, nil, err
}

func (m *Manager) claim(ctx context.Context, e *entry, sb *Sandbox) ([]Enforcement, error) {
	limited, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	enforced, err := m.pool.warmers[sb.Backend].Claim(limited, sb)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.pool.claimed(e.warm.key)
		e.warm = nil
		return enforced, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	m.pool.failed(e.warm.key, m.now())
	return nil, errors.Join(errClaim, err)
}

// renew gives a sandbox that is being created another ID and other tokens:
// what it had are those of a warm instance that can't be claimed, and that may know
// them. The instance loses its record and goes back to the pool, to be ended. It
// returns the new entry, and its turn with it; whoever waits for that of e, or
// holds e, goes on with the new one. After an error e is as it was.
func (m *Manager) renew(ctx context.Context, e *entry) (*entry, *Sandbox, error) {
	sb := m.record(e).Clone()
	old := sb.ID
	var err error
	if sb.ID, err = m.random(NewID); err != nil {
		return nil, nil, err
	}
	if err = m.makeTokens(sb); err != nil {
		return nil, nil, err
	}
	if err := m.store.Delete(ctx, old); err != nil {
		return nil, nil, failure(err, sb.Spec.Name, "write its record")
	}
	if err := m.events.Forget(ctx, old); err != nil {
		m.log.Warn("forget events", "id", old, "error", err)
	}
	next, err := m.moveOn(e, sb)
	if err != nil {
		return nil, nil, err
	}
	return next, sb, nil
}

func (m *Manager) moveOn(e *entry, sb *Sandbox) (*entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.takenLocked(sb.ID) {
		return nil, errRepeats
	}
	next := &entry{id: sb.ID, turn: make(chan struct{}, 1), image: e.image, snapshot: e.snapshot, volumes: e.volumes, holds: e.holds}
	m.entries[next.id] = next
	m.names[nameKey{sb.Owner, sb.Spec.Name}] = next.id
	delete(m.entries, e.id)
	e.sb, e.moved = nil, next
	m.pool.instances = append(m.pool.instances, e.warm)
	m.pool.useless(e.warm)
	return next, nil
}
