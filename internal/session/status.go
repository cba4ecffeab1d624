package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// probeFor is how long an answer about the wall holds.
const probeFor = 5 * time.Second

// prober remembers whether the configured wall can be had.
type prober struct {
	check func(ctx context.Context) error
	clock sandbox.Clock
	turn  turn // held while the wall is asked

	mu  sync.Mutex // held over nothing that takes time
	at  time.Time
	err error
}

// available reports why no sandbox can be had of the wall, or nil.
func (p *prober) available(ctx context.Context) error {
	recent := func() (error, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		since := p.clock.Now().Sub(p.at)
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
	err := p.check(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.err = p.clock.Now(), err
	return err
}

// Backend says which wall sessions are behind, and whether it can be had. The
// answer is some seconds old at most. No other wall ever takes its place.
func (r *Runtime) Backend(ctx context.Context) sessions.Backend {
	if walls := r.o.Manager.Offer().Walls; !slices.Contains(walls, r.c.Isolation) {
		return sessions.Backend{Reason: reasonOf(noWall(r.c.Isolation, walls))}
	}
	name := r.c.Isolation
	err := r.wall.available(ctx)
	return sessions.Backend{Name: &name, Available: err == nil, Reason: reasonOf(err)}
}

// noWall is the error for a wall that this machine does not have.
func noWall(wall string, walls []string) *sandbox.Error {
	return fault.Because(fault.ErrBackend, sandbox.Unsupported, "isolation %.40q: this machine does not have it", wall).
		WithHint("available: %s; carboy doctor says why", cmp.Or(strings.Join(walls, ", "), "none"))
}

// reasonOf is an error with its hint, in one line for a user.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	text := userText(err)
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return request.Written(text)
}

// Status counts sessions and processes: of the caller's own, and of all for an admin.
func (r *Runtime) Status(ctx context.Context, c sandbox.Caller) (sessions.RuntimeStatus, error) {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return sessions.RuntimeStatus{}, err
	}
	defer done()
	st := sessions.RuntimeStatus{
		Backend: r.Backend(ctx), SessionTTLSec: int(r.c.TTL() / time.Second), Limits: r.c.Limits,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.sessions {
		if !c.Admin && i.owner != c.Owner {
			continue
		}
		if s.state == awake {
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
	why := r.wall.available(ctx)
	if why == nil || sandbox.KindOf(why) == "" || ctx.Err() != nil {
		return err
	}
	return fault.Because(fault.ErrBackend, sandbox.Unavailable, "%s backend error: %.300s", r.c.Isolation, userText(why)).WithHint("carboy doctor")
}
