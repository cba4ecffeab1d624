package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// probeFor is how long an answer about the wall holds.
const probeFor = 5 * time.Second

// probe remembers whether the wall can be had.
type probe struct {
	turn turn // whoever asks the wall

	mu  sync.Mutex
	at  time.Time
	err error
}

// available reports why no sandbox can be had of the configured wall, or nil.
func (r *Runtime) available(ctx context.Context) error {
	p := &r.probe
	recent := func() (error, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		since := r.clock.Now().Sub(p.at)
		return p.err, !p.at.IsZero() && since >= 0 && since < probeFor
	}
	if err, ok := recent(); ok {
		return err
	}
	if !p.turn.take(ctx, nil) {
		return context.Cause(ctx)
	}
	defer p.turn.give()
	if err, ok := recent(); ok {
		return err
	}
	err := r.o.Manager.Check(ctx, sandbox.Spec{Isolation: r.c.Isolation})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.err = r.clock.Now(), err
	return err
}

// Backend says which wall sessions are behind, and whether it can be had. The
// answer is some seconds old at most. No other wall ever takes its place.
func (r *Runtime) Backend(ctx context.Context) box.Backend {
	if !slices.Contains(r.o.Manager.Offer().Walls, r.c.Isolation) {
		return box.Backend{}
	}
	name := r.c.Isolation
	return box.Backend{Name: &name, Available: r.available(ctx) == nil}
}

// Status says what there is: of the caller's own, and of all for an admin.
func (r *Runtime) Status(ctx context.Context, c sandbox.Caller) (box.RuntimeStatus, error) {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return box.RuntimeStatus{}, err
	}
	defer done()
	st := box.RuntimeStatus{
		Backend: r.Backend(ctx), SessionTTLSec: int(r.c.TTL() / time.Second), Limits: r.c.Limits,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.sessions {
		if !c.Admin && i.owner != c.Owner {
			continue
		}
		if s.rec.State == record.Live {
			st.ActiveSessions++
		}
		for _, m := range s.procs {
			if m.alive() {
				st.Processes++
			}
		}
	}
	return st, nil
}

// alive reports whether a process runs, or is about to. Runtime.mu must be held.
func (m *managed) alive() bool { return m.ended.IsZero() }

// explain makes an error of the Manager one of sessions: where its wall can't be
// had at all, that is what is said.
func (r *Runtime) explain(err error) error {
	switch sandbox.KindOf(err) {
	case sandbox.Unsupported, sandbox.Unavailable, sandbox.Internal:
	default:
		return err
	}
	ctx, cancel := context.WithTimeout(r.closing, probeFor)
	defer cancel()
	why := r.available(ctx)
	if why == nil || sandbox.KindOf(why) == "" || ctx.Err() != nil {
		return err
	}
	return fail(ErrBackend, sandbox.Unavailable, "%s backend error: %.300s", r.c.Isolation, userText(why)).WithHint("carboy doctor")
}
