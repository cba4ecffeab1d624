package sandbox

import (
	"context"
	"errors"
)

// Suspender is a Backend whose instances can be stopped with their processes and
// what those have in memory, and go on from there at the next Start.
type Suspender interface {
	Backend
	// Suspendable says why the memory of a running instance can't be kept, where
	// that is known before anything is done: the instance runs on.
	Suspendable(ctx context.Context, id string) error
	// Suspend writes a running instance's memory down and ends the instance. After an
	// error there is no memory, and the instance is of no more use.
	Suspend(ctx context.Context, id string) error
	// Suspended reports whether an instance that has ended has memory to go on with.
	// Start uses that up, whatever comes of it: ErrMemoryLost says that the instance
	// did not start for that, and would without.
	Suspended(id string) bool
	// Forget deletes the memory of an instance that has ended, if it has any.
	Forget(ctx context.Context, id string) error
}

// ErrMemoryLost is a Suspender's: an instance could not go on from its memory.
var ErrMemoryLost = errors.New("the memory of the sandbox could not be used")

// pause takes a running sandbox to stopped. The turn must be held. That its
// memory is to be kept is written before; whether it was, finishStop sees.
func (m *Manager) pause(ctx context.Context, e *entry, reason EndReason, memory bool) error {
	sb := m.record(e)
	s, ok := m.backends[sb.Backend].(Suspender)
	if !memory || !ok {
		return m.stop(ctx, e, reason)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	sb = sb.Clone()
	sb.State, sb.Ended, sb.Suspended = StateStopping, reason, true
	if err := m.save(ctx, e, sb); err != nil {
		return err
	}
	m.unwatch(e)
	if m.gate != nil && sb.Spec.Networked() { // before the other end of its link is gone
		if err := m.gate.Close(ctx, sb.ID); err != nil {
			m.log.Warn("close gate", "id", sb.ID, "error", err)
		}
	}
	if err := s.Suspend(ctx, sb.ID); err != nil {
		m.log.Error("suspend instance", "id", sb.ID, "error", err)
		m.note(ctx, sb, EventError, "its processes could not be kept: %s", userText(err))
	}
	return m.finishStop(ctx, e)
}

// keptMemory says whether an instance that has been ended can go on, which only one
// that was to be suspended can.
func (m *Manager) keptMemory(sb *Sandbox) bool {
	s, ok := m.backends[sb.Backend].(Suspender)
	return ok && sb.Suspended && s.Suspended(sb.ID)
}

// resume starts an instance, from its memory where it has any. One that turns out not
// to be able to starts without, and lost says so.
func (m *Manager) resume(ctx context.Context, b Backend, sb *Sandbox) (enforced []Enforcement, lost []string, err error) {
	enforced, err = m.startLinked(ctx, b, sb)
	s, ok := b.(Suspender)
	if !ok || !errors.Is(err, ErrMemoryLost) {
		return enforced, nil, err
	}
	m.log.Error("resume instance", "id", sb.ID, "error", err)
	_, err = m.endInstance(ctx, b, sb)
	if err = errors.Join(err, s.Forget(ctx, sb.ID)); err != nil {
		return nil, nil, err
	}
	enforced, err = m.startLinked(ctx, b, sb)
	return enforced, []string{"processes"}, err
}
