package boxservice

import (
	"context"

	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

// SetDial has a connector connect to what dial brings, in place of what its
// options name.
func (c *Connector) SetDial(dial func(ctx context.Context) (rpc.Conn, error)) { c.dial = dial }

// FromMessage is fromMessage.
var FromMessage = fromMessage
