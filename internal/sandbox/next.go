package sandbox

import (
	"cmp"
	"context"
	"slices"
)

// whyLink is why a network can't come to an instance that runs.
const whyLink = "it was started without a network, and a link is made with its instance"

// whyAway is why what has no instance, but the memory of one, is not changed.
const whyAway = "it goes on from its memory as it was, and then gets it"

// whyDisk is why a disk does not grow at once.
const whyDisk = "its disk is grown while nothing has it mounted"

// takeNext makes what is next sb's own, but for its disk, which is to be grown
// first.
func (sb *Sandbox) takeNext() {
	n := sb.Next
	size := n.Disk
	n.Disk = 0
	sb.Spec.Limits = n.limits(sb.Spec.Limits)
	if n.Network != "" {
		sb.Spec.Network, sb.Spec.Policy = n.Network, n.Policy
	}
	sb.Next = &Next{Disk: size, Why: n.Why}
}

// dropNext forgets of what is next what sb has already, and says why the rest does
// not hold yet.
func (sb *Sandbox) dropNext() {
	n, l := sb.Next, sb.Spec.Limits
	if n == nil {
		return
	}
	clear0(&n.CPUs, l.CPUs)
	clear0(&n.Memory, l.Memory)
	clear0(&n.PIDs, l.PIDs)
	clear0(&n.Disk, l.Disk)
	if n.isNothing() {
		sb.Next = nil
		return
	}
	why := map[string]string{}
	explain := func(name string, isNext bool, text string) {
		if isNext {
			why[name] = cmp.Or(n.Why[name], text)
		}
	}
	explain(LimitCPUs, n.CPUs != 0, whyAway)
	explain(LimitMemory, n.Memory != 0, whyAway)
	explain(LimitPIDs, n.PIDs != 0, whyAway)
	explain(LimitDisk, n.Disk != 0, whyDisk)
	explain("network", n.Network != "", whyLink)
	n.Why = why
}

func clear0[T int64 | float64](p *T, has T) {
	if *p == has {
		*p = 0
	}
}

// act does of what is next what can be done now, and tells a gate where policy is
// set. It returns what does not follow yet of what was changed. The turn must be
// held.
func (l *lives) act(ctx context.Context, e *entry, policy bool) (notes map[string]string, err error) {
	if policy && l.registry.record(e).State == StateRunning { // first: it may be narrower
		if err = l.tellGate(ctx, e, gateSet); err != nil {
			err = failure(err, l.registry.record(e).Spec.Name, "tell its gate of the policy yet, and will try again")
		}
	}
	notes, nerr := l.applyNext(ctx, e)
	return notes, cmp.Or(err, nerr)
}

// applyNext gives a running instance the limits that are next, as far as its wall
// can, and writes down which it has. The turn must be held. It may be called again
// for the same, as it is where a daemon was killed meanwhile.
func (l *lives) applyNext(ctx context.Context, e *entry) (notes map[string]string, err error) {
	sb := l.registry.record(e).Clone()
	if sb.Next == nil || sb.State != StateRunning {
		return nil, nil
	}
	b, err := l.backends.of(sb)
	if err != nil {
		return nil, err
	}
	to := sb.Next.limits(sb.Spec.Limits)
	to.Disk = sb.Spec.Limits.Disk
	r := b.Capabilities().Resize
	done := Resized{Later: map[string]string{}}
	switch {
	case r != nil && (sb.Next.CPUs != 0 || sb.Next.Memory != 0 || sb.Next.PIDs != 0):
		done = r.Resize(ctx, sb, to)
	case r == nil:
		for _, name := range limitNames {
			done.Later[name] = "its wall changes no limits of what runs"
		}
	}
	sb.resized(done)
	sb.reportLimits(ctx, b)
	return done.Notes, l.save(ctx, e, sb)
}

// resized makes the limits that an instance was given sb's own.
func (sb *Sandbox) resized(done Resized) {
	n := sb.Next
	if n.Why == nil {
		n.Why = map[string]string{}
	}
	now := Next{CPUs: n.CPUs, Memory: n.Memory, PIDs: n.PIDs}
	later := func(name string) bool {
		why, ok := done.Later[name]
		if ok {
			n.Why[name] = why
		} else {
			delete(n.Why, name)
		}
		return ok
	}
	if later(LimitCPUs) {
		now.CPUs = 0
	}
	if later(LimitMemory) {
		now.Memory = 0
	}
	if later(LimitPIDs) {
		now.PIDs = 0
	}
	sb.Spec.Limits = now.limits(sb.Spec.Limits)
	sb.dropNext()
}

// reportLimits brings what is said of how limits are kept up to date.
func (sb *Sandbox) reportLimits(ctx context.Context, b Backend) {
	list, err := b.Check(ctx, sb.Spec)
	if err != nil {
		return // it was checked before: what was said of it stays
	}
	for _, e := range list {
		i := slices.IndexFunc(sb.Enforced, func(old Enforcement) bool { return old.Promise == e.Promise })
		if i >= 0 && slices.Contains(limitNames, e.Promise) {
			sb.Enforced[i] = e
		}
	}
}

// beginNext makes what is next sb's own before its instance is started, its disk
// too. A disk that can't be grown now stays as it is, and is tried again at the start
// after this. One that goes on from its memory is as it was.
func (l *lives) beginNext(ctx context.Context, b Backend, sb *Sandbox) {
	if sb.Next == nil || sb.Suspended {
		return
	}
	sb.takeNext()
	if r, n := b.Capabilities().Resize, sb.Next; r != nil && n.Disk != 0 {
		to := n.limits(sb.Spec.Limits)
		is, err := r.Grow(ctx, sb.ID, sb.Spec.Limits, to)
		if err == nil {
			is.Explicit = to.Explicit
			sb.Spec.Limits, n.Disk = is, 0
		} else {
			l.log.Warn("grow the disk of a sandbox", "id", sb.ID, "error", err)
			l.note(ctx, sb, EventError, "its disk could not be made larger yet: %s", userText(err))
			n.Why = map[string]string{LimitDisk: userText(err)}
		}
	}
	if sb.Next.Disk == 0 {
		sb.Next = nil
	}
}
