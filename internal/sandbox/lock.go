package sandbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/api/guest"
)

// Lock is what is to become of a workspace while its sandbox runs.
type Lock struct {
	Name string // the sandbox's, for errors
	// Access is what nobody inside can write to from then on. The rest they can write to.
	Access AccessList
	// EndWriters has what is in the way ended: what has files open for writing, or could write by what it has open.
	EndWriters bool
}

// LockChange is a change of what is locked.
type LockChange struct {
	ReadOnly   bool
	Paths      []string // directories of the workspace; none: all of it
	EndWriters bool
}

// Writer is a process inside that is in the way of a lock, as the guest says.
type Writer struct {
	PID     int // as those inside see it; 0: Carboy itself, for a client, or nobody
	Program string
	Path    string
	How     guest.How
}

// String is "python3 (pid 12), which has /workspace/db open for writing".
func (w Writer) String() string {
	if w.How == guest.HowLinked {
		return fmt.Sprintf("%s, which has another name outside", w.Path)
	}
	who := fmt.Sprintf("%s (pid %d)", w.Program, w.PID)
	if w.PID == 0 {
		who = "a client's transfer"
	}
	switch w.How {
	case guest.HowMaps:
		return fmt.Sprintf("%s, which has %s in its memory", who, w.Path)
	case guest.HowReaches:
		return fmt.Sprintf("%s, which has %s open", who, w.Path)
	case guest.HowWorksIn:
		return fmt.Sprintf("%s, which works in %s", who, w.Path)
	case guest.HowRootedIn:
		return fmt.Sprintf("%s, whose root is %s", who, w.Path)
	case guest.HowPasses:
		return fmt.Sprintf("%s, which has been sent a descriptor that nobody knows yet", who)
	}
	return fmt.Sprintf("%s, which has %s open for writing", who, w.Path)
}

// Locker makes workspaces read-only while instances run.
type Locker interface {
	// Lock makes parts of the workspace of a running instance read-only for all inside, in every mount
	// namespace there is and will be until its end, and the rest writable. That nothing can be written is tried. What
	// could go on writing is in the way: then nothing is changed, and busy lists it as far as it is
	// known, or it is ended where that was asked for.
	Lock(ctx context.Context, id string, l Lock) (LockOutcome, error)
}

// LockOutcome is what became of a Lock.
type LockOutcome struct {
	Busy  bool       // nothing was changed
	InWay []Writer   // where Busy, and perhaps not all of them
	Now   AccessList // where Busy: what holds
	Ended []Writer
}

// lockable refuses workspaces that are no mounts of their own on each wall, or can't be written to at all.
func (w Workspace) lockable(name string) error {
	switch {
	case w.Mode == WorkspaceWritable || w.Mode == WorkspaceVolume && !w.ReadOnly:
		return nil
	case w.Mode == WorkspaceReadOnly || w.Mode == WorkspaceVolume:
		return Errorf(Conflict, "sandbox %s: its workspace is read-only as it is", name)
	}
	return Errorf(Unsupported, "sandbox %s: a workspace of its own, or a copy-on-write view, can't be locked: only what others share can", name).
		WithHint("--workspace DIR:rw shares a directory, and --volume NAME:/workspace a volume")
}

// LockWorkspace makes directories of a sandbox's workspace, or all of it, read-only for what runs inside, or writable again,
// and says what it ended for that. It is kept through stops, starts and restarts of the daemon. What could go on writing is
// in the way: a Conflict that names it, and changes nothing. Of one that is stopped it holds from the next
// start on; a paused one is a Conflict, for what it has open is in its memory.
func (m *Manager) LockWorkspace(ctx context.Context, c Caller, ref string, l LockChange) (sb *Sandbox, ended []Writer, err error) {
	sb, err = m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		ended, err = m.lives.lockWorkspace(ctx, c, e, l)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return sb, ended, nil
}

func (l *lives) lockWorkspace(ctx context.Context, c Caller, e *entry, change LockChange) ([]Writer, error) {
	before := l.registry.record(e)
	name := before.Spec.Name
	if err := mayBeSet(before); err != nil {
		return nil, err
	}
	if before.Delegated {
		return nil, Errorf(Conflict, "sandbox %s: pods have parts of its workspace, and what it can write to follows from that", name).
			WithHint("carboy pod ls")
	}
	locker, err := l.lockerOf(before)
	if err != nil {
		return nil, err
	}
	access, err := change.of(before.Access)
	if err != nil {
		return nil, err
	}
	out, err := l.setAccess(ctx, e, locker, before.locked(access), change.EndWriters)
	if err != nil || out.Busy {
		return nil, notLocked(err, name, change, out)
	}
	l.noteLock(ctx, c, before, change, out)
	return out.Ended, nil
}

// setAccess has what is locked be as a record says, which is written. Where that fails, or something is in the way,
// all is as before.
func (l *lives) setAccess(ctx context.Context, e *entry, locker Locker, next *Sandbox, endWriters bool) (out LockOutcome, err error) {
	before := l.registry.record(e)
	ctx, cancel := detached(ctx)
	defer cancel()
	// A daemon that is killed meanwhile leaves a lock that the next one brings about, and an unlock that it undoes.
	locks := next.Access.Locks(before.Access)
	if locks {
		if err := l.save(ctx, e, next); err != nil {
			return out, err
		}
	}
	if before.State == StateRunning {
		out, err = locker.Lock(ctx, before.ID, Lock{Name: before.Spec.Name, Access: next.Access, EndWriters: endWriters})
	}
	switch {
	case err == nil && !out.Busy && !locks:
		err = l.save(ctx, e, next)
	case err != nil || out.Busy:
		if serr := l.save(ctx, e, before); serr != nil {
			l.log.Error("write that a workspace is as it was", "id", before.ID, "error", serr)
		}
	}
	return out, err
}

