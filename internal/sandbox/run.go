package sandbox

import (
	"cmp"
	"context"
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
// failed and keeps the pool of warm instances filled, until ctx ends; then it
// waits for all that it began. It runs once at a time.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := m.run.enter(ctx); err != nil {
		return err
	}
	defer m.run.tasks.Wait()
	defer m.registry.unwatchAll()
	defer m.run.leave()
	defer cancel()
	for _, e := range m.registry.all() {
		m.lives.watch(e)
	}
	m.pool.watchReady()
	m.run.begin(m.tender.tend)
	m.run.begin(m.watchDisk)
	for {
		var timer <-chan time.Time
		if wait, ok := m.lives.reapDue(); ok {
			timer = m.clock.After(min(wait, longestWait))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.run.wake:
		case <-timer:
		}
	}
}

// watch begins a task of Run that waits for the end of e's instance, if it runs.
func (l *lives) watch(e *entry) {
	sb := l.registry.record(e)
	if sb == nil || l.backends[sb.Backend] == nil {
		return
	}
	l.registry.watch(e, func(ctx context.Context, starts int) { l.await(ctx, e, l.backends[sb.Backend], starts) })
}

// await waits until the instance ends by itself and writes that down.
func (l *lives) await(ctx context.Context, e *entry, b Backend, starts int) {
	for {
		reason, err := b.Wait(ctx, e.id)
		if err == nil {
			err = l.ended(ctx, e, starts, reason)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		l.log.Error("watch instance", "id", e.id, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-l.clock.After(watchDelay):
		}
	}
}

// ended stops a sandbox whose instance ended by itself, unless it has been stopped
// or started again since.
func (l *lives) ended(ctx context.Context, e *entry, starts int, reason EndReason) error {
	if err := e.turn.take(ctx); err != nil {
		return failure(err, e.id, "wait for it")
	}
	defer l.registry.give(e)
	sb := l.registry.record(e)
	if sb == nil || sb.State != StateRunning || sb.Starts != starts {
		return nil
	}
	return l.stop(ctx, e, cmp.Or(reason, EndCrashed))
}

// reapDue begins what is due and returns how long it is until more is, if
// anything ever is.
func (l *lives) reapDue() (wait time.Duration, ok bool) {
	due, wait, ok := l.registry.due(l.backends)
	for _, e := range due {
		l.registry.run.begin(func(ctx context.Context) { l.reap(ctx, e) })
	}
	return wait, ok
}

// due returns the entries that need Run now, and marks them: reaped must be
// called for each. It says how long it is until more do.
func (r *registry) due(walls backends) (due []*entry, wait time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, e := range r.entries {
		if e.sb == nil || walls[e.sb.Backend] == nil {
			continue
		}
		at := e.dueAt(now)
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
		due = append(due, e)
	}
	return due, wait, ok
}

func (r *registry) reaped(e *entry) {
	r.mu.Lock()
	e.reaping = false
	r.mu.Unlock()
	r.run.nudge()
}

// dueAt returns when e needs Run, or zero. registry.mu must be held.
func (e *entry) dueAt(now time.Time) time.Time {
	sb := e.sb
	if e.reaping {
		return time.Time{}
	}
	e.retry, e.orphan = notAfter(e.retry, now, retryDelay), notAfter(e.orphan, now, OrphanGrace)
	if !sb.settled() {
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
func (l *lives) reap(ctx context.Context, e *entry) {
	defer l.registry.reaped(e)
	if e.turn.take(ctx) != nil {
		return
	}
	defer l.registry.give(e)
	if err := l.reapOne(ctx, e); err != nil && ctx.Err() == nil {
		l.log.Error("end sandbox", "id", e.id, "error", err)
		l.registry.retryLater(e)
	}
}

func (l *lives) reapOne(ctx context.Context, e *entry) error {
	now := l.now()
	sb, orphaned := l.registry.endOrphan(e, now)
	switch {
	case sb == nil:
		return nil
	case !sb.settled():
		return l.settle(ctx, e)
	case orphaned:
		_, err := l.finish(ctx, e, EndOrphaned)
		return err
	case tooLate(sb, now):
		return l.expireSooner(ctx, e)
	case !expires(sb) || now.Before(sb.ExpiresAt):
		return l.payGate(ctx, e)
	case sb.Spec.OnExpiry == OnExpiryRemove:
		return l.remove(ctx, e)
	default:
		return l.pause(ctx, e, EndExpired, sb.Spec.OnExpiry == OnExpiryPause)
	}
}

// endOrphan returns e's record, and whether its grace is over: then it is marked
// as ending, if it is settled.
func (r *registry) endOrphan(e *entry, now time.Time) (sb *Sandbox, orphaned bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	orphaned = e.sb != nil && !e.orphan.IsZero() && !now.Before(e.orphan)
	if orphaned && e.sb.settled() {
		e.ending = true
	}
	return e.sb, orphaned
}

// settled reports whether no operation is half done.
func (sb *Sandbox) settled() bool { return sb.State == StateRunning || sb.State == StateStopped }

// expireSooner makes a sandbox expire its TTL from now, since by a clock that was
// set back it would later.
func (l *lives) expireSooner(ctx context.Context, e *entry) error {
	sb := l.registry.record(e).Clone()
	sb.ExpiresAt = expiry(l.now(), sb.Spec.TTL)
	if err := l.save(ctx, e, sb); err != nil {
		return err
	}
	l.note(ctx, sb, eventTTL, "the clock was set back: expires %v from now", sb.Spec.TTL)
	return nil
}
