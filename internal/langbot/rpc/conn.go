package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits of a connection; the original's have the same.
const (
	MaxMessage   = 16 << 20 // bytes of one message
	MaxFragments = 4096     // parts that one message comes in
	MaxInFlight  = 128      // actions of one side that are under way
	MaxUnderWay  = 32 << 20 // bytes of those actions, besides one
	MaxErrorText = 4096     // characters of an error, before what says that it was cut

	// sendTime is how long the other side may take nothing of a message before
	// it is given up.
	sendTime = 30 * time.Second
)

// ErrClosed is why a call ended whose connection did.
var ErrClosed = errors.New("connection closed")

// Conn carries whole messages, each a JSON document.
type Conn interface {
	// Send sends one message; it may be called by several at once. After an
	// error the connection is of no use any more.
	Send(ctx context.Context, message []byte) error
	// Receive returns the next message; io.EOF where the other side ended the
	// connection in order. One caller at a time.
	Receive(ctx context.Context) ([]byte, error)
	// Close ends the connection, and with it what waits in Send and Receive.
	Close() error
}

// errTooLarge says that a message is over MaxMessage.
func errTooLarge(size int) error {
	return fmt.Errorf("a message of %d bytes is over the limit of %d", size, MaxMessage)
}

// errProtocol says what the other side did that no version of the protocol
// does. The connection ends with it: what follows can't be trusted to be where
// it seems.
func errProtocol(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrClosed, fmt.Sprintf(format, args...))
}