// lockerOf returns what locks a sandbox's workspace, as long as that can be done.
func (l *lives) lockerOf(sb *Sandbox) (Locker, error) {
	name := sb.Spec.Name
	if sb.State != StateRunning && sb.State != StateStopped {
		return nil, mustRun(sb)
	}
	if err := sb.Spec.Workspace.lockable(name); err != nil {
		return nil, err
	}
	if sb.Suspended {
		return nil, Errorf(Conflict, "sandbox %s: it is paused, and what it has open is in its memory", name).
			WithHint("carboy start %s", name)
	}
	b, err := l.backends.of(sb)
	if err != nil {
		return nil, err
	}
	locker := b.Capabilities().Lock
	if locker == nil {
		return nil, Errorf(Unsupported, "sandbox %s: its wall %s can't lock a workspace", name, sb.Backend)
	}
	return locker, nil
}

// of is what a change makes of a list.
func (c LockChange) of(list AccessList) (AccessList, error) {
	if len(c.Paths) == 0 {
		return list.With(".", c.ReadOnly), nil
	}
	for _, p := range c.Paths {
		dir, err := accessPath(p)
		if err != nil {
			return nil, err
		}
		list = list.With(dir, c.ReadOnly)
	}
	if len(list) > maxAccess {
		return nil, Errorf(Invalid, "%d directories can't be locked apart: %d at most", len(list), maxAccess).
			WithHint("lock one that is around several")
	}
	return list, nil
}

// linkedHint is what to do where a file has another name outside.
const linkedHint = "by that name it could be written to: make it a file of its own, as by cp and mv"

// linked reports whether that is what is in the way.
func linked(out LockOutcome) bool { return len(out.InWay) > 0 && out.InWay[0].How == guest.HowLinked }

// notLocked is why a workspace was not locked.
func notLocked(err error, name string, change LockChange, out LockOutcome) error {
	if err != nil {
		return failure(err, name, "change what it can write to")
	}
	busy := Errorf(Conflict, "sandbox %s: its workspace is in use%s", name, writersText(out.InWay))
	if linked(out) {
		return busy.WithHint(linkedHint)
	}
	if change.EndWriters {
		return busy.WithHint("carboy stop %s ends all that runs in it", name)
	}
	return busy.WithHint("end that first, or have it ended: carboy workspace lock --end-writers %s", strings.Join(append([]string{name}, change.Paths...), " "))
}

// maxWritersText bounds how many are named in one line.
const maxWritersText = 5

func writersText(list []Writer) string {
	if len(list) == 0 {
		return ", by what could not be found: a descriptor may be on its way through a socket"
	}
	var parts []string
	for _, w := range list[:min(len(list), maxWritersText)] {
		parts = append(parts, w.String())
	}
	text := ": by " + strings.Join(parts, "; by ")
	if more := len(list) - maxWritersText; more > 0 {
		text += fmt.Sprintf("; and by %d more", more)
	}
	return text
}

// lockPromise is the entry of an enforcement report that says of a lock.
const lockPromise = "workspace"

// locked is sb with a workspace of which some is locked, or nothing.
func (sb *Sandbox) locked(access AccessList) *Sandbox {
	out := sb.Clone()
	out.Access = access
	out.Enforced = withLock(out.Enforced, access)
	return out
}

// What a report says of locks.
const (
	lockAll   = "locked: remounted read-only in each mount namespace inside, where nobody can make another, and a write was refused"
	lockParts = "locked: %s: mounted over itself read-only in each mount namespace inside, where nobody can make another, and a write was refused; " +
		"what could write by what it had open, or was sent, was looked for while all was held still"
	lockOthers = "; the host and other sandboxes are not bound by it"
)

// withLock is a report with what is to be said of a lock.
func withLock(list []Enforcement, access AccessList) []Enforcement {
	var out []Enforcement
	for _, e := range list {
		if e.Promise != lockPromise {
			out = append(out, e)
		}
	}
	how := lockAll
	switch {
	case len(access) == 0:
		return out
	case !access.Whole():
		how = fmt.Sprintf(lockParts, access)
	}
	return append(out, Enforcement{Promise: lockPromise, Enforced: true, Mechanism: how + lockOthers})
}

func (l *lives) noteLock(ctx context.Context, c Caller, sb *Sandbox, change LockChange, out LockOutcome) {
	what := "its workspace"
	if len(change.Paths) > 0 {
		what = strings.Join(change.Paths, ", ") + " in " + what
	}
	if change.ReadOnly {
		l.note(ctx, sb, eventSet, "%s locked %s, which is read-only inside", c.Owner, what)
	} else {
		l.note(ctx, sb, eventSet, "%s unlocked %s", c.Owner, what)
	}
	for _, h := range out.Ended {
		l.note(ctx, sb, eventSet, "ended %s", h)
	}
}

// relock brings about what the record says of the workspace of a sandbox that ran while the daemon was away.
func (l *lives) relock(ctx context.Context, e *entry, b Backend) error {
	sb := l.registry.record(e)
	locker := b.Capabilities().Lock
	if len(sb.Access) == 0 || locker == nil {
		return nil
	}
	out, err := locker.Lock(ctx, sb.ID, Lock{Name: sb.Spec.Name, Access: sb.Access})
	if err == nil && !out.Busy {
		return nil
	}
	err = notLocked(err, sb.Spec.Name, LockChange{}, out)
	if serr := l.save(ctx, e, sb.locked(out.Now)); serr != nil {
		return serr
	}
	l.note(ctx, sb, EventError, "its workspace was being locked, and is as before: %v", err)
	return nil
}
