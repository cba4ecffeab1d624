package instance

import (
	"context"
	"errors"
	"net/http"
	"path"
	"path/filepath"
	"time"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// lockLimit is how long an instance may take to make its workspace read-only: what it ends may be slow to go.
const lockLimit = time.Minute

// Lock implements sandbox.Locker. The agent does it, in the mount namespaces inside: no command can join
// the agent's or make another, and none has the right to mount.
func (b *Backend) Lock(ctx context.Context, id string, l sandbox.Lock) (out sandbox.LockOutcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	req := lockOf(l.Access)
	req.EndWriters = l.EndWriters
	answer, err := b.agent(id).Lock(ctx, req)
	if e, ok := errors.AsType[*agent.StatusError](err); ok && e.Code == http.StatusNotFound {
		return out, sandbox.Errorf(sandbox.Conflict, "sandbox %s: it was started by an older carboy, which could lock nothing", id).
			WithHint("carboy stop %[1]s && carboy start %[1]s", id)
	}
	if e, ok := errors.AsType[*agent.StatusError](err); ok && e.Code == http.StatusConflict {
		return out, sandbox.Errorf(sandbox.Conflict, "sandbox %s: %s", l.Name, &notSoError{e.Text})
	}
	if err != nil {
		return out, err
	}
	return sandbox.LockOutcome{Busy: answer.Busy, InWay: holders(answer.Holders), Ended: holders(answer.Ended), Now: accessOf(answer.Now)}, nil
}

func holders(list []guest.Holder) (out []sandbox.Writer) {
	for _, h := range list {
		out = append(out, sandbox.Writer(h))
	}
	return out
}

// lockOf is what the agent is told of a workspace.
func lockOf(l sandbox.AccessList) guest.Lock {
	out := guest.Lock{Path: sandbox.WorkspacePath}
	for _, a := range l {
		out.Parts = append(out.Parts, guest.Part{Path: path.Join(sandbox.WorkspacePath, a.Path), ReadOnly: a.ReadOnly})
	}
	return out
}

// accessOf is the opposite.
func accessOf(parts []guest.Part) (out sandbox.AccessList) {
	for _, p := range parts {
		if rel, err := filepath.Rel(sandbox.WorkspacePath, p.Path); err == nil {
			out = append(out, sandbox.Access{Path: rel, ReadOnly: p.ReadOnly})
		}
	}
	return out
}
