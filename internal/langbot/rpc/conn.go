// Package rpc carries the messages of LangBot's Box between a host and a
// runtime: the envelope, its framing over a WebSocket or over standard input
// and output, files in chunks, and the names that both ends make alike. Both
// ends use it: a Peer serves the other side's actions and calls its own over
// one connection.
//
// The names and limits are those of Box, whose versions differ in how they send
// a large message: those of mid-2026 and before cut it into several text
// messages of a WebSocket, later ones into the fragments of one. What arrives
// either way is read; see WebSocket for how the two are told apart, and for
// what is sent.
//
// What the other side sends is untrusted: a message is at most MaxMessage bytes
// in MaxFragments parts, at most MaxInFlight actions are under way, files are
// bounded in bytes, number and age, and an error's text is cut at
// MaxErrorText. The package knows nothing of sandboxes, and writes no file.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// Budget bounds the bytes of actions that are under way. A nil one bounds
// nothing.
type Budget struct {
	most int

	mu   sync.Mutex
	held int
}

// NewBudget returns one of so many bytes.
func NewBudget(most int) *Budget { return &Budget{most: most} }

// take reports whether there was room; one action has it, whatever its size.
func (b *Budget) take(n int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held > 0 && b.held+n > b.most {
		return false
	}
	b.held += n
	return true
}

func (b *Budget) give(n int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
}
