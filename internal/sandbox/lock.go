package sandbox

import (
	"context"
	"fmt"
	"strings"
)

// Lock is what is to become of a workspace while its sandbox runs.
type Lock struct {
	// ReadOnly keeps all inside from writing to it until it is unlocked. Where that is false
	// they can write as at a create.
	ReadOnly bool
	// EndWriters has what has a file of it open for writing ended, where that is in the way.
	EndWriters bool
}

// Writer is a process inside that has a file of the workspace open for writing, as the guest says.
type Writer struct {
	PID     int // as those inside see it; 0: Carboy itself, for a client
	Program string
	Path    string
	Mapped  bool // it has the file in its memory
}

// String is "python3 (pid 12), which has /workspace/db open".
func (w Writer) String() string {
	has := "open"
	if w.Mapped {
		has = "in its memory"
	}
	if w.PID == 0 {
		return fmt.Sprintf("a client's transfer, which has %s %s", w.Path, has)
	}
	return fmt.Sprintf("%s (pid %d), which has %s %s", w.Program, w.PID, w.Path, has)
}

// Locker makes workspaces read-only while instances run.
type Locker interface {
	// Lock makes the workspace of a running instance read-only for all inside, in every mount
	// namespace there is and will be until its end, or writable again. That nothing can be written is tried. What has a
	// file of it open for writing is in the way: then nothing is changed, and busy lists it as far as it is
	// known, or it is ended where that was asked for.
	Lock(ctx context.Context, id string, l Lock) (LockOutcome, error)
}

// LockOutcome is what became of a Lock.
type LockOutcome struct {
	Busy  bool     // nothing was changed
	InWay []Writer // where Busy, and perhaps not all of them
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

// LockWorkspace makes the workspace of a sandbox read-only for what runs inside, or writable again, and says what it
// ended for that. It is kept through stops, starts and restarts of the daemon. What has a file open for writing is in the
// way: a Conflict that names it, and changes nothing. Of one that is stopped it holds from the next
// start on; a paused one is a Conflict, for what it has open is in its memory.
func (m *Manager) LockWorkspace(ctx context.Context, c Caller, ref string, l Lock) (sb *Sandbox, ended []Writer, err error) {
	sb, err = m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		ended, err = m.lives.lockWorkspace(ctx, c, e, l)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return sb, ended, nil
}

func (l *lives) lockWorkspace(ctx context.Context, c Caller, e *entry, lock Lock) ([]Writer, error) {
	before := l.registry.record(e)
	name := before.Spec.Name
	if err := mayBeSet(before); err != nil {
		return nil, err
	}
	if err := before.Spec.Workspace.lockable(name); err != nil {
		return nil, err
	}
	if before.Suspended {
		return nil, Errorf(Conflict, "sandbox %s: it is paused, and what it has open is in its memory", name).
			WithHint("carboy start %s", name)
	}
	b, err := l.backends.of(before)
	if err != nil {
		return nil, err
	}
	locker := b.Capabilities().Lock
	if locker == nil {
		return nil, Errorf(Unsupported, "sandbox %s: its wall %s can't lock a workspace", name, before.Backend)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	// A daemon that is killed meanwhile leaves a lock that the next one brings about, and an unlock that it undoes.
	if lock.ReadOnly {
		if err := l.save(ctx, e, before.locked(true)); err != nil {
			return nil, err
		}
	}
	var out LockOutcome
	if before.State == StateRunning {
		out, err = locker.Lock(ctx, before.ID, lock)
	}
	if err != nil || out.Busy {
		err = notLocked(err, name, lock, out)
		if serr := l.save(ctx, e, before); serr != nil {
			l.log.Error("write that a workspace is as it was", "id", before.ID, "error", serr)
		}
		return nil, err
	}
	if !lock.ReadOnly {
		if err := l.save(ctx, e, before.locked(false)); err != nil {
			return nil, err
		}
	}
	l.noteLock(ctx, c, before, lock, out)
	return out.Ended, nil
}

// notLocked is why a workspace was not locked.
func notLocked(err error, name string, lock Lock, out LockOutcome) error {
	if err != nil {
		return failure(err, name, "change what it can write to")
	}
	busy := Errorf(Conflict, "sandbox %s: its workspace is being written to%s", name, writersText(out.InWay))
	if lock.EndWriters {
		return busy.WithHint("carboy stop %s ends all that runs in it", name)
	}
	return busy.WithHint("end that first, or have it ended: carboy workspace lock --end-writers %s", name)
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

// locked is sb with a workspace that is locked, or is not.
func (sb *Sandbox) locked(is bool) *Sandbox {
	out := sb.Clone()
	out.Locked = is
	out.Enforced = withLock(out.Enforced, is)
	return out
}

// withLock is a report with what is to be said of a lock.
func withLock(list []Enforcement, is bool) []Enforcement {
	var out []Enforcement
	for _, e := range list {
		if e.Promise != lockPromise {
			out = append(out, e)
		}
	}
	if is {
		out = append(out, Enforcement{
			Promise: lockPromise, Enforced: true,
			Mechanism: "locked: remounted read-only in each mount namespace inside, where nobody can make another, and a write was refused; the host and other sandboxes are not bound by it",
		})
	}
	return out
}

func (l *lives) noteLock(ctx context.Context, c Caller, sb *Sandbox, lock Lock, out LockOutcome) {
	what := "unlocked its workspace"
	if lock.ReadOnly {
		what = "locked its workspace, which is read-only inside"
	}
	l.note(ctx, sb, eventSet, "%s %s", c.Owner, what)
	for _, w := range out.Ended {
		l.note(ctx, sb, eventSet, "ended %s", w)
	}
}

// relock brings about what the record says of the workspace of a sandbox that ran while the daemon was away.
func (l *lives) relock(ctx context.Context, e *entry, b Backend) error {
	sb := l.registry.record(e)
	locker := b.Capabilities().Lock
	if !sb.Locked || locker == nil {
		return nil
	}
	out, err := locker.Lock(ctx, sb.ID, Lock{ReadOnly: true})
	if err == nil && !out.Busy {
		return nil
	}
	err = notLocked(err, sb.Spec.Name, Lock{}, out)
	if serr := l.save(ctx, e, sb.locked(false)); serr != nil {
		return serr
	}
	l.note(ctx, sb, EventError, "its workspace was being locked, and is not: %v", err)
	return nil
}
