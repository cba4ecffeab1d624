package sandbox

import (
	"fmt"
	"time"
)

// quotaRetry is after how long it is worth asking again for a sandbox where
// an owner has as many as it may.
const quotaRetry = 5 * time.Second

// Quota bounds what one owner may have. What is zero is not bounded.
type Quota struct {
	Sandboxes    int           // not stopped, at the same time
	CPUs         float64       // of each sandbox
	Memory, Disk int64         // of each sandbox, in bytes
	TTL          time.Duration // of each sandbox: then none is without an end
	Snapshots    int           // that are kept, and being made
	Floor        Floor         // of each sandbox
}

// Quotas says what owners may have, and is told what they do have. Its methods
// are called with locks of the Manager held: they must be quick, and not call it.
type Quotas interface {
	// Quota returns what bounds an owner.
	Quota(owner string) Quota
	// Admit takes one new sandbox out of what the owner may create, or fails
	// with Exhausted.
	Admit(owner string, now time.Time) error
	// Changed tells how many sandboxes of an owner run, and whether one of them
	// was just started.
	Changed(owner string, running int, started bool, now time.Time)
}

// unbounded are the Quotas of a Manager that was given none.
type unbounded struct{}

func (unbounded) Quota(string) Quota                   { return Quota{} }
func (unbounded) Admit(string, time.Time) error        { return nil }
func (unbounded) Changed(string, int, bool, time.Time) {}

// Quota returns what bounds an owner.
func (m *Manager) Quota(owner string) Quota { return m.quotas.Quota(owner) }

// Counts tell what a Manager did since it was made.
type Counts struct {
	Creates, Failures uint64 // creates that succeeded, and that failed on the machine
	Starting          int    // sandboxes that are being started now
}

// Counts returns them.
func (m *Manager) Counts() Counts {
	return Counts{Creates: m.creates.Load(), Failures: m.failures.Load(), Starting: m.pool.underWay()}
}

// Drain makes the Manager refuse every create and start, or ends that. What
// runs goes on.
func (m *Manager) Drain(drain bool) { m.registry.drain(drain) }

// clamp lowers the limits that nobody asked for to what one sandbox may have.
func (q Quota) clamp(l Limits) Limits {
	if q.CPUs > 0 && !l.Explicit[LimitCPUs] {
		l.CPUs = min(l.CPUs, q.CPUs)
	}
	if q.Memory > 0 && !l.Explicit[LimitMemory] {
		l.Memory = min(l.Memory, q.Memory)
	}
	if q.Disk > 0 && q.Disk < l.Disk && !l.Explicit[LimitDisk] {
		l.Disk = q.Disk
		if !l.Explicit[LimitInodes] {
			l.Inodes = min(l.Inodes, max(l.Disk/bytesPerInode, MinInodes))
		}
	}
	return l
}

// allows refuses a spec that asks for more than each sandbox may have.
func (q Quota) allows(s Spec) error {
	over := func(what, most string) error {
		return Errorf(Invalid, "%s: more than this owner's sandboxes may have, which is %s", what, most).
			WithHint("ask for less, or for a larger limit")
	}
	switch {
	case q.CPUs > 0 && s.Limits.CPUs > q.CPUs:
		return over(LimitCPUs, fmt.Sprintf("%g", q.CPUs))
	case q.Memory > 0 && s.Limits.Memory > q.Memory:
		return over(LimitMemory, fmt.Sprintf("%d bytes", q.Memory))
	case q.Disk > 0 && s.Limits.Disk > q.Disk:
		return over(LimitDisk, fmt.Sprintf("%d bytes", q.Disk))
	}
	return q.allowsTTL(s.TTL)
}

func (q Quota) allowsTTL(ttl time.Duration) error {
	if q.TTL > 0 && (ttl == 0 || ttl > q.TTL) {
		return Errorf(Invalid, "timeout: this owner's sandboxes may last for %v at most", q.TTL).
			WithHint("give a timeout of at most %d seconds", int64(q.TTL.Seconds()))
	}
	return nil
}

// drain makes the registry admit nobody, or ends that.
func (r *registry) drain(drain bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = drain
}

// admitLocked refuses one more running sandbox, and for a new one takes it out
// of what the owner may create. The caller enters the sandbox, or marks
// it as waking, before it gives up mu: so no two pass for one.
func (r *registry) admitLocked(owner string, fresh bool) error {
	if r.draining {
		return Errorf(Unavailable, "this machine is being drained: it starts no sandbox").
			WithHint("try another machine, or again once it is ready")
	}
	if most := r.quotas.Quota(owner).Sandboxes; most > 0 && r.countLocked(owner, (*entry).occupies) >= most {
		e := Errorf(Exhausted, "there are %d sandboxes of this owner, and no more may run at the same time", most).
			WithHint("remove or stop one")
		e.Retry = quotaRetry
		return e
	}
	if fresh {
		return r.quotas.Admit(owner, r.now())
	}
	return nil
}

// occupies reports whether e counts against its owner's quota.
func (e *entry) occupies() bool {
	return e.sb == nil || e.waking || e.sb.State != StateStopped
}

func (e *entry) runs() bool { return e.sb != nil && e.sb.State == StateRunning }

// countLocked counts an owner's entries by what they are.
func (r *registry) countLocked(owner string, is func(*entry) bool) int {
	n := 0
	for key, id := range r.names {
		if key.owner != owner {
			continue
		}
		if e, ok := r.entries[id]; ok && is(e) {
			n++
		}
	}
	return n
}

// rouse counts a stopped sandbox that is about to be started against its owner's
// quota until done, by when its record does.
func (r *registry) rouse(e *entry) (done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admitLocked(e.sb.Owner, false); err != nil {
		return nil, err
	}
	e.waking = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		e.waking = false
	}, nil
}

// changedLocked tells the quotas of a change of state.
func (r *registry) changedLocked(owner string, before, after State) {
	if before != after && (before == StateRunning || after == StateRunning) {
		r.quotas.Changed(owner, r.countLocked(owner, (*entry).runs), after == StateRunning, r.now())
	}
}
