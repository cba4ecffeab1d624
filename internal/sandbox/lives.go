package sandbox

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"
)

// retryDelay is how long Run waits before it tries again what failed.
const retryDelay = 10 * time.Second

// lives takes sandboxes from state to state: created, running, stopping,
// stopped, removing. Its methods want the turn of the entry that they are given,
// and no lock; it has none itself.
//
// Each state is in the store before it is acted on. So after a crash settle can
// tell what was meant and bring it to its end, and what runs goes on.
type lives struct {
	*common
	store     Store
	backends  backends
	registry  *registry
	pool      *pool
	snapshots *snapshots
	gates     *gates
	startup   StartFunc
	changed   func(io.Reader) (bool, error)
}

// backends are the walls, by their names.
type backends map[string]Backend

// of returns the wall of sb.
func (b backends) of(sb *Sandbox) (Backend, error) {
	one, ok := b[sb.Backend]
	if !ok {
		return nil, Errorf(Unsupported, "sandbox %s: its wall %s is not available here", sb.Spec.Name, refText(sb.Backend))
	}
	return one, nil
}

// suspender returns what keeps the memory of sb's instance; nil: its wall can't.
func (b backends) suspender(sb *Sandbox) Suspender {
	if one := b[sb.Backend]; one != nil {
		return one.Capabilities().Suspend
	}
	return nil
}

// save writes sb to the store and makes it e's record. The turn must be held.
// After an error the record is what it was.
func (l *lives) save(ctx context.Context, e *entry, sb *Sandbox) error {
	if err := l.store.Put(ctx, sb); err != nil {
		return failure(err, sb.Spec.Name, "write its record")
	}
	l.registry.put(e, sb)
	return nil
}

// lock finds a sandbox and waits for the turn to change it. What an earlier
// operation left unfinished is ended first. The returned function gives the
// turn back.
func (l *lives) lock(ctx context.Context, c Caller, ref string) (*entry, func(), error) {
	e, err := l.registry.take(ctx, c, ref)
	if err != nil {
		return nil, nil, err
	}
	taken := true
	defer func() { // a backend that panics must not keep the turn
		if taken {
			l.registry.give(e)
		}
	}()
	if err := l.settle(ctx, e); err != nil {
		return nil, nil, err
	}
	if l.registry.record(e) == nil {
		return nil, nil, unknown(ref)
	}
	taken = false
	return e, func() { l.registry.give(e) }, nil
}

// stop takes a sandbox through stopping to stopped. The turn must be held.
func (l *lives) stop(ctx context.Context, e *entry, reason EndReason) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	sb := l.registry.record(e).Clone()
	if _, err := l.backends.of(sb); err != nil {
		return err
	}
	sb.State, sb.Ended = StateStopping, reason
	if err := l.save(ctx, e, sb); err != nil {
		return err
	}
	return l.finishStop(ctx, e)
}

// finishStop takes a sandbox from stopping to stopped.
func (l *lives) finishStop(ctx context.Context, e *entry) error {
	sb := l.registry.record(e).Clone()
	b, err := l.backends.of(sb)
	if err != nil {
		return err
	}
	l.registry.unwatch(e)
	lost, err := l.gates.end(ctx, b, sb)
	if err != nil {
		l.log.Error("stop instance", "id", sb.ID, "error", err)
		l.registry.retryLater(e)
		return failure(err, sb.Spec.Name, "stop")
	}
	if sb.Suspended = l.keptMemory(sb); sb.Suspended {
		lost = nil
	}
	sb.State, sb.Lost, sb.EndedAt = StateStopped, lost, l.now()
	if !sb.mayExpire() {
		sb.ExpiresAt = time.Time{}
	}
	if err := l.save(ctx, e, sb); err != nil {
		l.registry.retryLater(e)
		return err
	}
	l.registry.setDebt(e, gateKnows)
	l.note(ctx, sb, eventStopped, "stopped: %s%s", sb.Ended, lostText(lost))
	return nil
}

func lostText(lost []string) string {
	if len(lost) == 0 {
		return ""
	}
	return "; lost: " + strings.Join(lost, ", ")
}

// remove takes a sandbox from any state to nothing. The turn must be held.
func (l *lives) remove(ctx context.Context, e *entry) error {
	ctx, cancel := detached(ctx)
	defer cancel()
	sb := l.registry.record(e).Clone()
	b, err := l.backends.of(sb)
	if err != nil {
		return err
	}
	if sb.State != StateRemoving {
		// One that never ran was promised to nobody: where even this can't be
		// written, its record says already that it is to be removed.
		wasBuilt := sb.Starts > 0
		sb.State = StateRemoving
		if err := l.save(ctx, e, sb); err != nil && wasBuilt {
			return err
		}
	}
	l.registry.unwatch(e)
	if err := l.erase(ctx, b, sb); err != nil {
		l.log.Error("remove sandbox", "id", sb.ID, "error", err)
		l.registry.retryLater(e)
		return failure(err, sb.Spec.Name, "remove")
	}
	l.log.Info("sandbox removed", "id", sb.ID, "name", sb.Spec.Name)
	l.registry.forget(e, sb)
	l.snapshots.collect(ctx, l.registry.uses)
	return nil
}

// erase deletes all of sb: its instance first and its record last, so
// that an instance always has a record that leads to it.
func (l *lives) erase(ctx context.Context, b Backend, sb *Sandbox) error {
	if _, err := l.gates.end(ctx, b, sb); err != nil {
		return err
	}
	if err := l.gates.remove(ctx, sb); err != nil {
		return err
	}
	if err := b.Remove(ctx, sb.ID); err != nil {
		return err
	}
	if err := l.events.Forget(ctx, sb.ID); err != nil {
		l.log.Warn("forget events", "id", sb.ID, "error", err)
	}
	return l.store.Delete(ctx, sb.ID)
}

// settle ends what an operation that failed, or a daemon that died, left
// between two states. The turn must be held. A settled sandbox runs, is
// stopped or is gone.
func (l *lives) settle(ctx context.Context, e *entry) error {
	sb := l.registry.record(e)
	if sb == nil {
		return nil
	}
	switch sb.State {
	case StateCreated:
		if sb.Starts == 0 {
			return l.remove(ctx, e)
		}
		return l.stop(ctx, e, cmp.Or(sb.Ended, EndCrashed))
	case StateStopping:
		ctx, cancel := detached(ctx)
		defer cancel()
		return l.finishStop(ctx, e)
	case StateRemoving:
		return l.remove(ctx, e)
	}
	return nil
}
