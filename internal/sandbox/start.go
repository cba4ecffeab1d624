package sandbox

import (
	"context"
	"errors"
	"net"
	"time"
)

// claimTimeout is how long a warm instance may take to become somebody's, before
// a new one is started instead.
const claimTimeout = 5 * time.Second

// errClaim is why an instance has to be started after all.
var errClaim = errors.New("claim a warm instance")

// boot starts the instance of a sandbox in state created and takes it to running.
// After an error the instance may be there still: the caller ends it.
func (l *lives) boot(ctx context.Context, e *entry, b Backend) error {
	sb := l.registry.record(e).Clone()
	wasWarm := e.warm != nil
	begun := sb.Clone()
	defer func() { e.values = nil }()
	begun.TrafficToken = "" // no instance needs it
	resuming, asked := sb.Suspended, ctx
	if resuming { // its memory is used up by that: it goes on although nobody waits
		var cancel context.CancelFunc
		ctx, cancel = detached(ctx)
		defer cancel()
	}
	enforced, lost, err := l.start(ctx, e, b, begun)
	if errors.Is(err, errClaim) {
		l.log.Warn("claim a warm instance", "id", sb.ID, "error", err)
		return err
	}
	if err == nil && (!resuming || lost != nil) {
		ctx = asked // there is no memory, and a startup may take longer than what is detached
		err = l.runStartup(ctx, b, sb)
	}
	if err == nil && sb.Starts == 0 {
		sb.Spec.Agent, err = l.setUp(ctx, e, b, begun)
	}
	if err == nil {
		// A caller who left while it started was told of a failure.
		err = context.Cause(ctx)
	}
	if err != nil {
		l.log.Warn("start instance", "id", sb.ID, "error", err)
		return failure(err, sb.Spec.Name, "start")
	}
	sb.State, sb.Enforced = StateRunning, withLock(enforced, sb.Access)
	sb.Ended, sb.EndedAt, sb.Lost, sb.Suspended = "", time.Time{}, lost, false
	sb.StartedAt = l.now()
	sb.Starts++
	sb.ExpiresAt = expiry(sb.StartedAt, sb.Spec.TTL)
	if err := l.save(ctx, e, sb); err != nil {
		return err
	}
	l.noteStart(ctx, sb, wasWarm, resuming)
	if sb.Starts > 1 { // at the first they are claimed before
		l.openPorts(ctx, sb)
	}
	l.watch(e)
	return nil
}

// noteStart says how sb came to run.
func (l *lives) noteStart(ctx context.Context, sb *Sandbox, wasWarm, resuming bool) {
	switch {
	case wasWarm:
		l.note(ctx, sb, eventStarted, "started, in a sandbox that was kept warm")
	case sb.Starts == 1:
		l.note(ctx, sb, eventStarted, "started")
	case resuming && sb.Lost == nil:
		l.note(ctx, sb, eventStarted, "went on from its memory, started %d times in all", sb.Starts)
	case resuming:
		l.note(ctx, sb, EventError, "its memory could not be used%s; started again, %d times in all", lossText(sb.Lost), sb.Starts)
	default:
		l.note(ctx, sb, eventStarted, "started again, %d times in all", sb.Starts)
	}
}

func expiry(from time.Time, ttl time.Duration) time.Time {
	if ttl == 0 {
		return time.Time{}
	}
	return from.Add(ttl)
}

// restart takes a stopped sandbox to running, or back to stopped.
func (l *lives) restart(ctx context.Context, e *entry) error {
	sb := l.registry.record(e).Clone()
	b, err := l.backends.of(sb)
	if err != nil {
		return err
	}
	if err := l.room(sb.Owner, "start sandbox "+sb.Spec.Name, startRoom); err != nil {
		return err
	}
	awake, err := l.registry.rouse(e)
	if err != nil {
		return err
	}
	defer awake()
	defer l.pool.starting()()
	l.beginNext(ctx, b, sb)
	if !sb.Suspended {
		if err := l.registry.assignSlots(e, &sb.Spec); err != nil {
			return err
		}
	}
	sb.State = StateCreated
	if err := l.save(ctx, e, sb); err != nil {
		return err
	}
	err = l.boot(ctx, e, b)
	if err == nil {
		_, err = l.applyNext(ctx, e) // what goes on from its memory has the limits of before
		return err
	}
	l.note(ctx, sb, EventError, "could not be started: %s", userText(err))
	undo, cancel := detached(ctx)
	defer cancel()
	if uerr := l.settle(undo, e); uerr != nil {
		l.log.Error("undo a failed start", "id", e.id, "cause", err, "error", uerr)
		l.registry.retryLater(e)
		return err
	}
	return undone(ctx, err)
}

// start starts the instance of sb, from its memory where it has any, or claims the
// one that was kept warm for it. It says what was lost by that. After errClaim
// the warm one must be given up, by renew.
func (l *lives) start(ctx context.Context, e *entry, b Backend, sb *Sandbox) (_ []Enforcement, lost []string, err error) {
	if e.warm == nil {
		return l.resume(ctx, b, sb, e.values)
	}
	enforced, err := l.claim(ctx, e, sb)
	return enforced, nil, err
}

func (l *lives) claim(ctx context.Context, e *entry, sb *Sandbox) ([]Enforcement, error) {
	limited, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	enforced, err := l.pool.warmers[sb.Backend].Claim(limited, sb)
	if err == nil {
		l.pool.claimed(e.warm.key, true)
		e.warm = nil
		return enforced, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	l.pool.claimed(e.warm.key, false)
	return nil, errors.Join(errClaim, err)
}

// renew gives a sandbox that is being created another ID and other tokens:
// what it had are those of a warm instance that can't be claimed, and that may know
// them. The instance loses its record and goes back to the pool, to be ended. It
// returns the new entry, and its turn with it; those who wait for the turn of e,
// or hold e, go on with the new one. After an error e is as it was.
func (l *lives) renew(ctx context.Context, e *entry) (*entry, *Sandbox, error) {
	sb := l.registry.record(e).Clone()
	old := sb.ID
	var err error
	if sb.ID, err = l.random(NewID); err != nil {
		return nil, nil, err
	}
	if err = l.makeTokens(sb); err != nil {
		return nil, nil, err
	}
	if err := l.store.Delete(ctx, old); err != nil {
		return nil, nil, failure(err, sb.Spec.Name, "write its record")
	}
	if err := l.events.Forget(ctx, old); err != nil {
		l.log.Warn("forget events", "id", old, "error", err)
	}
	next, err := l.registry.moveOn(e, sb)
	if err != nil {
		return nil, nil, err
	}
	return next, sb, nil
}

// runStartup runs what is to be run at a start, in an instance that was just
// started.
func (l *lives) runStartup(ctx context.Context, b Backend, sb *Sandbox) error {
	s := sb.Spec.Startup
	if s == nil || s.Command == "" && s.Ready == "" {
		return nil
	}
	limit := s.Timeout
	if limit == 0 {
		limit = defaultStartupTimeout
	}
	late := Errorf(Unavailable, "sandbox %s: its start command was not ready within %v", refText(sb.Spec.Name), limit).
		WithHint("give it more time, or mend its ready command")
	limited, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := l.startup(limited, sb, func(ctx context.Context) (net.Conn, error) { return b.Dial(ctx, sb.ID, GuestPort) })
	if _, ok := errors.AsType[*Error](err); !ok && err != nil && ctx.Err() == nil && limited.Err() != nil {
		return late
	}
	return err
}
