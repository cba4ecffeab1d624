package sandbox

import (
	"context"
	"errors"
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

// KeepWarm keeps instances warm that would do for c's sandboxes of spec, before
// anyone asks for one, for good, as the default one's are. It fails as Create
// does where spec can't be kept, and with Unsupported where nothing of the kind
// can be warm: with a network, with anything of the host's or of a volume in
// it, or behind a wall that warms none. Without a pool it does nothing.
func (m *Manager) KeepWarm(ctx context.Context, c Caller, spec Spec) error {
	spec, b, err := m.fit(ctx, spec)
	if err != nil {
		return err
	}
	key, ok := m.pool.kindFor(b.Name(), spec, c.Owner)
	if !ok || m.pool.warmers[b.Name()] == nil {
		return Errorf(Unsupported, "sandboxes of this kind can't be kept warm").
			WithHint("without a network, and without directories of the host and volumes, behind %s", DefaultIsolation)
	}
	m.pool.keep(key, spec)
	return nil
}

// Pool returns how many instances are warm, and how many are to be.
func (m *Manager) Pool() (ready, size int) { return m.pool.count() }

// tender makes the pool's instances and ends them, one at a time.
type tender struct {
	*common
	backends  backends
	ops       *operations
	pool      *pool
	registry  *registry
	images    *images
	snapshots *snapshots
}

// tend keeps the pool as it is to be until ctx ends. It makes no instance while
// one is started for somebody.
func (t *tender) tend(ctx context.Context) {
	for ctx.Err() == nil {
		next := t.pool.next()
		if next.end != nil || next.make != nil {
			if errors.Is(t.do(ctx, next), ErrClosing) {
				return
			}
			continue
		}
		var timer <-chan time.Time
		if next.wait > 0 {
			timer = t.clock.After(min(next.wait, longestWait))
		}
		select {
		case <-ctx.Done():
		case <-t.pool.wake:
		case <-timer:
		}
	}
}

// do fails where the Manager is closing; any other failure is logged, and tried
// again later.
func (t *tender) do(ctx context.Context, next step) error {
	ctx, done, err := t.ops.begin(ctx, Caller{Admin: true})
	if err != nil {
		return err
	}
	defer done()
	if next.end != nil {
		t.end(ctx, next.end)
	} else {
		t.warm(ctx, next.make)
	}
	return nil
}

// warm makes one instance.
func (t *tender) warm(ctx context.Context, k *warmKind) {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	w := &warmInstance{key: k.key}
	var err error
	w.id, err = t.random(NewID)
	gone := false
	if err == nil {
		err = t.room("", "keep an instance warm", createRoom)
	}
	if err == nil {
		err = t.images.pin(ctx, k.spec.Image, func() error { return t.registry.enterWarm(w) })
		gone = KindOf(err) == NotFound
	}
	if err == nil {
		err = t.pool.warmers[k.key.wall].Warm(ctx, w.id, k.spec.Clone(), k.key.owner)
	}
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		t.log.Warn("warm an instance", "backend", k.key.wall, "image", k.key.image, "error", err)
	}
	t.pool.made(w, err, gone)
}

// watch waits for the end of a ready instance.
func (t *tender) watch(ctx context.Context, w *warmInstance) {
	reason, err := t.backends[w.key.wall].Wait(ctx, w.id)
	if t.pool.lost(ctx, w) {
		t.log.Warn("a warm instance ended", "id", w.id, "backend", w.key.wall, "reason", reason, "error", err)
	}
}

func (t *tender) end(ctx context.Context, w *warmInstance) {
	err := t.dispose(ctx, t.backends[w.key.wall], w.id)
	if err != nil {
		t.log.Error("end an instance without a sandbox", "id", w.id, "backend", w.key.wall, "error", err)
	}
	t.pool.ended(w, err)
	t.snapshots.collect(ctx, t.registry.uses)
}

// drain ends all instances of the pool. No operation may be under way, nor begin.
func (t *tender) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, adoptAtOnce)
	for _, w := range t.pool.empty() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := t.disposeWithin(ctx, t.backends[w.key.wall], w.id); err != nil {
				t.log.Error("end an instance without a sandbox", "id", w.id, "backend", w.key.wall, "error", err)
			}
		})
	}
	wg.Wait()
}
