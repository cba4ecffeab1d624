package sandbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// warmState is where an instance is between its making and its end, or its claim:
// by that it leaves the pool, for ever.
type warmState int

const (
	warming warmState = iota
	warmReady
	warmEnding
)

// warmInstance is an instance without a sandbox: one that is kept for the next
// create, or one that is to be ended. Its ID and its key never change; the rest
// is guarded by pool.mu.
type warmInstance struct {
	id      string
	key     kindKey
	state   warmState
	retry   time.Time // when its end is tried again
	unwatch context.CancelFunc
}

// pool knows the warm instances and the kinds to keep; a tender makes and ends
// them. An instance is in it from before Warm until it has ended or was taken:
// so its ID, its image and its snapshot count as in use. Nothing of it is
// written down: after a crash Adopt removes the instances, which have no
// record, and open lets new ones be made.
//
// mu is taken after registry.mu, and only runner.mu is taken under it.
type pool struct {
	Pool
	*common
	warmers map[string]Warmer
	run     *runner
	wake    chan struct{}                              // tells the tender that a step may be due
	watch   func(ctx context.Context, w *warmInstance) // waits for the end of a ready one, and tells lost

	mu        sync.Mutex
	opened    bool            // Adopt has removed what earlier daemons kept warm
	kinds     []*warmKind     // the one used last first
	instances []*warmInstance // the oldest first
	starts    int             // those for somebody that are under way
	rest      time.Time       // nothing is warmed before
}

func newPool(o Options, c *common, run *runner) *pool {
	p := &pool{Pool: o.Pool, common: c, warmers: make(map[string]Warmer), run: run, wake: make(chan struct{}, 1)}
	p.PerInstance = maps.Clone(o.Pool.PerInstance)
	p.Memory = cmp.Or(p.Memory, DefaultPoolMemory)
	for _, b := range o.Backends {
		if w := b.Capabilities().Warm; w != nil {
			p.warmers[b.Name()] = w
		}
	}
	return p
}

// kindFor is kindOf for an owner, who may be entitled to instances that are not
// like anybody's: those are kinds of their own.
func (p *pool) kindFor(wall string, spec Spec, owner string) (kindKey, bool) {
	key, ok := kindOf(wall, spec)
	if w := p.warmers[wall]; ok && w != nil && w.Personal(owner, spec) {
		key.owner = owner
	}
	return key, ok
}

// open lets instances be made: none of an earlier daemon is left that Adopt knows of.
func (p *pool) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = true
	nudge(p.wake)
}

// keep has a kind kept warm for good, though nobody asked for it yet.
func (p *pool) keep(key kindKey, spec Spec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sawLocked(key, spec)
	if k := p.kindLocked(key); k != nil {
		k.fixed = true
	}
}

// saw notes that a sandbox of owner's came to run behind a wall.
func (p *pool) saw(wall string, spec Spec, owner string) {
	key, ok := p.kindFor(wall, spec, owner)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sawLocked(key, spec)
}

func (p *pool) sawLocked(key kindKey, spec Spec) {
	if p.Size == 0 || p.warmers[key.wall] == nil {
		return
	}
	k := p.kindLocked(key)
	if k == nil {
		k = newWarmKind(key, spec)
	}
	p.kinds = slices.DeleteFunc(p.kinds, func(other *warmKind) bool { return other == k })
	p.kinds = slices.Insert(p.kinds, 0, k)
	for i := len(p.kinds) - 1; len(p.kinds) > maxKinds; i-- {
		if !p.kinds[i].fixed {
			p.kinds = slices.Delete(p.kinds, i, i+1)
		}
	}
	nudge(p.wake)
}

func (p *pool) kindLocked(key kindKey) *warmKind {
	for _, k := range p.kinds {
		if k.key == key {
			return k
		}
	}
	return nil
}

func (p *pool) cost(wall string) int64 {
	if n := p.PerInstance[wall]; n > 0 {
		return n
	}
	return DefaultPerInstance
}

// wantedLocked returns how many instances to keep of each kind: all of the one
// that was used last, then of the one before, as far as the memory goes.
func (p *pool) wantedLocked() map[kindKey]int {
	want := make(map[kindKey]int)
	left := p.Memory
	for _, k := range p.kinds {
		cost := p.cost(k.key.wall)
		n := min(int64(p.Size), left/cost)
		want[k.key] = int(n)
		left -= n * cost
	}
	return want
}

// usedLocked is what the instances take, those that are being ended too.
func (p *pool) usedLocked() (bytes int64) {
	for _, w := range p.instances {
		bytes += p.cost(w.key.wall)
	}
	return bytes
}

// count returns how many instances are warm, and how many are to be.
func (p *pool) count() (ready, size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.instances {
		if w.state == warmReady {
			ready++
		}
	}
	for _, n := range p.wantedLocked() {
		size += n
	}
	return ready, size
}

// has reports whether an instance with that ID is in the pool.
func (p *pool) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.instances, func(w *warmInstance) bool { return w.id == id })
}

// uses lists what the instances lie over.
func (p *pool) uses() []use {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]use, len(p.instances))
	for i, w := range p.instances {
		out[i] = use{image: w.key.image, snapshot: w.key.snapshot}
	}
	return out
}

// add puts in an instance that is about to be made.
func (p *pool) add(w *warmInstance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances = append(p.instances, w)
}

// take removes a ready instance of that kind from the pool, if it has one.
func (p *pool) take(key kindKey) *warmInstance {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.instances, func(w *warmInstance) bool { return w.key == key && w.state == warmReady })
	if i < 0 {
		return nil
	}
	w := p.instances[i]
	p.instances = slices.Delete(p.instances, i, i+1)
	w.unwatch()
	nudge(p.wake)
	return w
}

