package instance

import (
	"context"
	"errors"
	"net/http"
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
	answer, err := b.agent(id).Lock(ctx, guest.Lock{Path: sandbox.WorkspacePath, ReadOnly: l.ReadOnly, EndWriters: l.EndWriters})
	if e, ok := errors.AsType[*agent.StatusError](err); ok && e.Code == http.StatusNotFound {
		return out, sandbox.Errorf(sandbox.Conflict, "sandbox %s: it was started by an older carboy, which could lock nothing", id).
			WithHint("carboy stop %[1]s && carboy start %[1]s", id)
	}
	if err != nil {
		return out, err
	}
	return sandbox.LockOutcome{Busy: answer.Busy, InWay: writers(answer.Holders), Ended: writers(answer.Ended)}, nil
}

func writers(list []guest.Holder) (out []sandbox.Writer) {
	for _, h := range list {
		out = append(out, sandbox.Writer{PID: h.PID, Program: h.Program, Path: h.Path, Mapped: h.Mapped})
	}
	return out
}
