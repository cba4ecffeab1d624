package sandbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Defaults of a Pool.
const (
	DefaultPoolMemory  = 1 << 30
	DefaultPerInstance = 64 << 20
)

const (
	// maxKinds bounds how many kinds of instances are kept warm. The default one is
	// always among them.
	maxKinds = 4
	// poolRest is how long nothing is warmed after a start for somebody, whose
	// first command is about to run.
	poolRest = 100 * time.Millisecond
)

// Pool says what is kept warm: instances that were started before anyone asked
// for them. The zero value keeps none.
type Pool struct {
	// Size is how many instances of each kind there are to be.
	Size int
	// Memory bounds what all of them take together, by the estimates of
	// PerInstance, in bytes; 0 is DefaultPoolMemory.
	Memory int64
	// PerInstance is what one idle instance takes behind each wall, in bytes, its guest
	// agent included; DefaultPerInstance for a wall without an entry. Limits say
	// what an instance may use, and nothing of what it does.
	PerInstance map[string]int64
}

// kindKey is all of an instance that Claim can't change. Instances of one key are alike.
type kindKey struct {
	wall, image, snapshot string
	user, cwd, network    string
	owner                 string // whose instances alone they are; "": anybody's
	readOnlyRoot, sudo    bool
	own                   string // where it has directories of its own mounted

	cpus                       float64
	memory, pids, disk, inodes int64
	explicit                   string
}

// kindOf returns the key of the instances that would do for spec behind wall, and
// whether there can be any: nothing of the host may be in them, nor of a volume.
func kindOf(wall string, spec Spec) (kindKey, bool) {
	l := spec.Limits
	own, rest := ownMounts(spec.Mounts)
	var explicit []string
	for _, name := range slices.Sorted(maps.Keys(l.Explicit)) {
		if l.Explicit[name] {
			explicit = append(explicit, name)
		}
	}
	return kindKey{
		wall: wall, image: spec.Image, snapshot: spec.Snapshot, user: spec.User, cwd: spec.Cwd, network: spec.Network,
		cpus: l.CPUs, memory: l.Memory, pids: l.PIDs, disk: l.Disk, inodes: l.Inodes,
		explicit: strings.Join(explicit, " "), readOnlyRoot: spec.ReadOnlyRoot, sudo: spec.Sudo, own: own,
	}, !spec.Networked() && rest == 0 && spec.Workspace.Mode == WorkspacePrivate
}

// ownMounts returns where directories of the sandbox's own are mounted, as one
// word whatever their order, and how many other mounts there are.
func ownMounts(mounts []Mount) (targets string, rest int) {
	var own []string
	for _, m := range mounts {
		if !m.Own {
			rest++
			continue
		}
		own = append(own, m.Target)
	}
	slices.Sort(own)
	return strings.Join(own, "\x00"), rest
}

// kindFor is kindOf for an owner, who may be entitled to instances that are not
// like anybody's: those are kinds of their own.
func (p *warmPool) kindFor(wall string, spec Spec, owner string) (kindKey, bool) {
	key, ok := kindOf(wall, spec)
	if w := p.warmers[wall]; ok && w != nil && w.Personal(owner, spec) {
		key.owner = owner
	}
	return key, ok
}

// kind is a kind of instance that is kept warm.
type kind struct {
	key   kindKey
	spec  Spec // what Warm is told
	fixed bool // it is never forgotten
	fails int  // since an instance of it was last claimed
	retry time.Time
}

func newKind(key kindKey, spec Spec) *kind {
	return &kind{key: key, spec: Spec{
		Isolation: key.wall, Image: spec.Image, Snapshot: spec.Snapshot, User: spec.User, Cwd: spec.Cwd, Network: spec.Network,
		Workspace: Workspace{Mode: WorkspacePrivate}, Limits: spec.Clone().Limits, OnExpiry: OnExpiryStop,
		ReadOnlyRoot: spec.ReadOnlyRoot, Sudo: spec.Sudo, Mounts: spec.Clone().Mounts,
	}}
}

// warmState is where an instance is between its making and its end, or its claim:
// by that it leaves the pool, for ever.
type warmState int

const (
	warming warmState = iota
	warmReady
	warmEnding // it is of no use
)

// warmBox is an instance that nobody asked for yet, or one that is no one's and is
// to be ended.
type warmInstance struct {
	id      string
	key     kindKey
	state   warmState
	retry   time.Time // when its end is tried again
	unwatch context.CancelFunc
}

// warmPool is what a Manager knows of its warm instances. All but the first lines
// is guarded by Manager.mu.
type warmPool struct {
	Pool
	warmers map[string]Warmer
	wake    chan struct{}

	open      bool            // Adopt has removed what earlier daemons kept warm
	kinds     []*kind         // the one used last first
	instances []*warmInstance // the oldest first
	starts    int             // those for somebody that are under way
	rest      time.Time       // nothing is warmed before
}

