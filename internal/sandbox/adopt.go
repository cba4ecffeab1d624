package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// adoptAtOnce bounds how many sandboxes are looked at side by side.
	adoptAtOnce = 8
	// endedTimeout is how long an instance that does not answer may take to be
	// known as ended, before it counts as crashed.
	endedTimeout = 10 * time.Second
)

// Adopt takes over what the store and the backends hold, once and before
// anything else: what was left between two states is brought to its end,
// what runs goes on, what ended meanwhile is stopped with its reason, and
// instances without a record are removed, those that another daemon kept warm
// among them. Other calls are served as soon as the
// records are read; they wait only for the sandbox that they name.
//
// It fails where the records or a backend's instances can't be listed. What can't
// be settled or removed is logged, and tried again by Run.
func (m *Manager) Adopt(ctx context.Context) error {
	entries, err := m.load(ctx)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, adoptAtOnce)
	for _, e := range entries {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			defer m.registry.give(e)
			m.lives.adopt(ctx, e)
		})
	}
	wg.Wait()
	var errs []error
	for _, b := range m.lives.backends {
		errs = append(errs, m.lives.sweep(ctx, b))
	}
	errs = append(errs, m.gates.sweep(ctx, func(id string) bool { return m.registry.has(id, "") }))
	m.snapshots.collect(ctx, m.registry.uses)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	m.pool.open()
	return nil
}

// load reads every record. The caller has the entries' turns.
func (m *Manager) load(ctx context.Context) ([]*entry, error) {
	if m.ops.opened() {
		return nil, errors.New("adopt sandboxes: done before")
	}
	if err := m.snapshots.load(ctx); err != nil {
		return nil, fmt.Errorf("adopt snapshots: %w", err)
	}
	records, err := m.lives.store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("adopt sandboxes: %w", err)
	}
	entries := m.registry.fill(records)
	m.ops.open()
	return entries, nil
}

// adopt brings one record and its instance into agreement.
func (l *lives) adopt(ctx context.Context, e *entry) {
	sb := l.registry.record(e)
	b, err := l.backends.of(sb)
	if err != nil {
		l.log.Warn("adopt sandbox", "id", sb.ID, "error", err)
		return
	}
	if sb.State == StateRunning {
		err = l.adoptRunning(ctx, e, b)
	} else {
		err = l.settle(ctx, e)
	}
	if err != nil {
		l.log.Error("adopt sandbox", "id", sb.ID, "state", sb.State, "error", err)
		l.registry.retryLater(e)
	}
	// An instance that has ended, and whose record could not be written, ends again
	// for its watcher.
	l.watch(e)
}

func (l *lives) adoptRunning(ctx context.Context, e *entry, b Backend) error {
	sb := l.registry.record(e)
	if !b.Alive(ctx, sb.ID) {
		wait, cancel := context.WithTimeout(ctx, endedTimeout)
		defer cancel()
		reason, err := b.Wait(wait, sb.ID)
		if ctx.Err() == nil {
			if err != nil {
				// It is there and does not answer: of no use to anyone.
				reason = EndCrashed
			}
			return l.stop(ctx, e, reason)
		}
	}
	if err := l.tellGate(ctx, e, gateAdopted); err != nil {
		l.log.Error("adopt the gate of a sandbox", "id", sb.ID, "error", err)
		if KindOf(err) == Unsupported { // which time does not mend
			l.note(ctx, sb, EventError, "%v", err)
		} else {
			l.note(ctx, sb, EventError, "its gate could not be rejoined, which is tried again: nothing passes, or what passed before")
		}
	}
	if _, err := l.applyNext(ctx, e); err != nil {
		l.log.Error("change what was set of a sandbox", "id", sb.ID, "error", err)
	}
	if err := l.relock(ctx, e, b); err != nil {
		l.log.Error("lock the workspace of a sandbox", "id", sb.ID, "error", err)
	}
	l.note(ctx, sb, eventAdopted, "went on while the daemon was away")
	l.openPorts(ctx, sb)
	return nil
}

// sweep removes b's instances that have no record.
func (l *lives) sweep(ctx context.Context, b Backend) error {
	ids, err := b.Instances(ctx)
	if err != nil {
		return fmt.Errorf("list the instances of %s: %w", b.Name(), err)
	}
	for _, id := range ids {
		if l.registry.has(id, b.Name()) {
			continue
		}
		l.log.Warn("removing an instance without a record", "id", id, "backend", b.Name())
		if err := l.dispose(ctx, b, id); err != nil {
			l.log.Error("remove an instance without a record", "id", id, "backend", b.Name(), "error", err)
			l.pool.stray(b.Name(), id)
		}
	}
	return nil
}

// dispose ends an instance that is nobody's, also where ctx has ended.
func (c *common) dispose(ctx context.Context, b Backend, id string) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	return c.disposeWithin(ctx, b, id)
}

// disposeWithin is dispose, and gives up with ctx. What the instance wrote waits for no room.
func (c *common) disposeWithin(ctx context.Context, b Backend, id string) error {
	if err := c.disk.Drop(ctx, id); err != nil {
		c.log.Warn("give up a disk that is to be removed", "id", id, "error", err)
	}
	if _, err := b.Stop(ctx, id); err != nil {
		return err
	}
	return b.Remove(ctx, id)
}
