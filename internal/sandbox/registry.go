package sandbox

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// entry is one sandbox in memory.
type entry struct {
	id   string
	turn turn // to change the sandbox
	// image, snapshot and volumes are the Spec's, in use for as long as this is
	// an entry.
	image    string
	snapshot string
	volumes  []string
	// slots are those of the caches that the sandbox has, by volume. Guarded by
	// registry.mu.
	slots map[string]int
	// warm is the instance that was kept warm, and that is about to become this
	// sandbox's. Only the holder of the turn looks at it.
	warm *warmInstance
	// values are those of secrets that came with the create, until the gate has
	// them. Only the holder of the turn looks at them.
	values SecretValues

	// Guarded by registry.mu. The record is never changed, only replaced, and
	// that by the holder of the turn.
	sb      *Sandbox // nil before its first Put and after its removal
	holds   int
	waking  bool      // it is stopped, and about to be started
	orphan  time.Time // when an ephemeral one without holds is finished
	retry   time.Time // when Run tries again what failed; zero: nothing did
	debt    gateDebt  // what its gate could not be told
	reaping bool      // Run has a goroutine on it
	ending  bool      // it is being finished: too late to hold it
	moved   *entry    // what the sandbox goes on as: see moveOn
	unwatch context.CancelFunc
	// interrupt ends the set-up that is under way; nil: none is. unwanted is why one that comes
	// is ended, too.
	interrupt context.CancelCauseFunc
	unwanted  error
}

// newEntry returns an entry whose turn the caller has.
func newEntry(id string, spec Spec) *entry {
	e := &entry{id: id, turn: newTurn(), image: spec.Image, snapshot: spec.Snapshot, volumes: spec.volumes(), slots: spec.slots()}
	e.turn <- struct{}{}
	return e
}

type nameKey struct{ owner, name string }

// registry has all sandboxes in memory, by ID and by name, and their turns. It
// writes nothing down: what put enters is in the store already, and after a
// crash fill takes it from there.
//
// A turn is taken before mu. The locks of the pool and of the snapshots are
// taken under mu, never the other way round, so that an entry, the warm instance
// that it takes and the snapshot that it lies over are decided on as one. Quotas
// are asked under mu.
type registry struct {
	*common
	quotas    Quotas
	pool      *pool
	snapshots *snapshots
	run       *runner

	mu       sync.Mutex
	entries  map[string]*entry
	names    map[nameKey]string // to IDs
	draining bool
}

func newRegistry(c *common, q Quotas, p *pool, s *snapshots, r *runner) *registry {
	return &registry{
		common: c, quotas: q, pool: p, snapshots: s, run: r,
		entries: make(map[string]*entry), names: make(map[nameKey]string),
	}
}

// fill enters every record, once, and returns the entries. The caller has their
// turns.
func (r *registry) fill(records []*Sandbox) []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := make([]*entry, 0, len(records))
	for _, sb := range records {
		e := newEntry(sb.ID, sb.Spec)
		e.sb = sb
		r.armLocked(e)
		r.entries[e.id] = e
		r.names[nameKey{sb.Owner, sb.Spec.Name}] = e.id
		entries = append(entries, e)
	}
	for _, e := range entries {
		if e.runs() {
			r.quotas.Changed(e.sb.Owner, r.countLocked(e.sb.Owner, (*entry).runs), false, r.now())
		}
	}
	return entries
}

// enrol enters e under its ID and name, or reports that either is taken. The ID
// becomes that of a warm instance of its kind, where the pool has one: nobody
// else can take it then. From then on its snapshot is in use. It fails where
// that has gone, or the owner may have no more.
func (r *registry) enrol(e *entry, c Caller, name string, kind kindKey, pooled bool) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.snapshots.usable(c, e.snapshot); err != nil {
		return false, err
	}
	key := nameKey{c.Owner, name}
	if _, taken := r.names[key]; taken || r.takenLocked(e.id) {
		return false, nil
	}
	if err := r.admitLocked(key.owner, true); err != nil {
		return false, err
	}
	if pooled {
		if e.warm = r.pool.take(kind); e.warm != nil {
			e.id = e.warm.id
		}
	}
	r.names[key] = e.id
	r.entries[e.id] = e
	return true, nil
}

