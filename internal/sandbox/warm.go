package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// warmTimeout bounds the making of one warm instance.
	warmTimeout = 2 * time.Minute
	// drainTimeout bounds the end of all warm instances when the daemon leaves.
	// What is left then the next one removes, since it has no record.
	drainTimeout = 20 * time.Second
)

// KeepWarm has instances that would do for c's sandboxes of spec be warm before
// anyone asks for one, for good, as the default one's are. It fails as Create
// does where spec can't be kept, and with Unsupported where nothing of the kind
// can be warm: with a network, with anything of the host's or of a volume in
// it, or behind a wall that warms none. Without a pool it does nothing.
func (m *Manager) KeepWarm(ctx context.Context, c Caller, spec Spec) error {
	spec = spec.Normalize(m.offer)
	if err := spec.Validate(m.offer); err != nil {
		return err
	}
	b, _, err := m.choose(ctx, spec)
	if err != nil {
		return err
	}
	key, ok := m.pool.kindFor(b.Name(), spec, c.Owner)
	if !ok || m.pool.warmers[b.Name()] == nil {
		return Errorf(Unsupported, "boxes of this kind can't be kept warm").
			WithHint("without a network, and without directories of the host and volumes, behind %s", DefaultIsolation)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool.keepDefault(key, spec)
	return nil
}

// tendPool keeps the pool as it is to be, and ends what is no one's, until ctx
// ends. It makes one instance at
// a time, and none while one is started for somebody.
func (m *Manager) tendPool(ctx context.Context) {
	for ctx.Err() == nil {
		do, wait := m.poolStep()
		if do != nil {
			if errors.Is(do(ctx), errClosing) {
				return
			}
			continue
		}
		var timer <-chan time.Time
		if wait > 0 {
			timer = m.clock.After(min(wait, longestWait))
		}
		select {
		case <-ctx.Done():
		case <-m.pool.wake:
		case <-timer:
		}
	}
}

// poolStep returns what is to be done next, or nil and how long it is until
// there is something; 0: until nudge.
func (m *Manager) poolStep() (do func(context.Context) error, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, now := &m.pool, m.now()
	if !p.open {
		return nil, 0
	}
	soonest := func(d time.Duration) {
		if wait == 0 || d < wait {
			wait = d
		}
	}
	want := p.wanted()
	have := make(map[kindKey]int)
	for _, w := range p.instances {
		if w.state == warmReady && have[w.key] == want[w.key] {
			p.useless(w)
		}
		if w.state != warmEnding {
			have[w.key]++
			continue
		}
		if d := left(w.retry, now, retryDelay); d > 0 {
			soonest(d)
			continue
		}
		return func(ctx context.Context) error { return m.endWarm(ctx, w) }, 0
	}
	if p.starts > 0 {
		return nil, wait
	}
	resting := left(p.rest, now, poolRest)
	for _, k := range p.kinds {
		if have[k.key] >= want[k.key] || p.used()+p.cost(k.key.wall) > p.Memory {
			continue
		}
		if d := max(left(k.retry, now, lastBackoff), resting); d > 0 {
			soonest(d)
			continue
		}
		return func(ctx context.Context) error { return m.warm(ctx, k.key, k.spec.Clone()) }, 0
	}
	return nil, wait
}

// warm makes one instance. It fails where the Manager is closing; any other
// failure is logged, and has the kind wait.
func (m *Manager) warm(ctx context.Context, key kindKey, spec Spec) error {
	ctx, done, err := m.begin(ctx, Caller{Admin: true})
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	w := &warmInstance{key: key}
	w.id, err = m.random(NewID)
	gone := false
	if err == nil {
		err = m.pinImage(ctx, spec.Image, func() error { return m.enterWarm(w) })
		gone = KindOf(err) == NotFound
	}
	if err == nil {
		err = m.pool.warmers[key.wall].Warm(ctx, w.id, spec, key.owner)
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		m.log.Warn("warm an instance", "backend", key.wall, "image", key.image, "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		w.state = warmReady
		m.watchWarmLocked(w)
		return nil
	case gone:
		m.pool.forget(key)
	default:
		m.pool.failed(key, m.now())
	}
	m.pool.useless(w)
	return nil
}

var errRepeats = Errorf(Internal, "the machine's randomness repeats itself").WithHint("try again")

// enterWarm makes an instance that is about to be made known.
func (m *Manager) enterWarm(w *warmInstance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.takenLocked(w.id) {
		return errRepeats
	}
	if err := m.usableLocked(Caller{Admin: true}, w.key.snapshot); err != nil {
		return err
	}
	m.pool.instances = append(m.pool.instances, w)
	return nil
}

// takenLocked reports whether an ID is in use.
func (m *Manager) takenLocked(id string) bool {
	return m.entries[id] != nil ||
		slices.ContainsFunc(m.pool.instances, func(w *warmInstance) bool { return w.id == id })
}

// watchWarmLocked has Run notice the end of an instance that is ready.
func (m *Manager) watchWarmLocked(w *warmInstance) {
	w.unwatch = func() {}
	if m.runCtx == nil {
		return
	}
	ctx, cancel := context.WithCancel(m.runCtx)
	w.unwatch = cancel
	b := m.backends[w.key.wall]
	m.tasks.Go(func() {
		defer cancel()
		reason, err := b.Wait(ctx, w.id)
		m.mu.Lock()
		defer m.mu.Unlock()
		if ctx.Err() != nil || w.state != warmReady {
			return
		}
		m.log.Warn("a warm instance ended", "id", w.id, "backend", w.key.wall, "reason", reason, "error", err)
		m.pool.failed(w.key, m.now())
		m.pool.useless(w)
	})
}

// endWarm ends an instance that is of no use. Like warm it fails only at the end.
func (m *Manager) endWarm(ctx context.Context, w *warmInstance) error {
	ctx, done, err := m.begin(ctx, Caller{Admin: true})
	if err != nil {
		return err
	}
	defer done()
	err = dispose(ctx, m.backends[w.key.wall], w.id)
	m.dropWarm(w, err)
	m.collect(ctx)
	return nil
}

// dropWarm forgets an instance that was ended, or has that tried again.
func (m *Manager) dropWarm(w *warmInstance, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.log.Error("end an instance that is no one's", "id", w.id, "backend", w.key.wall, "error", err)
		w.retry = m.now().Add(retryDelay)
		return
	}
	m.pool.drop(w)
}

// drain ends all instances of the pool. No operation may be under way, nor begin.
func (m *Manager) drain() {
	m.mu.Lock()
	instances := m.pool.instances
	m.pool.instances = nil
	for _, w := range instances {
		m.pool.useless(w)
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, adoptAtOnce)
	for _, w := range instances {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			b := m.backends[w.key.wall]
			_, err := b.Stop(ctx, w.id)
			if err == nil {
				err = b.Remove(ctx, w.id)
			}
			if err != nil {
				m.log.Error("end an instance that is no one's", "id", w.id, "backend", w.key.wall, "error", err)
			}
		})
	}
	wg.Wait()
}
