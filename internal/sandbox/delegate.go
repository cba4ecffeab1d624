package sandbox

import (
	"context"
	"slices"
)

// Delegation is what can be written to of a workspace that pods share.
type Delegation struct {
	Access AccessList
	// Held keeps users from locking and unlocking the workspace: what others have of it is not theirs to say.
	Held bool
	// EndWriters ends what is in the way, where something is to be locked.
	EndWriters bool
}

// Delegate has what can be written to of a sandbox's workspace be what pods leave to it, or gave it. Otherwise it is as
// LockWorkspace, and says what it ended. Where nothing is new, nothing is done.
func (m *Manager) Delegate(ctx context.Context, c Caller, ref string, d Delegation) (ended []Writer, err error) {
	_, err = m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		ended, err = m.lives.delegate(ctx, e, d)
		return err
	})
	return ended, err
}

func (l *lives) delegate(ctx context.Context, e *entry, d Delegation) ([]Writer, error) {
	before := l.registry.record(e)
	if before.Delegated == d.Held && slices.Equal(before.Access, d.Access) {
		return nil, nil
	}
	if !before.Delegated && len(before.Access) > 0 && d.Held {
		return nil, Errorf(Conflict, "sandbox %s: its workspace is locked: %s", before.Spec.Name, before.Access).
			WithHint("carboy workspace unlock %s", before.Spec.Name)
	}
	if len(d.Access) > maxAccess {
		return nil, Errorf(Exhausted, "sandbox %s: what it can write to has %d parts: at most %d", before.Spec.Name, len(d.Access), maxAccess)
	}
	locker, err := l.lockerOf(before)
	if err != nil {
		return nil, err
	}
	next := before.locked(d.Access)
	next.Delegated = d.Held
	out, err := l.setAccess(ctx, e, locker, next, d.EndWriters)
	if err != nil || out.Busy {
		return nil, notDelegated(err, before.Spec.Name, out)
	}
	l.note(ctx, before, eventSet, "pods share its workspace: locked is %s", orNothing(d.Access))
	for _, w := range out.Ended {
		l.note(ctx, before, eventSet, "ended %s", w)
	}
	return out.Ended, nil
}

func notDelegated(err error, name string, out LockOutcome) error {
	if err != nil {
		return failure(err, name, "change what it can write to")
	}
	busy := Errorf(Conflict, "sandbox %s: its workspace is in use%s", name, writersText(out.InWay))
	if linked(out) {
		return busy.WithHint(linkedHint)
	}
	return busy.WithHint("end that first, or have it ended: --end-writers")
}

func orNothing(l AccessList) string {
	if len(l) == 0 {
		return "nothing"
	}
	return l.String()
}
