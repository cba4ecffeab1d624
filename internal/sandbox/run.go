package sandbox

import (
	"cmp"
	"context"
	"errors"
	"time"
)

const (
	// watchDelay is how long a watcher that failed waits before it goes on.
	watchDelay = time.Second
	// longestWait is how long Run sleeps at most while anything is to come
	// due, so that a clock that was set is noticed.
	longestWait = time.Minute
)

// Run watches the instances, ends what expires or is orphaned, settles what
// failed and keeps the pool of warm instances filled, until ctx ends; then it waits for all that it began. It runs once at
// a time.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := m.enterRun(ctx); err != nil {
		return err
	}
	defer m.tasks.Wait()
	defer m.leaveRun()
	defer cancel()
	for {
		var timer <-chan time.Time
		if wait, ok := m.reapDue(ctx); ok {
			timer = m.clock.After(min(wait, longestWait))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-timer:
		}
	}
}

func (m *Manager) enterRun(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runCtx != nil {
		return errors.New("run manager: it runs already")
	}
	m.runCtx = ctx
	for _, e := range m.entries {
		m.watchLocked(e)
	}
	for _, w := range m.pool.instances {
		if w.state == warmReady {
			m.watchWarmLocked(w)
		}
	}
	m.tasks.Go(func() { m.tendPool(ctx) })
	return nil
}

// leaveRun sees to it that no further task is begun.
func (m *Manager) leaveRun() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runCtx = nil
	for _, e := range m.entries {
		e.unwatch = nil
	}
}

// watchLocked has Run wait for the end of e's instance, if it has one.
func (m *Manager) watchLocked(e *entry) {
	if m.runCtx == nil || e.unwatch != nil || e.sb == nil || e.sb.State != StateRunning {
		return
	}
	b := m.backends[e.sb.Backend]
	if b == nil {
		return
	}
	ctx, cancel := context.WithCancel(m.runCtx)
	e.unwatch = cancel
	starts := e.sb.Starts
	m.tasks.Go(func() {
		defer cancel()
		m.watch(ctx, e, b, starts)
	})
}

// unwatch ends e's watcher, whose instance is about to be ended on purpose.
func (m *Manager) unwatch(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.unwatch != nil {
		e.unwatch()
		e.unwatch = nil
	}
}

// watch waits until the instance ends by itself and writes that down.
func (m *Manager) watch(ctx context.Context, e *entry, b Backend, starts int) {
	for {
		reason, err := b.Wait(ctx, e.id)
		if err == nil {
			err = m.ended(ctx, e, starts, reason)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		m.log.Error("watch instance", "id", e.id, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-m.clock.After(watchDelay):
		}
	}
}

// ended stops a sandbox whose instance ended by itself, unless it has been stopped
// or started again since.
func (m *Manager) ended(ctx context.Context, e *entry, starts int, reason EndReason) error {
	if err := m.take(ctx, e); err != nil {
		return failure(err, e.id, "wait for it")
	}
	defer m.give(e)
	sb := m.record(e)
	if sb == nil || sb.State != StateRunning || sb.Starts != starts {
		return nil
	}
	return m.stop(ctx, e, cmp.Or(reason, EndCrashed))
}

// reapDue begins what is due and returns how long it is until more is, if
// anything ever is.
func (m *Manager) reapDue(ctx context.Context) (wait time.Duration, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, e := range m.entries {
		at := m.dueLocked(e, now)
		if at.IsZero() {
			continue
		}
		if d := at.Sub(now); d > 0 {
			if !ok || d < wait {
				wait, ok = d, true
			}
			continue
		}
		e.reaping = true
		m.tasks.Go(func() { m.reap(ctx, e) })
	}
	return wait, ok
}

// dueLocked returns when Run has something to do with e, or zero.
func (m *Manager) dueLocked(e *entry, now time.Time) time.Time {
	sb := e.sb
	if sb == nil || e.reaping || m.backends[sb.Backend] == nil {
		return time.Time{}
	}
	e.retry, e.orphan = notAfter(e.retry, now, retryDelay), notAfter(e.orphan, now, OrphanGrace)
	if sb.State != StateRunning && sb.State != StateStopped {
		return e.retry // zero while the operation is under way
	}
	at := e.orphan
	if exp := sb.ExpiresAt; expires(sb) && (at.IsZero() || exp.Before(at)) {
		at = exp
	}
	if tooLate(sb, now) || e.debt != gateKnows && sb.State == StateRunning {
		at = now // or when it is tried again
	}
	if !at.IsZero() && e.retry.After(at) {
		at = e.retry
	}
	return at
}

// notAfter returns at, or the latest time that it could have been set to, if
// it lies behind that: the clock was set back since. Zero stays zero.
func notAfter(at, now time.Time, most time.Duration) time.Time {
	if latest := now.Add(most); at.After(latest) {
		return latest
	}
	return at
}

// clockSlack is by how much a clock may be set back without notice.
const clockSlack = time.Minute

// tooLate reports whether sb expires later than its TTL from now: the clock
// was set back, by what might be years.
func tooLate(sb *Sandbox, now time.Time) bool {
	return expires(sb) && sb.ExpiresAt.After(now.Add(sb.Spec.TTL+clockSlack))
}

// expires reports whether ExpiresAt means anything in sb's state.
func expires(sb *Sandbox) bool {
	return !sb.ExpiresAt.IsZero() && sb.mayExpire()
}

// reap does with e what is due.
func (m *Manager) reap(ctx context.Context, e *entry) {
	defer func() {
		m.mu.Lock()
		e.reaping = false
		m.mu.Unlock()
		m.nudge()
	}()
	if m.take(ctx, e) != nil {
		return
	}
	defer m.give(e)
	if err := m.reapOne(ctx, e); err != nil && ctx.Err() == nil {
		m.log.Error("end sandbox", "id", e.id, "error", err)
		m.retryLater(e)
	}
}

func (m *Manager) reapOne(ctx context.Context, e *entry) error {
	m.mu.Lock()
	sb, now := e.sb, m.now()
	orphaned := sb != nil && !e.orphan.IsZero() && !now.Before(e.orphan)
	stable := sb != nil && (sb.State == StateRunning || sb.State == StateStopped)
	if orphaned && stable {
		e.ending = true
	}
	m.mu.Unlock()
	switch {
	case sb == nil:
		return nil
	case !stable:
		return m.settle(ctx, e)
	case orphaned:
		_, err := m.finish(ctx, e, EndOrphaned)
		return err
	case tooLate(sb, now):
		return m.expireSooner(ctx, e)
	case !expires(sb) || now.Before(sb.ExpiresAt):
		return m.payGate(ctx, e)
	case sb.Spec.OnExpiry == OnExpiryRemove:
		return m.remove(ctx, e)
	default:
		return m.pause(ctx, e, EndExpired, sb.Spec.OnExpiry == OnExpiryPause)
	}
}

// expireSooner has a sandbox expire its TTL from now, since by a clock that was
// set back it would later.
func (m *Manager) expireSooner(ctx context.Context, e *entry) error {
	sb := m.record(e).Clone()
	sb.ExpiresAt = expiry(m.now(), sb.Spec.TTL)
	if err := m.save(ctx, e, sb); err != nil {
		return err
	}
	m.note(ctx, sb, EventTTL, "the clock was set back: expires %v from now", sb.Spec.TTL)
	return nil
}
