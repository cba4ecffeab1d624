package client

import (
	"context"
	"strconv"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/agent"
)

// ExecOptions say what Exec runs and where its streams go. Only Command is
// needed.
type ExecOptions = agent.FollowOptions

// Exec runs a command in a sandbox and returns how it ended. A sandbox that
// is stopped is started. Where the connection breaks, as when the daemon is
// killed, Exec finds the daemon again for up to 60 seconds after the last sign
// of it, and goes on where it was: nothing is printed twice or left out.
//
// A sandbox that ends takes its commands along: the Exit says so. The error is
// ctx's cause, a writer's, or an *Error.
func (c *Client) Exec(ctx context.Context, id string, o ExecOptions) (*guestv1.Exit, error) {
	if len(o.Command.GetArgv()) == 0 {
		return nil, &Error{Kind: Invalid, Msg: "exec: no command was given"}
	}
	return agent.Follow(ctx, c.Commands(id), way{c, id}, o)
}

// Follow attaches to a command that was started before and returns how it
// ended. It prints the output from its start, as far as the guest still has
// it. Command of o is not used, and Stdin with Join alone.
func (c *Client) Follow(ctx context.Context, id, command string, o ExecOptions) (*guestv1.Exit, error) {
	o.ID, o.Command = command, nil
	return agent.Follow(ctx, c.Commands(id), way{c, id}, o)
}

// Commands returns the guest's own service for commands: to start one without
// following it, to list or to signal them. Its errors are Connect's.
func (c *Client) Commands(id string) guestv1connect.ExecServiceClient {
	return agent.Commands(c.guest, c.base+path(id, "/guest"), maxAnswer)
}

// way is how an Exec finds its command again.
type way struct {
	c       *Client
	sandbox string
}

// Lost implements agent.Way.
func (w way) Lost(err error) (error, bool) { return w.c.rpcError(err) }

// Redial implements agent.Way.
func (w way) Redial(ctx context.Context) { w.c.dialAgain(ctx) }

// Ended implements agent.Way.
func (w way) Ended(ctx context.Context, starts string) (*guestv1.Exit, error) {
	sb, err := w.c.Get(ctx, w.sandbox)
	if err != nil {
		if KindOf(err) == NotFound {
			return endedBy("removed"), nil
		}
		return nil, context.Cause(ctx)
	}
	if sb.State == "stopped" || sb.State == "removing" {
		return endedBy(sb.Ended), nil
	}
	if starts != "" && starts != strconv.Itoa(sb.Starts) {
		return endedBy("restarted"), nil
	}
	return nil, nil
}

// endedBy is the end of a command whose sandbox ended for a reason.
func endedBy(reason string) *guestv1.Exit {
	e := &guestv1.Exit{Code: 128 + 9, Signal: 9, Reason: guestv1.Reason_REASON_KILLED, KilledBy: "sandbox"}
	switch reason {
	case "out_of_memory":
		e.Reason, e.KilledBy, e.Error = guestv1.Reason_REASON_OUT_OF_MEMORY, "", "the sandbox ran out of memory"
	case "expired":
		e.Error = "the sandbox's time ran out"
	case "stopped", "removed", "restarted":
		e.Error = "the sandbox was " + reason
	case "":
		e.Error = "the sandbox ended"
	default:
		e.Error = "the sandbox ended: " + reason
	}
	return e
}
