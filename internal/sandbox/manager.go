// Package sandbox is the domain: what a sandbox is, what was promised of it,
// and the Manager that carries it from created to removed.
//
// It builds no walls, speaks no protocol and touches no file: it declares the
// Backend, Store and Clock that it needs and is handed them. It refuses what
// it can't promise: an unknown network, an impossible limit or a wall that
// does not exist is an error, never a weaker sandbox.
package sandbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
)

// Options are what a Manager works with. Store and Backends are required; the
// zero value of everything else works.
type Options struct {
	Store    Store
	Backends []Backend
	Clock    Clock        // default: the machine's
	Rand     io.Reader    // default: crypto/rand; need not be safe for concurrent use
	Log      *slog.Logger // default: none
	Events   EventLog     // default: kept in memory

	CPUs   float64 // of the machine; default: as many as the process may use
	Memory int64   // of the machine, in bytes; 0: limits are not checked against it

	// Images has the images that a Spec may name; nil: DefaultImage alone.
	Images Images

	// Volumes has the volumes that a Spec may mount; nil: none.
	Volumes Volumes

	// Snapshots keeps what sandboxes wrote, for others to start from; nil: nothing
	// is kept.
	Snapshots Snapshots

	// Gate makes the gates of sandboxes with a network; nil: no sandbox has one.
	Gate Gate

	// NetRecords has what no gate tells: what sandboxes without a network asked for,
	// and what those tried that ended; nil: nothing of it is known.
	NetRecords NetRecords

	// Disk is the host's disk, where it is watched; nil: nothing is held, and nothing
	// refused.
	Disk Disk

	// Ports opens ports of sandboxes on the machine's loopback; nil: none are.
	Ports Ports

	// Startup runs a Spec's Startup at each start; nil: no Spec may have one.
	Startup StartFunc

	// Pool says what is kept warm, behind the walls whose backends can.
	Pool Pool

	// Quotas says what each owner may have; nil: as much as the machine has.
	Quotas Quotas

	// Removed is told whose sandbox was removed, each time, and must not wait for the
	// Manager; nil: nobody is.
	Removed func(owner string)

	// HasChanges reads what Backend.Changes wrote and reports whether that
	// is any change; it need not read to the end. Default: any byte is one.
	HasChanges func(r io.Reader) (bool, error)
}

// Caller is who asks. Others' sandboxes don't exist for a caller that is no
// admin.
type Caller struct {
	Owner string // "uid:1000", or "key:ID"
	Admin bool
	Floor Floor // of its key; none: its owner's
}

// Filter selects sandboxes. The zero value selects all.
type Filter struct {
	Labels map[string]string // a sandbox has each of them, with that value
	States []State           // any of them; none means all
}

// Manager carries sandboxes from created to removed. It is the only writer of
// its Store, of which it holds every record in memory.
//
// Each change of state is written to the store before it is acted on, so
// that after a kill at any moment Adopt can tell what was meant and end it.
// Changes of one sandbox wait for each other; those of different ones never
// do. Methods that name a sandbox take its ID or its name.
//
// It has no lock: its parts have theirs. Turns are taken first: that of the
// images, then that of the volumes, or that of a sandbox, then that of the
// snapshots. Then registry.mu, under it pool.mu or snapshots.mu, and runner.mu
// last. No store, backend or gate is called with a lock held.
type Manager struct {
	*common
	offer     Offer
	quotas    Quotas
	ops       *operations
	run       *runner
	registry  *registry
	pool      *pool
	tender    *tender
	snapshots *snapshots
	images    *images
	volumes   *volumes
	gates     *gates
	lives     *lives

	creates, failures atomic.Uint64
}

