package cgroup

import "errors"

// ErrFull says that all commands together have as many processes as they may.
var ErrFull = errors.New("the sandbox has as many processes as it may")

// Blame says how sure it is that a command ran into a limit.
type Blame int

// What may be said of a command.
const (
	None    Blame = iota
	Perhaps       // one of those that ran at the same time did
	Certain       // it did, or something that it started
)

// shared are the counters of all commands together.
type shared struct{ pids, oom, claimed uint64 }

// LimitsPIDs reports whether the number of processes is bounded.
func (t *Hierarchy) LimitsPIDs() bool { return t.bound }

// CountsOOM reports whether it is known when memory kills a command.
func (t *Hierarchy) CountsOOM() bool { return t.memory || t.oom != nil }

// PIDsRefused returns how often a process could not be started because of
// the limit, in all commands together.
func (t *Hierarchy) PIDsRefused() uint64 { return value(t.pids, "max") }

// enroll notes what has been counted when a command begins, and that those
// which run are no longer alone.
func (t *Hierarchy) enroll(g *Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.before = shared{pids: t.PIDsRefused(), oom: value(t.oom, "oom_kill"), claimed: t.claimed}
	g.alone = len(t.live) == 0
	for other := range t.live {
		other.alone = false
	}
	t.live[g] = struct{}{}
}

// PIDsRefused says whether, since the group was acquired, the limit of
// processes kept it from starting one. Kernels that count where the limit is
// set, not where it was run into, tell it of all commands together: then it
// is certain of one that ran alone. It is for callers who have not released
// the group.
func (g *Group) PIDsRefused() Blame {
	if g.slot.pidsRefused() > g.slot.pidsBefore {
		return Certain
	}
	return g.share(g.tree.PIDsRefused() > g.before.pids)
}

// OutOfMemory says whether the kernel killed a process of the group, since it
// was acquired, to free memory. Where one counter serves all commands, it is
// certain of one that ran alone. It is for callers who have not released the
// group.
func (g *Group) OutOfMemory() Blame {
	if g.slot.oomKills() > g.slot.oomBefore {
		return Certain
	}
	return g.share(value(g.tree.oom, "oom_kill") > g.before.oom)
}

// ClaimKill takes one of the kills that OutOfMemory says were perhaps of this
// group for its own, and reports whether one was left that no other command
// has taken since this one began. It is for a command that is known to have
// been killed, so that no kill is told twice.
func (g *Group) ClaimKill() bool {
	t := g.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	if value(t.oom, "oom_kill") <= g.before.oom+t.claimed-g.before.claimed {
		return false
	}
	t.claimed++
	return true
}

// share is the blame for what all commands together have done.
func (g *Group) share(done bool) Blame {
	if !done {
		return None
	}
	g.tree.mu.Lock()
	defer g.tree.mu.Unlock()
	if g.alone {
		return Certain
	}
	return Perhaps
}

// fullLocked reports whether one more process would be one too many.
func (t *Hierarchy) fullLocked() bool {
	if t.now == nil {
		return false
	}
	n, ok := number(t.now)
	return ok && n+t.begin >= t.most
}

// Begun says that the command is in the group: the kernel counts it now.
func (g *Group) Begun() {
	g.tree.mu.Lock()
	defer g.tree.mu.Unlock()
	g.begunLocked()
}

func (g *Group) begunLocked() {
	if g.begins {
		g.begins = false
		g.tree.begin--
	}
}
