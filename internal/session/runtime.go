// Package session keeps sandboxes that are asked for by a key of the caller's
// choosing: it makes or reuses one, runs commands in it one after the other,
// keeps its workspace, its quota and its processes, puts it to sleep when it
// is idle, and finds all of it again after the daemon was killed.
//
// It refuses what a session can't be: another shape than it has, a directory
// of the host that is not allowed, a hard quota where there can only be a soft
// one, a wall that is not there. It never takes another wall instead, and
// never runs anything outside one.
package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// What is asked for.
type (
	Spec    = request.Session
	Command = request.Command
)

// Runtime has the sessions of all owners. An owner's do not exist for another,
// unless that is an admin, to whom they all are there; where several owners
// have a session of the same key, an admin's own comes first.
//
// Calls of different sessions never wait for each other. Of one session,
// commands run in the order in which they came; everything else goes beside
// them.
type Runtime struct {
	o     Options
	c     Config
	clock sandbox.Clock
	log   *slog.Logger

	shaper *shaper  // what a session's sandbox is to be
	quotas *quotas  // what holds workspaces to their quotas
	wall   *prober  // whether the wall can be had
	seen   *seen    // when there was a daemon last
	room   diskRoom // on the disk of sandboxes

	closing context.Context // ends calls under way, with errClosing
	close   context.CancelCauseFunc
	calls   sync.WaitGroup
	wake    chan struct{} // tells Run that something became due earlier
	opened  chan struct{} // closed by Open

	metrics counters

	mu       sync.Mutex
	closed   bool
	ahead    time.Duration // how far the clock was set forward, as far as it was followed
	sessions map[id]*session
	taken    int // places that sessions have, of Limits.MaxSessions
	running  int // managed processes, those that are being started too
}

// id is what a session is known by.
type id struct{ owner, key string }

var (
	errClosing = sandbox.Errorf(sandbox.Unavailable, "the daemon is shutting down").WithHint("try again")
	errUnread  = sandbox.Errorf(sandbox.Unavailable, "the daemon is starting").WithHint("try again")
)

// New returns a Runtime, or an error where o lacks what is required or its
// Config can't be. It touches nothing: call Open before anything else, and Run
// beside it.
func New(o Options) (*Runtime, error) {
	if o.Manager == nil || o.Store == nil {
		return nil, errors.New("new session runtime: a manager and a store are required")
	}
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	r := &Runtime{
		o: o, c: o.Config.WithDefaults(), clock: o.Clock, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		wake: make(chan struct{}, 1), opened: make(chan struct{}), sessions: map[id]*session{},
	}
	if r.o.Class == nil {
		r.o.Class = func(err error) string { return string(sandbox.KindOf(err)) }
	}
	if r.clock == nil {
		r.clock = sandbox.SystemClock{}
	}
	roots, err := hostroot.New(r.c.roots(o.Private))
	if err != nil {
		return nil, err
	}
	r.closing, r.close = context.WithCancelCause(context.Background())
	r.shaper = newShaper(o, r.c, roots, r.log)
	r.quotas = &quotas{projects: o.Projects, roots: roots, entries: r.c.Limits.MaxEntries, promised: r.promised, log: r.log}
	r.wall = &prober{check: func(ctx context.Context) error {
		return o.Manager.Check(ctx, sandbox.Spec{Isolation: r.c.Isolation})
	}, clock: r.clock}
	r.seen = &seen{dir: o.ProcessDir, clock: r.clock, watch: sandbox.NewStopwatch(r.clock), log: r.log}
	r.room.free, r.room.log = o.Room, r.log
	return r, nil
}

// now is the time as records have it.
func (r *Runtime) now() time.Time { return r.clock.Now().UTC().Round(0) }

// Roots returns the directories of the host that sessions may be shown.
func (r *Runtime) Roots() *hostroot.Roots { return r.shaper.roots }

// ImageName returns what a Spec's image means: the configured one where it names
// none.
func (r *Runtime) ImageName(name string) string { return r.shaper.imageName(name) }

// Config returns what holds, with its defaults.
func (r *Runtime) Config() Config { return r.c }

// openPatience is how long a call waits for Open, where what it asks for may
// yet turn out to be there.
const openPatience = 20 * time.Second

// awaitOpen waits until the records are read.
func (r *Runtime) awaitOpen(ctx context.Context) error {
	select {
	case <-r.opened:
		return nil
	default:
	}
	select {
	case <-r.opened:
		return nil
	case <-r.closing.Done():
		return sandbox.ErrLeaving
	case <-ctx.Done():
		return fault.Because(context.Cause(ctx), sandbox.Unavailable, "%s", errUnread.Msg).WithHint("%s", errUnread.Hint)
	case <-r.clock.After(openPatience):
		return errUnread
	}
}

// begin enters a call, which waits for Open. Its context ends with ctx or by
// Close; done must be called.
func (r *Runtime) begin(ctx context.Context, c sandbox.Caller) (_ context.Context, done func(), err error) {
	if c.Owner == "" {
		return nil, nil, sandbox.Errorf(sandbox.Denied, "unauthenticated")
	}
	if err := r.awaitOpen(ctx); err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, sandbox.ErrLeaving
	}
	r.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.closing, func() { cancel(errClosing) })
	return ctx, func() {
		stop()
		cancel(nil)
		r.calls.Done()
	}, nil
}

// Close refuses further calls, ends those under way and waits for them.
// Sessions and their processes go on.
func (r *Runtime) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.close(errClosing)
	r.calls.Wait()
	r.detachAll()
	select {
	case <-r.opened:
		r.seen.note(true)
	default: // what sleeps was not looked at
	}
}

// nudge makes Run look again.
func (r *Runtime) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

const (
	// undoTimeout bounds what must be done although a caller has gone.
	undoTimeout = 2 * time.Minute
)

func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}