var errRepeats = Errorf(Internal, "the machine's randomness repeats itself").WithHint("try again")

// enterWarm puts an instance that is about to be made into the pool, under an ID
// that nothing else has.
func (r *registry) enterWarm(w *warmInstance) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.takenLocked(w.id) {
		return errRepeats
	}
	if err := r.snapshots.usable(Caller{Admin: true}, w.key.snapshot); err != nil {
		return err
	}
	r.pool.add(w)
	return nil
}

// moveOn makes another entry, under sb's ID, of that of a sandbox that is being
// created, and gives its warm instance back to the pool. Those who wait for the
// turn of e, or hold e, go on with the new one, whose turn the caller has.
func (r *registry) moveOn(e *entry, sb *Sandbox) (*entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.takenLocked(sb.ID) {
		return nil, errRepeats
	}
	next := newEntry(sb.ID, sb.Spec)
	next.holds = e.holds
	r.entries[next.id] = next
	r.names[nameKey{sb.Owner, sb.Spec.Name}] = next.id
	delete(r.entries, e.id)
	e.sb, e.moved = nil, next
	r.pool.giveBack(e.warm)
	return next, nil
}

// takenLocked reports whether an ID is in use.
func (r *registry) takenLocked(id string) bool { return r.entries[id] != nil || r.pool.has(id) }

// put makes sb, which the store has, e's record. The turn must be held.
func (r *registry) put(e *entry, sb *Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var before State
	if e.sb != nil {
		before = e.sb.State
	}
	e.sb = sb
	e.retry = time.Time{}
	r.armLocked(e)
	r.changedLocked(sb.Owner, before, sb.State)
}

// suppose makes sb e's record where it is not known whether the store has it.
func (r *registry) suppose(e *entry, sb *Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.sb = sb
}

// forget drops the entry of a sandbox that is removed.
func (r *registry) forget(e *entry, sb *Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.sb = nil
	delete(r.entries, e.id)
	delete(r.names, nameKey{sb.Owner, sb.Spec.Name})
}

// record returns the current record of e, which is not to be changed.
func (r *registry) record(e *entry) *Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.sb
}

// find returns the entry that ref means to c, and its record.
func (r *registry) find(c Caller, ref string) (*entry, *Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.findLocked(c, ref)
	if err != nil {
		return nil, nil, err
	}
	return e, e.sb, nil
}

func (r *registry) findLocked(c Caller, ref string) (*entry, error) {
	if ValidID(ref) {
		if e := r.entries[ref]; e != nil && e.sb != nil && (c.Admin || e.sb.Owner == c.Owner) {
			return e, nil
		}
		return nil, unknown(ref)
	}
	if id, ok := r.names[nameKey{c.Owner, ref}]; ok && r.entries[id].sb != nil {
		return r.entries[id], nil
	}
	if !c.Admin {
		return nil, unknown(ref)
	}
	var found *entry
	for key, id := range r.names {
		e := r.entries[id]
		if key.name != ref || e.sb == nil {
			continue
		}
		if found != nil {
			return nil, Errorf(Conflict, "sandbox %s: several owners have one of that name", refText(ref)).
				WithHint("use its ID")
		}
		found = e
	}
	if found == nil {
		return nil, unknown(ref)
	}
	return found, nil
}

func unknown(ref string) error {
	return Errorf(NotFound, "sandbox %s: not found", refText(ref)).WithHint("carboy ls")
}

// records returns all records, which are not to be changed.
func (r *registry) records() []*Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*Sandbox, 0, len(r.entries))
	for _, e := range r.entries {
		if e.sb != nil {
			out = append(out, e.sb)
		}
	}
	return out
}

// byAge orders records and snapshots, oldest first.
func byAge(at, bt time.Time, a, b string) int { return cmp.Or(at.Compare(bt), cmp.Compare(a, b)) }

