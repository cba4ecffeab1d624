package sandbox

import (
	"context"
	"errors"
	"io"
	"time"
)

// changesTimeout bounds the look for changes at the end of an ephemeral
// sandbox. One that took longer is kept.
const changesTimeout = 10 * time.Minute

// Result is what became of an ephemeral sandbox.
type Result struct {
	Kept bool // its workspace has changes: it is there, stopped, for KeptTTL
}

// Finish ends an ephemeral sandbox, in spite of holds: it is removed, unless
// its workspace is a copy-on-write one with changes, or with what could not
// be told to be none. Finishing again what was kept says so again.
func (m *Manager) Finish(ctx context.Context, c Caller, ref string) (Result, error) {
	var res Result
	_, err := m.change(ctx, c, ref, func(ctx context.Context, e *entry) (err error) {
		sb := m.registry.record(e)
		if sb.Kept {
			res.Kept = true
			return nil
		}
		if !sb.Spec.Ephemeral {
			return Errorf(Conflict, "sandbox %s: it is not ephemeral", sb.Spec.Name).
				WithHint("carboy rm %s", sb.Spec.Name)
		}
		m.registry.setEnding(e, true)
		res, err = m.lives.finish(ctx, e, EndStopped)
		return err
	})
	return res, err
}

// finish ends an ephemeral sandbox that is running or stopped. The turn must
// be held and ending be set. Until its end is written the record stays
// ephemeral, so that the next to finish it can begin anew.
func (l *lives) finish(ctx context.Context, e *entry, reason EndReason) (Result, error) {
	defer l.registry.setEnding(e, false)
	if sb := l.registry.record(e); sb.Spec.Workspace.Mode != WorkspaceCOW { // nothing of it is kept
		if err := l.disk.Drop(ctx, sb.ID); err != nil {
			l.log.Warn("give up a disk that is to be removed", "id", sb.ID, "error", err)
		}
	}
	if l.registry.record(e).State == StateRunning {
		if err := l.stop(ctx, e, reason); err != nil {
			return Result{}, err
		}
	}
	sb := l.registry.record(e).Clone()
	why, err := l.whyKeep(ctx, sb)
	if err != nil {
		return Result{}, err
	}
	if why == "" {
		return Result{}, l.remove(ctx, e)
	}
	sb.Spec.Ephemeral, sb.Kept = false, true
	sb.Spec.TTL, sb.Spec.OnExpiry = KeptTTL, OnExpiryRemove
	sb.ExpiresAt = expiry(l.now(), KeptTTL)
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := l.save(ctx, e, sb); err != nil {
		return Result{}, err
	}
	l.note(ctx, sb, eventKept, "kept for %v: %s", KeptTTL, why)
	return Result{Kept: true}, nil
}

// whyKeep says why a stopped ephemeral sandbox is not to be removed, or "". It
// fails only where ctx ended before that was known.
func (l *lives) whyKeep(ctx context.Context, sb *Sandbox) (string, error) {
	if sb.Spec.Workspace.Mode != WorkspaceCOW {
		return "", nil
	}
	b, err := l.backends.of(sb)
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, changesTimeout)
	defer cancel()
	changed, err := l.hasChanges(limited, b, sb)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", failure(context.Cause(ctx), sb.Spec.Name, "look for changes")
	case err != nil:
		l.log.Error("look for changes", "id", sb.ID, "error", err)
		return "its changes could not be read", nil
	case changed:
		return "its workspace has changes", nil
	}
	return "", nil
}

var errEnough = errors.New("enough was read")

// hasChanges reports whether the workspace of a sandbox differs from its source.
func (l *lives) hasChanges(ctx context.Context, b Backend, sb *Sandbox) (bool, error) {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := b.Changes(ctx, sb, ChangesOptions{}, w)
		w.CloseWithError(err) // nil: the end of the stream
		done <- err
	}()
	changed, err := l.changed(r)
	r.CloseWithError(errEnough)
	werr := <-done
	if changed || errors.Is(werr, errEnough) {
		return changed, err
	}
	return false, errors.Join(err, werr)
}

// anyByte is the HasChanges of a Manager that was given none.
func anyByte(r io.Reader) (bool, error) {
	var b [1]byte
	switch _, err := io.ReadFull(r, b[:]); err {
	case nil:
		return true, nil
	case io.EOF:
		return false, nil
	default:
		return false, err
	}
}
