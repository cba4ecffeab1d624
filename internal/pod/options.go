package pod

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func defaults(o *Options) {
	if o.Clock == nil {
		o.Clock = sandbox.SystemClock{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Token == nil {
		o.Token = func() string { return strings.ToLower(rand.Text()) }
	}
	if o.Step == nil {
		o.Step = func(Step) error { return nil }
	}
	t := &o.Times
	t.Socket = cmp.Or(t.Socket, 10*time.Second)
	t.Poll = cmp.Or(t.Poll, 50*time.Millisecond)
	t.Deliver = cmp.Or(t.Deliver, 5*time.Second)
	t.Probe = cmp.Or(t.Probe, 500*time.Millisecond)
	t.End = cmp.Or(t.End, 30*time.Second)
}

// within bounds a context by the clock. text has the time in it, and is the cause of its end.
func (r *Registry) within(ctx context.Context, d time.Duration, text string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	over := r.o.Clock.After(d)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-over:
			cancel(sandbox.Errorf(sandbox.Unavailable, "%s", fmt.Sprintf(text, d)))
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel(context.Canceled)
		watch.Wait()
	}
}

// locks are one lock for each name.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	turn chan struct{} // has room for who holds it
	want int           // who holds it or waits; guarded by locks.mu
}

// lock waits for a name's lock, and returns how to give it up.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	k := l.of(name)
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn; l.done(name) }, nil
	default:
	}
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn; l.done(name) }, nil
	case <-ctx.Done():
		l.done(name)
		return nil, context.Cause(ctx)
	}
}

// try is lock, if nobody has it.
func (l *locks) try(name string) (unlock func(), ok bool) {
	k := l.of(name)
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn; l.done(name) }, true
	default:
		l.done(name)
		return nil, false
	}
}

func (l *locks) of(name string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	k := l.held[name]
	if k == nil {
		k = &lock{turn: make(chan struct{}, 1)}
		l.held[name] = k
	}
	k.want++
	return k
}

func (l *locks) done(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.held[name]; k.want == 1 {
		delete(l.held, name)
	} else {
		k.want--
	}
}
