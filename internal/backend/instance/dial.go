package instance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Dial implements sandbox.Backend. The only port of an instance that is dialled
// from outside is the agent's: the agent forwards to others.
func (b *Backend) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	dir, err := b.dir(id)
	if err != nil {
		return nil, err
	}
	c, err := dialAgent(ctx, dir)
	if errors.Is(err, errLegacy) {
		return nil, legacyError(id)
	}
	if err != nil {
		return nil, &sandbox.Error{
			Kind: sandbox.Unavailable, Msg: "the sandbox's guest agent does not answer", Err: err,
		}
	}
	if port == sandbox.GuestPort {
		return c, nil
	}
	if port < 1 || port > 65535 {
		c.Close()
		return nil, sandbox.Errorf(sandbox.Invalid, "port %d: not between 1 and 65535", port)
	}
	c, err = agent.Forward(ctx, c, port)
	if _, refused := errors.AsType[*agent.StatusError](err); refused {
		return nil, sandbox.Errorf(sandbox.Unavailable, "port %d: nothing listens there", port)
	}
	return c, err
}

// agent is the client of an instance's agent.
func (b *Backend) agent(id string) *agent.Guest {
	return agent.New(func(ctx context.Context) (net.Conn, error) { return b.Dial(ctx, id, sandbox.GuestPort) })
}

// dialAgent connects to the agent of the instance at path.
func dialAgent(ctx context.Context, path string) (net.Conn, error) {
	dir, err := beneath.OpenDir(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	key, err := readKey(dir)
	if errors.Is(err, os.ErrNotExist) && legacy(path) {
		return nil, errLegacy
	}
	if err != nil {
		return nil, err
	}
	at, done, err := socketDir(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	return control.Dial(ctx, at, fileSocket, key)
}

// healthy asks the agent how it is.
func (b *Backend) healthy(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return b.agent(id).Health(ctx)
}

// errNoUser is a guest agent's answer where commands can't be run as the user
// that it was told.
var errNoUser = errors.New("the agent has no such user")

// notSoError is a guest agent's answer that what can be written to of a workspace is not as it has to be, and why.
type notSoError struct{ why string }

func (e *notSoError) Error() string { return "its workspace can't be locked as it has to be: " + e.why }

// noUser is errNoUser for people.
func noUser(name string) error {
	return sandbox.Errorf(sandbox.Invalid, "user %.200q: the image has no such account, or it is root's where root is not allowed", name).
		WithHint("user, root, or one of the image's accounts")
}

// guestTick is between looks at whether the instance of an agent that starts is alive.
const guestTick = 20 * time.Millisecond

// awaitGuest waits until the agent answers, the instance's main process has ended or the
// time for a start is over. What is said to the agent before it listens waits for it.
func (b *Backend) awaitGuest(ctx context.Context, id string, main procid.ID) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(guestTick)
		defer tick.Stop()
		late := time.NewTimer(b.opts.Start)
		defer late.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-late.C:
				cancel(fmt.Errorf("no answer within %v", b.opts.Start))
			case <-tick.C:
				if !procid.Alive(main) {
					cancel(fmt.Errorf("the sandbox ended while it started: %w", os.ErrProcessDone))
				}
			}
		}
	}()
	err := b.agent(id).Health(ctx)
	if e, ok := errors.AsType[*agent.StatusError](err); ok && e.Code == http.StatusPreconditionFailed {
		err = errNoUser
	} else if ok && e.Code == http.StatusConflict {
		err = &notSoError{e.Text}
	} else if err != nil {
		err = fmt.Errorf("wait for guest agent: %w", errors.Join(context.Cause(ctx), err))
	}
	cancel(nil)
	<-watched
	return err
}
