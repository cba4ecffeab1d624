package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// common is what every part of a Manager works with.
type common struct {
	clock  Clock
	log    *slog.Logger
	events EventLog
	disk   Disk

	randMu sync.Mutex // held for one read alone
	rand   io.Reader
}

// now is the time as records have it: without a monotonic reading, which
// would not survive the store.
func (c *common) now() time.Time { return c.clock.Now().UTC().Round(0) }

func (c *common) random(read func(io.Reader) (string, error)) (string, error) {
	c.randMu.Lock()
	defer c.randMu.Unlock()
	s, err := read(c.rand)
	if err != nil {
		return "", &Error{Kind: Internal, Msg: "the machine has no randomness", Err: err}
	}
	return s, nil
}

// note adds an event. A log that can't be written stops nothing.
func (c *common) note(ctx context.Context, sb *Sandbox, typ, format string, args ...any) {
	ev := Event{Time: c.now(), Type: typ, Message: fmt.Sprintf(format, args...)}.bounded()
	c.log.Info("sandbox "+typ, "id", sb.ID, "name", sb.Spec.Name, "message", ev.Message)
	if err := c.events.Append(context.WithoutCancel(ctx), sb.ID, ev); err != nil {
		c.log.Warn("write event", "id", sb.ID, "error", err)
	}
}

// turn is the right to change something, which one goroutine has at a time. A
// new one is free.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn. It fails, with the cause, where ctx ends first.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { <-t }

// ErrClosing is the cause by which calls under way end when the daemon leaves.
// ErrLeaving is what their callers are told where nothing was done, or where it
// was undone: the next daemon may be asked the same.
var (
	ErrClosing = Errorf(Unavailable, "the daemon is shutting down").WithHint("try again")
	ErrLeaving = &Error{Kind: Unavailable, Msg: ErrClosing.Msg, Hint: ErrClosing.Hint, Err: ErrClosing, Again: true}
)

// undone returns what a caller is told of a call that failed by err and of which
// nothing is left.
func undone(ctx context.Context, err error) error {
	if err != nil && context.Cause(ctx) == error(ErrClosing) {
		return ErrLeaving
	}
	return err
}

// operations are the calls under way. None begins before the records are read,
// nor after Close, which waits for those that did. Its lock is never held
// together with another.
type operations struct {
	closing context.Context // ends those under way, with ErrClosing
	cancel  context.CancelCauseFunc

	mu     sync.Mutex
	loaded bool
	closed bool
	active sync.WaitGroup // grows under mu while closed is not set
}

func newOperations() *operations {
	o := new(operations)
	o.closing, o.cancel = context.WithCancelCause(context.Background())
	return o
}

// open lets calls in: the records are read.
func (o *operations) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loaded = true
}

func (o *operations) opened() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.loaded
}

// close refuses further calls, interrupts those under way and waits for them.
func (o *operations) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.cancel(ErrClosing)
	o.active.Wait()
}

// ready says why c can't be served now.
func (o *operations) ready(c Caller) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.readyLocked(c)
}

func (o *operations) readyLocked(c Caller) error {
	switch {
	case c.Owner == "" && !c.Admin:
		return Errorf(Denied, "unauthenticated")
	case o.closed:
		return ErrLeaving
	case !o.loaded:
		return Errorf(Unavailable, "the daemon is starting").WithHint("try again")
	}
	return nil
}

// begin enters an operation. Its context ends with ctx or by Close; done must
// be called.
func (o *operations) begin(ctx context.Context, c Caller) (_ context.Context, done func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.readyLocked(c); err != nil {
		return nil, nil, err
	}
	o.active.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(o.closing, func() { cancel(ErrClosing) })
	return ctx, func() {
		stop()
		cancel(nil)
		o.active.Done()
	}, nil
}

// runner has the tasks of Run, which waits for them. Its lock is taken last,
// and nothing is called with it held.
type runner struct {
	wake  chan struct{} // tells Run that something became due earlier
	tasks sync.WaitGroup

	mu  sync.Mutex
	ctx context.Context // of Run, while it runs
}

func newRunner() *runner { return &runner{wake: make(chan struct{}, 1)} }

func (r *runner) enter(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx != nil {
		return errors.New("run manager: it runs already")
	}
	r.ctx = ctx
	return nil
}

// leave sees to it that no further task is begun.
func (r *runner) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ctx = nil
}

// begin starts a task and returns what ends it, or nil where Run does not run.
func (r *runner) begin(task func(ctx context.Context)) context.CancelFunc {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(r.ctx)
	r.tasks.Go(func() {
		defer cancel()
		task(ctx)
	})
	return cancel
}

// nudge makes Run look again for what is due.
func (r *runner) nudge() { nudge(r.wake) }

// nudge wakes who waits for c, once for many.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
