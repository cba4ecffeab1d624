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
			defer m.give(e)
			m.adopt(ctx, e)
		})
	}
	wg.Wait()
	var errs []error
	for _, b := range m.backends {
		errs = append(errs, m.sweep(ctx, b))
	}
	errs = append(errs, m.sweepGates(ctx))
	m.collect(ctx)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool.open = true
	m.pool.nudge()
	return nil
}

// load reads every record. The entries' turns are taken: the caller gives
// them back.
func (m *Manager) load(ctx context.Context) ([]*entry, error) {
	if err := m.loadSnapshots(ctx); err != nil {
		return nil, fmt.Errorf("adopt snapshots: %w", err)
	}
	records, err := m.store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("adopt sandboxes: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.loaded {
		return nil, errors.New("adopt sandboxes: done before")
	}
	entries := make([]*entry, 0, len(records))
	for _, sb := range records {
		e := &entry{id: sb.ID, turn: make(chan struct{}, 1), image: sb.Spec.Image, snapshot: sb.Spec.Snapshot, volumes: sb.Spec.volumes(), sb: sb}
		m.armLocked(e)
		m.entries[e.id] = e
		m.names[nameKey{sb.Owner, sb.Spec.Name}] = e.id
		entries = append(entries, e)
	}
	for _, e := range entries {
		if e.runs() {
			m.quotas.Changed(e.sb.Owner, m.countLocked(e.sb.Owner, (*entry).runs), false, m.now())
		}
	}
	m.loaded = true
	return entries, nil
}

// adopt brings one record and its instance into agreement.
func (m *Manager) adopt(ctx context.Context, e *entry) {
	sb := m.record(e)
	b, err := m.backend(sb)
	if err != nil {
		m.log.Warn("adopt sandbox", "id", sb.ID, "error", err)
		return
	}
	if sb.State == StateRunning {
		err = m.adoptRunning(ctx, e, b)
	} else {
		err = m.settle(ctx, e)
	}
	if err != nil {
		m.log.Error("adopt sandbox", "id", sb.ID, "state", sb.State, "error", err)
		m.retryLater(e)
	}
	// An instance that has ended, and whose record could not be written, ends again
	// for its watcher.
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchLocked(e)
}

func (m *Manager) adoptRunning(ctx context.Context, e *entry, b Backend) error {
	sb := m.record(e)
	if !b.Alive(ctx, sb.ID) {
		wait, cancel := context.WithTimeout(ctx, endedTimeout)
		defer cancel()
		reason, err := b.Wait(wait, sb.ID)
		if ctx.Err() == nil {
			if err != nil {
				// It is there and does not answer: of no use to anyone.
				reason = EndCrashed
			}
			return m.stop(ctx, e, reason)
		}
	}
	if err := m.tellGate(ctx, e, gateAdopted); err != nil {
		m.log.Error("adopt the gate of a sandbox", "id", sb.ID, "error", err)
		if KindOf(err) == Unsupported { // which time does not mend
			m.note(ctx, sb, EventError, "%v", err)
		} else {
			m.note(ctx, sb, EventError, "its gate could not be rejoined, which is tried again: nothing passes, or what passed before")
		}
	}
	m.note(ctx, sb, EventAdopted, "went on while the daemon was away")
	return nil
}

// sweep removes b's instances that have no record.
func (m *Manager) sweep(ctx context.Context, b Backend) error {
	ids, err := b.Instances(ctx)
	if err != nil {
		return fmt.Errorf("list the instances of %s: %w", b.Name(), err)
	}
	for _, id := range ids {
		if m.owns(b, id) {
			continue
		}
		m.log.Warn("removing an instance without a record", "id", id, "backend", b.Name())
		if err := dispose(ctx, b, id); err != nil {
			m.log.Error("remove an instance without a record", "id", id, "backend", b.Name(), "error", err)
			m.mu.Lock()
			m.pool.stray(b.Name(), id, m.now())
			m.mu.Unlock()
		}
	}
	return nil
}

// owns reports whether an instance of b belongs to a sandbox. A Create enters its
// sandbox before it builds the instance.
func (m *Manager) owns(b Backend, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[id]
	return e != nil && (e.sb == nil || e.sb.Backend == b.Name())
}

func dispose(ctx context.Context, b Backend, id string) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	if _, err := b.Stop(ctx, id); err != nil {
		return err
	}
	return b.Remove(ctx, id)
}
