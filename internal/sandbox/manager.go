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
	"sync"
	"time"
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

	// Images has the images that a Spec may name; nil: there is only
	// DefaultImage.
	Images Images

	// Volumes has the volumes that a Spec may mount; nil: there are none.
	Volumes Volumes

	// Snapshots keeps what sandboxes wrote, for others to start from; nil: nothing
	// is kept.
	Snapshots Snapshots

	// Gate has the gates of sandboxes with a network; nil: there can be none.
	Gate Gate

	// Startup runs what a Spec wants run at each start; nil: nothing can be.
	Startup StartFunc

	// Pool says what is kept warm, by those backends that are a Warmer.
	Pool Pool

	// Quotas says what each owner may have; nil: as much as the machine has.
	Quotas Quotas

	// HasChanges reads what Backend.Changes wrote and reports whether that
	// is any change; it need not read to the end. Default: any byte is one.
	HasChanges func(r io.Reader) (bool, error)
}

// Caller is who asks. Others' sandboxes don't exist for a caller that is no
// admin.
type Caller struct {
	Owner string // "uid:1000", or "key:ID"
	Admin bool
}

// Filter selects sandboxes. The zero value selects all.
type Filter struct {
	Labels map[string]string // each must be there with that value
	States []State           // any of them; none means all
}

// Manager carries sandboxes from created to removed. It is the only writer of
// its Store, of which it holds every record in memory.
//
// Each change of state is written to the store before it is acted on, so
// that after a kill at any moment Adopt can tell what was meant and end it.
// Changes of one sandbox wait for each other; those of different ones never
// do. Methods that name a sandbox take its ID or its name.
type Manager struct {
	store    Store
	backends map[string]Backend
	offer    Offer
	clock    Clock
	log      *slog.Logger
	events   EventLog
	gate     Gate
	changed  func(io.Reader) (bool, error)
	quotas   Quotas
	startup  StartFunc

	imageStore Images
	images     chan struct{} // holds a token of whoever works on the set of images
	volumes    volumePins

	snapshots    Snapshots
	snapshotTurn chan struct{} // holds a token of whoever changes the records of snapshots

	pool warmPool

	randMu sync.Mutex
	rand   io.Reader

	wake    chan struct{}   // tells Run that something became due earlier
	closing context.Context // ends operations under way, with errClosing
	close   context.CancelCauseFunc
	ops     sync.WaitGroup // operations under way
	tasks   sync.WaitGroup // Run's goroutines

	mu      sync.Mutex
	loaded  bool
	closed  bool
	runCtx  context.Context // of Run, while it runs: to end its watchers
	entries map[string]*entry
	names   map[nameKey]string  // to IDs
	saved   map[string]Snapshot // all there are, removed ones too
	saving  map[string]int      // being made, by owner

	draining bool
	counts   Counts
}

type nameKey struct{ owner, name string }

// entry is one sandbox in memory.
type entry struct {
	id   string
	turn chan struct{} // holds one token; whoever took it may change the sandbox
	// image is the Spec's, which is in use for as long as this is an entry.
	image string
	// snapshot is the Spec's, likewise.
	snapshot string
	// volumes are the IDs of those that the Spec mounts, in use for as long.
	volumes []string
	// warm is the instance that was kept warm for nobody, and that is about to
	// become this sandbox's. Only the holder of the turn looks at it.
	warm *warmInstance
	// values are those of secrets that came with the Spec, until the gate has
	// them. Only the holder of the turn looks at them.
	values map[string]string

	// Guarded by Manager.mu. The record is never changed, only replaced, and
	// that by the holder of the turn.
	sb      *Sandbox // nil before its first Put and after its removal
	holds   int
	waking  bool      // it is stopped, and about to be started
	orphan  time.Time // when an ephemeral one without holds is finished
	retry   time.Time // when Run tries again what failed; zero: nothing did
	debt    gateDebt  // what its gate could not be told
	reaping bool      // Run has a goroutine on it
	ending  bool      // it is being finished: too late to hold it
	moved   *entry    // what the sandbox goes on as: see renew
	unwatch context.CancelFunc
}

var errClosing = Errorf(Unavailable, "the daemon is shutting down").WithHint("try again")

// NewManager returns a Manager, or an error where opts lack what is required.
// It touches nothing: call Adopt before anything else, and Run beside it.
func NewManager(opts Options) (*Manager, error) {
	if opts.Store == nil || len(opts.Backends) == 0 {
		return nil, errors.New("new manager: a store and a backend are required")
	}
	if opts.Pool.Size < 0 || opts.Pool.Memory < 0 {
		return nil, errors.New("new manager: a pool can't be smaller than nothing")
	}
	m := &Manager{
		store:    opts.Store,
		backends: make(map[string]Backend),
		offer:    Offer{Gate: opts.Gate != nil, Images: opts.Images != nil, Start: opts.Startup != nil, Volumes: opts.Volumes != nil, CPUs: opts.CPUs, Memory: opts.Memory},
		clock:    opts.Clock,
		log:      cmp.Or(opts.Log, slog.New(slog.DiscardHandler)),
		events:   opts.Events,
		gate:     opts.Gate,
		changed:  opts.HasChanges,
		quotas:   opts.Quotas,
		startup:  opts.Startup,
		rand:     opts.Rand,

		imageStore: opts.Images,
		images:     make(chan struct{}, 1),
		volumes:    volumePins{store: opts.Volumes, turn: make(chan struct{}, 1)},

		snapshots:    opts.Snapshots,
		snapshotTurn: make(chan struct{}, 1),

		wake:    make(chan struct{}, 1),
		entries: make(map[string]*entry),
		names:   make(map[nameKey]string),
		saved:   make(map[string]Snapshot),
		saving:  make(map[string]int),
	}
	m.closing, m.close = context.WithCancelCause(context.Background())
	for _, b := range opts.Backends {
		name := b.Name()
		if _, ok := m.backends[name]; ok {
			return nil, fmt.Errorf("new manager: two backends are named %s", name)
		}
		m.backends[name] = b
		m.offer.Walls = append(m.offer.Walls, name)
	}
	slices.Sort(m.offer.Walls)
	m.pool = newPool(opts)
	if m.offer.CPUs == 0 {
		m.offer.CPUs = float64(runtime.GOMAXPROCS(0))
	}
	if m.clock == nil {
		m.clock = SystemClock{}
	}
	if m.events == nil {
		m.events = new(memoryLog)
	}
	if m.changed == nil {
		m.changed = anyByte
	}
	if m.quotas == nil {
		m.quotas = unbounded{}
	}
	if m.rand == nil {
		m.rand = rand.Reader
	}
	if key, ok := kindOf(DefaultIsolation, Spec{}.Normalize(m.offer)); ok {
		m.pool.keepDefault(key, Spec{}.Normalize(m.offer))
	}
	return m, nil
}