// take finds a sandbox and waits for its turn.
func (r *registry) take(ctx context.Context, c Caller, ref string) (*entry, error) {
	e, _, err := r.find(c, ref)
	if err != nil {
		return nil, err
	}
	for {
		if err := e.turn.take(ctx); err != nil {
			return nil, undone(ctx, failure(err, ref, "wait for it"))
		}
		next := r.movedTo(e)
		if next == nil {
			return e, nil
		}
		r.give(e)
		e = next
	}
}

// movedTo returns what the sandbox of e goes on as, if that is another entry.
func (r *registry) movedTo(e *entry) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return e.moved
}

// give gives e's turn back.
func (r *registry) give(e *entry) {
	e.turn.give()
	r.run.nudge()
}

// hold keeps an ephemeral sandbox from being finished until release.
func (r *registry) hold(c Caller, ref string) (release func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.findLocked(c, ref)
	if err != nil {
		return nil, err
	}
	if e.ending || e.sb.State == StateRemoving {
		return nil, Errorf(Conflict, "sandbox %s: it is being ended", e.sb.Spec.Name)
	}
	e.holds++
	r.armLocked(e)
	return sync.OnceFunc(func() { r.release(e) }), nil
}

func (r *registry) release(e *entry) {
	defer r.run.nudge()
	r.mu.Lock()
	defer r.mu.Unlock()
	for e.moved != nil {
		e = e.moved
	}
	e.holds--
	if e.sb != nil {
		r.armLocked(e)
	}
}

// armLocked starts the grace of an ephemeral sandbox that nobody holds.
func (r *registry) armLocked(e *entry) {
	switch {
	case !e.sb.Spec.Ephemeral || e.holds > 0:
		e.orphan = time.Time{}
	case e.orphan.IsZero():
		e.orphan = r.now().Add(OrphanGrace)
	}
}

func (r *registry) setEnding(e *entry, ending bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.ending = ending
}

// idle is Manager.Idle.
func (r *registry) idle() (sandboxes, holds int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		holds += e.holds
		if e.sb == nil || e.sb.State != StateStopped || e.sb.Spec.Ephemeral {
			sandboxes++
		}
	}
	return sandboxes, holds
}

// use is what one sandbox, or one warm instance, lies over.
type use struct{ image, snapshot string }

// uses lists what sandboxes, creates under way and warm instances lie over. What
// is about to be entered, or to move from the pool to an entry, does so under mu.
func (r *registry) uses() []use {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.pool.uses()
	for _, e := range r.entries {
		out = append(out, use{image: e.image, snapshot: e.snapshot})
	}
	return out
}

// volumeUsers is Manager.VolumeUsers.
func (r *registry) volumeUsers(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := []string{}
	for _, e := range r.entries {
		if !slices.Contains(e.volumes, id) {
			continue
		}
		if e.sb == nil {
			names = append(names, e.id) // it is being created
			continue
		}
		names = append(names, e.sb.Spec.Name)
	}
	slices.Sort(names)
	return names
}

// has reports whether a sandbox has that ID, and, where backend is given, may
// have its instance there: a create enters its sandbox before it builds that.
func (r *registry) has(id, backend string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	return e != nil && (backend == "" || e.sb == nil || e.sb.Backend == backend)
}

// watch begins a task of Run that waits, by await, for the end of e's instance,
// if that runs.
func (r *registry) watch(e *entry, await func(ctx context.Context, starts int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.unwatch != nil || !e.runs() {
		return
	}
	starts := e.sb.Starts
	e.unwatch = r.run.begin(func(ctx context.Context) { await(ctx, starts) })
}

// unwatch ends e's watcher, whose instance is about to be ended on purpose.
func (r *registry) unwatch(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.unwatch != nil {
		e.unwatch()
		e.unwatch = nil
	}
}

// unwatchAll forgets the watchers of a Run that ends them.
func (r *registry) unwatchAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		e.unwatch = nil
	}
}

func (r *registry) all() []*entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*entry, 0, len(r.entries))
	for _, e := range r.entries {
		out = append(out, e)
	}
	return out
}

// retryLater makes Run settle e after a while.
func (r *registry) retryLater(e *entry) {
	r.mu.Lock()
	e.retry = r.now().Add(retryDelay)
	r.mu.Unlock()
	r.run.nudge()
}
