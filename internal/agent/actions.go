package agent

import (
	"context"
	"errors"
	"net"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Actions connects to the agent's action protocol, for one request. An agent that has none is
// Unsupported.
func (g *Guest) Actions(ctx context.Context) (net.Conn, error) {
	c, err := g.dial(ctx)
	if err != nil {
		return nil, err
	}
	if c, err = Actions(ctx, c); errors.Is(err, ErrOld) {
		e := sandbox.Errorf(sandbox.Unsupported, "the sandbox's agent has no actions: it is of an older version").
			WithHint("carboy stop, and then carboy start, give it one of this version")
		e.Err = err
		return nil, e
	}
	return c, err
}
