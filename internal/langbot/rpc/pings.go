package rpc

import (
	"context"
	"time"

	"github.com/coder/websocket"
)

// pingPatience is how long the answer to a ping waits for a message that is
// being written. The library would wait for 5 s, and then give the connection
// up.
const pingPatience = 2 * time.Second

// Pings answers a WebSocket's pings while its messages are written. A side that
// reads nothing for a while, and pings, is there: that its answer does not get
// through is no reason to break with it, as then all that is under way is lost.
// The zero value is of no use: call NewPings.
type Pings struct {
	turn chan struct{} // held by who writes
}

// NewPings returns one for a connection that is about to be made.
func NewPings() *Pings { return &Pings{make(chan struct{}, 1)} }

// Answer reports whether there is room for the answer, which then has its turn
// before any message until ctx ends. It is for OnPingReceived, whose context
// does when the answer is written.
func (p *Pings) Answer(ctx context.Context, _ []byte) bool {
	t := time.NewTimer(pingPatience)
	defer t.Stop()
	select {
	case p.turn <- struct{}{}:
		context.AfterFunc(ctx, func() { <-p.turn })
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// Write writes a text message to c, of which all are to be written by it.
func (p *Pings) Write(ctx context.Context, c *websocket.Conn, message []byte) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.turn }()
	return c.Write(ctx, websocket.MessageText, message)
}