// now is the time as records have it: without a monotonic reading, which
// would not survive the store.
func (m *Manager) now() time.Time { return m.clock.Now().UTC().Round(0) }

// Offer returns what specs are checked against.
func (m *Manager) Offer() Offer { return m.offer }

// Close refuses further calls, interrupts those under way and waits for them:
// a Create is undone, a Stop or a Remove is brought to its end. Then it ends
// the instances that are kept warm. Sandboxes go on. It does not end Run.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.close(errClosing)
	m.ops.Wait()
	m.drain()
}

// begin enters an operation. Its context ends with ctx or by Close; done must
// be called.
func (m *Manager) begin(ctx context.Context, c Caller) (_ context.Context, done func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readyLocked(c); err != nil {
		return nil, nil, err
	}
	m.ops.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.closing, func() { cancel(errClosing) })
	return ctx, func() {
		stop()
		cancel(nil)
		m.ops.Done()
	}, nil
}

func (m *Manager) readyLocked(c Caller) error {
	switch {
	case c.Owner == "" && !c.Admin:
		return Errorf(Denied, "nobody is asking")
	case m.closed:
		return errClosing
	case !m.loaded:
		return Errorf(Unavailable, "the daemon is starting").WithHint("try again")
	}
	return nil
}

// Get returns the record of a sandbox, the caller's own to change.
func (m *Manager) Get(_ context.Context, c Caller, ref string) (*Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readyLocked(c); err != nil {
		return nil, err
	}
	e, err := m.findLocked(c, ref)
	if err != nil {
		return nil, err
	}
	return e.sb.Clone(), nil
}

// List returns the caller's sandboxes, and everyone's for an admin, oldest
// first.
func (m *Manager) List(_ context.Context, c Caller, f Filter) ([]*Sandbox, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.readyLocked(c); err != nil {
		return nil, err
	}
	var out []*Sandbox
	for _, e := range m.entries {
		if e.sb != nil && (c.Admin || e.sb.Owner == c.Owner) && f.matches(e.sb) {
			out = append(out, e.sb.Clone())
		}
	}
	slices.SortFunc(out, func(a, b *Sandbox) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
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
func (m *Manager) Idle() (sandboxes, holds int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		holds += e.holds
		if e.sb == nil || e.sb.State != StateStopped || e.sb.Spec.Ephemeral {
			sandboxes++
		}
	}
	return sandboxes, holds
}

// save writes sb to the store and makes it e's record. The turn must be held.
// After an error the record is what it was.
func (m *Manager) save(ctx context.Context, e *entry, sb *Sandbox) error {
	if err := m.store.Put(ctx, sb); err != nil {
		return failure(err, sb.Spec.Name, "write its record")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var before State
	if e.sb != nil {
		before = e.sb.State
	}
	e.sb = sb
	e.retry = time.Time{}
	m.armLocked(e)
	m.changedLocked(sb.Owner, before, sb.State)
	return nil
}

// armLocked starts the grace of an ephemeral sandbox that nobody holds.
func (m *Manager) armLocked(e *entry) {
	switch {
	case !e.sb.Spec.Ephemeral || e.holds > 0:
		e.orphan = time.Time{}
	case e.orphan.IsZero():
		e.orphan = m.now().Add(OrphanGrace)
	}
}

// note adds an event. A log that can't be written stops nothing.
func (m *Manager) note(ctx context.Context, sb *Sandbox, typ, format string, args ...any) {
	ev := Event{Time: m.now(), Type: typ, Message: fmt.Sprintf(format, args...)}.bounded()
	m.log.Info("sandbox "+typ, "id", sb.ID, "name", sb.Spec.Name, "message", ev.Message)
	if err := m.events.Append(context.WithoutCancel(ctx), sb.ID, ev); err != nil {
		m.log.Warn("write event", "id", sb.ID, "error", err)
	}
}

// failure makes err one that a user may read: what is an Error stays one, an
// interruption says so, and the text of anything else is for the log.
func failure(err error, ref, doing string) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	what := "new sandbox"
	if ref != "" {
		what = "sandbox " + refText(ref)
	}
	e := Errorf(Internal, "%s: could not %s", what, doing).WithHint("the daemon's log says why")
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e = Errorf(Unavailable, "%s: interrupted while trying to %s", what, doing).WithHint("try again")
	}
	if d, ok := errors.AsType[*Error](DiskError(err, fmt.Sprintf("%s: could not %s: the disk of carboy's state", what, doing))); ok {
		return d
	}
	e.Err = err
	return e
}