func newPool(o Options) warmPool {
	p := warmPool{Pool: o.Pool, warmers: make(map[string]Warmer), wake: make(chan struct{}, 1)}
	p.PerInstance = maps.Clone(o.Pool.PerInstance)
	p.Memory = cmp.Or(p.Memory, DefaultPoolMemory)
	for _, b := range o.Backends {
		if w, ok := b.(Warmer); ok {
			p.warmers[b.Name()] = w
		}
	}
	return p
}

// keepDefault has a kind kept warm though nobody asked for it yet.
func (p *warmPool) keepDefault(key kindKey, spec Spec) {
	p.saw(key, spec)
	if k := p.kind(key); k != nil {
		k.fixed = true
	}
}

func (p *warmPool) cost(wall string) int64 {
	if n := p.PerInstance[wall]; n > 0 {
		return n
	}
	return DefaultPerInstance
}

// wanted returns how many instances of each kind there are to be: all of the one
// that was used last, then of the one before, as far as the memory goes.
func (p *warmPool) wanted() map[kindKey]int {
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

// used is what the instances take, those that are being ended too.
func (p *warmPool) used() (bytes int64) {
	for _, w := range p.instances {
		bytes += p.cost(w.key.wall)
	}
	return bytes
}

func (p *warmPool) kind(key kindKey) *kind {
	for _, k := range p.kinds {
		if k.key == key {
			return k
		}
	}
	return nil
}

// take removes a ready instance of that kind from the pool, if there is one.
func (p *warmPool) take(key kindKey) *warmInstance {
	i := slices.IndexFunc(p.instances, func(w *warmInstance) bool { return w.key == key && w.state == warmReady })
	if i < 0 {
		return nil
	}
	w := p.instances[i]
	p.instances = slices.Delete(p.instances, i, i+1)
	w.unwatch()
	p.nudge()
	return w
}

// stray has an instance ended that has no record and could not be removed at once.
func (p *warmPool) stray(wall, id string, now time.Time) {
	w := &warmInstance{id: id, key: kindKey{wall: wall}, state: warmEnding, retry: now.Add(retryDelay)}
	p.instances = append(p.instances, w)
}

// useless has an instance ended.
func (p *warmPool) useless(w *warmInstance) {
	w.state = warmEnding
	if w.unwatch != nil {
		w.unwatch()
	}
	p.nudge()
}

func (p *warmPool) drop(w *warmInstance) {
	p.instances = slices.DeleteFunc(p.instances, func(other *warmInstance) bool { return other == w })
}

// saw notes that a sandbox of that kind came to run.
func (p *warmPool) saw(key kindKey, spec Spec) {
	if p.Size == 0 || p.warmers[key.wall] == nil {
		return
	}
	k := p.kind(key)
	if k == nil {
		k = newKind(key, spec)
	}
	p.kinds = slices.DeleteFunc(p.kinds, func(other *kind) bool { return other == k })
	p.kinds = slices.Insert(p.kinds, 0, k)
	for i := len(p.kinds) - 1; len(p.kinds) > maxKinds; i-- {
		if !p.kinds[i].fixed {
			p.kinds = slices.Delete(p.kinds, i, i+1)
		}
	}
	p.nudge()
}

// forget drops a kind of which no more instances can be made.
func (p *warmPool) forget(key kindKey) {
	p.kinds = slices.DeleteFunc(p.kinds, func(k *kind) bool { return k.key == key && !k.fixed })
}

// forgetSnapshot drops the kinds that lie over a snapshot, and their instances.
func (p *warmPool) forgetSnapshot(id string) {
	p.kinds = slices.DeleteFunc(p.kinds, func(k *kind) bool { return k.key.snapshot == id })
	for _, w := range p.instances {
		if w.key.snapshot == id && w.state == warmReady {
			p.useless(w)
		}
	}
}

// failed has the next instance of a kind wait, the longer the more often.
func (p *warmPool) failed(key kindKey, now time.Time) {
	if k := p.kind(key); k != nil {
		k.fails++
		k.retry = now.Add(backoff(k.fails))
	}
}

// claimed ends the waiting of a kind that failed before.
func (p *warmPool) claimed(key kindKey) {
	if k := p.kind(key); k != nil {
		k.fails, k.retry = 0, time.Time{}
	}
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

// nudge makes Run look again at what is to be warmed or ended.
func (p *warmPool) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// left is how long it is until at, which was set to be most away at most: a
// clock that was set back since must not make that a year.
func left(at, now time.Time, most time.Duration) time.Duration {
	if d := at.Sub(now); d > 0 && d <= most {
		return d
	}
	return 0
}

// Pool returns how many instances are warm, and how many there are to be.
func (m *Manager) Pool() (ready, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.pool.instances {
		if w.state == warmReady {
			ready++
		}
	}
	for _, n := range m.pool.wanted() {
		size += n
	}
	return ready, size
}

// starting holds the pool back while an instance is started for somebody.
func (m *Manager) starting() (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool.starts++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pool.starts--
		m.pool.rest = m.now().Add(poolRest)
		m.pool.nudge()
	}
}