// giveBack puts in an instance that was taken and can't be claimed, to be ended.
func (p *pool) giveBack(w *warmInstance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances = append(p.instances, w)
	p.endLocked(w)
}

// stray puts in an instance that has no record and could not be removed at once.
func (p *pool) stray(wall, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances = append(p.instances, &warmInstance{
		id: id, key: kindKey{wall: wall}, state: warmEnding, retry: p.now().Add(retryDelay),
	})
}

// endLocked marks an instance for the tender to end.
func (p *pool) endLocked(w *warmInstance) {
	w.state = warmEnding
	if w.unwatch != nil {
		w.unwatch()
	}
	nudge(p.wake)
}

// made enters what came of warming w; gone says that its kind can't be made
// any more.
func (p *pool) made(w *warmInstance, err error, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		w.state = warmReady
		p.watchLocked(w)
		return
	case gone:
		p.kinds = slices.DeleteFunc(p.kinds, func(k *warmKind) bool { return k.key == w.key && !k.fixed })
	default:
		p.failedLocked(w.key)
	}
	p.endLocked(w)
}

// watchReady watches for the ends of the ready instances. Run, which ends its
// watchers with itself, calls it as it begins.
func (p *pool) watchReady() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.instances {
		if w.state == warmReady {
			p.watchLocked(w)
		}
	}
}

func (p *pool) watchLocked(w *warmInstance) {
	w.unwatch = p.run.begin(func(ctx context.Context) { p.watch(ctx, w) })
	if w.unwatch == nil {
		w.unwatch = func() {}
	}
}

// lost marks a ready instance that ended by itself, unless it was taken or ctx,
// its watcher's, has ended since.
func (p *pool) lost(ctx context.Context, w *warmInstance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil || w.state != warmReady {
		return false
	}
	p.failedLocked(w.key)
	p.endLocked(w)
	return true
}

// ended forgets an instance that was ended, or puts off another try.
func (p *pool) ended(w *warmInstance, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		w.retry = p.now().Add(retryDelay)
		return
	}
	p.instances = slices.DeleteFunc(p.instances, func(other *warmInstance) bool { return other == w })
}

// empty takes all instances out, to be ended.
func (p *pool) empty() []*warmInstance {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.instances
	p.instances = nil
	for _, w := range all {
		p.endLocked(w)
	}
	return all
}

// forgetSnapshot drops the kinds that lie over a snapshot, and their instances.
func (p *pool) forgetSnapshot(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds = slices.DeleteFunc(p.kinds, func(k *warmKind) bool { return k.key.snapshot == id })
	for _, w := range p.instances {
		if w.key.snapshot == id && w.state == warmReady {
			p.endLocked(w)
		}
	}
}

// claimed tells whether an instance of a kind could be claimed. A kind that
// fails waits for its next instance, the longer the more often.
func (p *pool) claimed(key kindKey, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ok {
		p.failedLocked(key)
		return
	}
	if k := p.kindLocked(key); k != nil {
		k.fails, k.retry = 0, time.Time{}
	}
}

func (p *pool) failedLocked(key kindKey) {
	if k := p.kindLocked(key); k != nil {
		k.fails++
		k.retry = p.now().Add(backoff(k.fails))
	}
}

// starting holds the pool back while an instance is started for somebody.
func (p *pool) starting() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starts++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.starts--
		p.rest = p.now().Add(poolRest)
		nudge(p.wake)
	}
}

func (p *pool) underWay() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// step is what the tender does next: end an instance, make one of a kind, or
// wait; 0: until the pool is woken.
type step struct {
	end  *warmInstance
	make *warmKind
	wait time.Duration
}

// next returns the next step. Instances beyond what is wanted are ended first,
// and none is made while one is started for somebody.
func (p *pool) next() (s step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.opened {
		return step{}
	}
	soonest := func(d time.Duration) {
		if s.wait == 0 || d < s.wait {
			s.wait = d
		}
	}
	now, want := p.now(), p.wantedLocked()
	have := make(map[kindKey]int)
	for _, w := range p.instances {
		if w.state == warmReady && have[w.key] == want[w.key] {
			p.endLocked(w)
		}
		if w.state != warmEnding {
			have[w.key]++
			continue
		}
		if d := left(w.retry, now, retryDelay); d > 0 {
			soonest(d)
			continue
		}
		return step{end: w}
	}
	if p.starts > 0 {
		return s
	}
	resting := left(p.rest, now, poolRest)
	for _, k := range p.kinds {
		if have[k.key] >= want[k.key] || p.usedLocked()+p.cost(k.key.wall) > p.Memory {
			continue
		}
		if d := max(left(k.retry, now, lastBackoff), resting); d > 0 {
			soonest(d)
			continue
		}
		return step{make: k}
	}
	return s
}

// backoffs double from the first to the last.
const (
	firstBackoff = time.Second
	lastBackoff  = 5 * time.Minute
)

func backoff(fails int) time.Duration {
	d := firstBackoff
	for ; fails > 1 && d < lastBackoff; fails-- {
		d *= 2
	}
	return min(d, lastBackoff)
}

// left is how long it is until at, which was set to be most away at most: a
// clock that was set back since must not make that a year.
func left(at, now time.Time, most time.Duration) time.Duration {
	if d := at.Sub(now); d > 0 && d <= most {
		return d
	}
	return 0
}
