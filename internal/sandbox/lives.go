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
	ports     Ports
	changed   func(io.Reader) (bool, error)
	removed   func(owner string)
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
	l.gates.keepAsked(ctx, b, sb)
	l.ports.Close(sb.ID)
	lost, err := l.end(ctx, b, sb)
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
	l.ports.Close(sb.ID)
	if err := l.erase(ctx, b, sb); err != nil {
		l.log.Error("remove sandbox", "id", sb.ID, "error", err)
		l.registry.retryLater(e)
		return failure(err, sb.Spec.Name, "remove")
	}
	l.log.Info("sandbox removed", "id", sb.ID, "name", sb.Spec.Name)
	l.registry.forget(e, sb)
	l.removed(sb.Owner)
	l.snapshots.collect(ctx, l.registry.uses)
	return nil
}

// heldLimit bounds the end of an instance whose writes wait for room: its processes may
// not end before there is some.
const heldLimit = 5 * time.Second

// end ends the instance of a sandbox that is being stopped. What it has written already
// may use some of what is kept free; where that is not enough, it ends later.
func (l *lives) end(ctx context.Context, b Backend, sb *Sandbox) ([]string, error) {
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	go l.limitHeld(short, cancel, sb.ID)
	lost, err := l.gates.end(short, b, sb)
	if err == nil || short.Err() == nil || ctx.Err() != nil {
		return lost, err
	}
	_, at := l.disk.Room()
	return nil, Errorf(Exhausted, "sandbox %s: %s is full, and it ends when what it wrote last has room there", sb.Spec.Name, diskAt(sb.Owner, at)).
		WithHint("free some space there; carboy rm -f %s removes it as it is", sb.Spec.Name)
}

// limitHeld calls cancel once an instance has been held for heldLimit, unless ctx ends.
func (l *lives) limitHeld(ctx context.Context, cancel func(), id string) {
	var since time.Duration
	for look := time.NewTicker(heldLook); ; {
		if _, held := l.disk.Held(id); !held {
			since = 0
		} else {
			if err := l.disk.Drain(ctx, id); since == 0 && err != nil {
				l.log.Warn("give a disk what is kept free", "id", id, "error", err)
			}
			if since += heldLook; since > heldLimit {
				cancel()
			}
		}
		select {
		case <-ctx.Done():
			look.Stop()
			return
		case <-look.C:
		}
	}
}

// heldLook is the time between two looks whether an instance that is ended is held.
const heldLook = 500 * time.Millisecond

// erase deletes all of sb: its instance first and its record last, so
// that an instance always has a record that leads to it.
func (l *lives) erase(ctx context.Context, b Backend, sb *Sandbox) error {
	if err := l.disk.Drop(ctx, sb.ID); err != nil {
		l.log.Warn("give up a disk that is to be removed", "id", sb.ID, "error", err)
	}
	if _, err := l.gates.end(ctx, b, sb); err != nil {
		return err
	}
	l.gates.keepLog(ctx, sb)
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