// NewManager returns a Manager, or an error where opts lack what is required.
// It touches nothing: call Adopt before anything else, and Run beside it.
func NewManager(opts Options) (*Manager, error) {
	if opts.Store == nil || len(opts.Backends) == 0 {
		return nil, errors.New("new manager: a store and a backend are required")
	}
	if opts.Pool.Size < 0 || opts.Pool.Memory < 0 {
		return nil, errors.New("new manager: a pool can't be smaller than nothing")
	}
	walls := make(backends)
	for _, b := range opts.Backends {
		if _, ok := walls[b.Name()]; ok {
			return nil, fmt.Errorf("new manager: two backends are named %s", b.Name())
		}
		if got, want := b.Capabilities().Strength, StrengthOf(b.Name()); got != want {
			return nil, fmt.Errorf("new manager: the backend %s is of strength %d, and its name promises %d", b.Name(), got, want)
		}
		walls[b.Name()] = b
	}
	opts.setDefaults()
	c := &common{clock: opts.Clock, log: opts.Log, events: opts.Events, disk: opts.Disk, rand: opts.Rand}
	m := &Manager{
		common: c, offer: opts.offer(), quotas: opts.Quotas, ops: newOperations(), run: newRunner(),
		snapshots: newSnapshots(c, opts.Snapshots, opts.Quotas),
		images:    &images{store: opts.Images, turn: newTurn()},
		volumes:   &volumes{store: opts.Volumes, turn: newTurn()},
		gates:     &gates{common: c, gate: opts.Gate, records: opts.NetRecords},
	}
	m.pool = newPool(opts, c, m.run)
	m.registry = newRegistry(c, opts.Quotas, m.pool, m.snapshots, m.run)
	m.tender = &tender{
		common: c, backends: walls, ops: m.ops, pool: m.pool, registry: m.registry, images: m.images, snapshots: m.snapshots,
	}
	m.pool.watch = m.tender.watch
	m.lives = &lives{
		common: c, store: opts.Store, backends: walls, registry: m.registry, pool: m.pool, snapshots: m.snapshots,
		gates: m.gates, startup: opts.Startup, ports: opts.Ports, changed: opts.HasChanges, removed: opts.Removed,
	}
	if key, ok := kindOf(DefaultIsolation, Spec{}.Normalize(m.offer)); ok {
		m.pool.keep(key, Spec{}.Normalize(m.offer))
	}
	return m, nil
}

func (o *Options) setDefaults() {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.CPUs == 0 {
		o.CPUs = float64(runtime.GOMAXPROCS(0))
	}
	if o.Clock == nil {
		o.Clock = SystemClock{}
	}
	if o.Events == nil {
		o.Events = new(memoryLog)
	}
	if o.Removed == nil {
		o.Removed = func(string) {}
	}
	if o.HasChanges == nil {
		o.HasChanges = anyByte
	}
	if o.Disk == nil {
		o.Disk = unlimited{}
	}
	if o.Ports == nil {
		o.Ports = noPorts{}
	}
	if o.Quotas == nil {
		o.Quotas = unbounded{}
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
}

// offer is what specs are checked against.
func (o *Options) offer() Offer {
	out := Offer{
		Gate: o.Gate != nil, Images: o.Images != nil, Start: o.Startup != nil, Volumes: o.Volumes != nil,
		CPUs: o.CPUs, Memory: o.Memory,
	}
	for _, b := range o.Backends {
		out.Walls = append(out.Walls, b.Name())
	}
	slices.Sort(out.Walls)
	return out
}

// Offer returns what specs are checked against.
func (m *Manager) Offer() Offer { return m.offer }

// Close refuses further calls, interrupts those under way and waits for them:
// a Create is undone, a Stop or a Remove is brought to its end. Then it ends
// the instances that are kept warm. Sandboxes go on. It does not end Run.
func (m *Manager) Close() {
	m.ops.close()
	m.tender.drain()
}

// Get returns the record of a sandbox, the caller's own to change.
func (m *Manager) Get(_ context.Context, c Caller, ref string) (*Sandbox, error) {
	if err := m.ops.ready(c); err != nil {
		return nil, err
	}
	_, sb, err := m.registry.find(c, ref)
	if err != nil {
		return nil, err
	}
	return m.shown(c, sb), nil
}

// List returns the caller's sandboxes, and everyone's for an admin, oldest
// first.
func (m *Manager) List(_ context.Context, c Caller, f Filter) ([]*Sandbox, error) {
	if err := m.ops.ready(c); err != nil {
		return nil, err
	}
	var out []*Sandbox
	for _, sb := range m.registry.records() {
		if (c.Admin || sb.Owner == c.Owner) && f.matches(sb) {
			out = append(out, m.shown(c, sb))
		}
	}
	slices.SortFunc(out, func(a, b *Sandbox) int { return byAge(a.CreatedAt, b.CreatedAt, a.ID, b.ID) })
	return out, nil
}

func (f Filter) matches(sb *Sandbox) bool {
	for k, v := range f.Labels {
		if got, ok := sb.Spec.Labels[k]; !ok || got != v {
			return false
		}
	}
	return len(f.States) == 0 || slices.Contains(f.States, sb.State)
}

// Idle returns how many sandboxes need a daemon, and how many holds there
// are. A stopped sandbox needs none, unless it is ephemeral and yet to be
// finished; a TTL that removes one later waits for the next daemon.
func (m *Manager) Idle() (sandboxes, holds int) { return m.registry.idle() }
