package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// pieceSize is that of the text messages into which the versions up to
	// mid-2026 cut a larger one.
	pieceSize = 64 << 10
	// wholeSize is the largest message that their clients read: it is their
	// library's default.
	wholeSize = 1 << 20
)

// WebSocketOptions tune a WebSocket.
type WebSocketOptions struct {
	// Pieces sends what is over 1 MiB as several text messages of 64 KiB, for a
	// client of mid-2026 and before, which joins them and whose library closes a
	// connection for a larger one. Later clients join nothing.
	Pieces bool
	// Pings answers pings; nil: the library does.
	Pings *Pings
}

// webSocket carries a message as one text message. What it receives may be in
// fragments, or in several text messages: one that begins a JSON object, is of
// pieceSize (less a rune) or more, and does not end it, is continued by the
// next. All but the last piece have that size in the versions that cut, so that
// a shorter one that is not whole is nothing but malformed, and never swallows
// what follows.
type webSocket struct {
	c *websocket.Conn
	o WebSocketOptions

	mu sync.Mutex // one message's pieces at a time are sent

	joined []byte // pieces of a message that has not ended
	pieces int
	scan   scanner
	buf    []byte // what Receive reads into
}

// NewWebSocket returns a connection over c, whose read limit it sets.
func NewWebSocket(c *websocket.Conn, o WebSocketOptions) Conn {
	c.SetReadLimit(MaxMessage)
	if o.Pings == nil {
		o.Pings = NewPings()
	}
	return &webSocket{c: c, o: o}
}

func (w *webSocket) Close() error {
	return w.c.Close(websocket.StatusNormalClosure, "")
}

func (w *webSocket) Send(ctx context.Context, message []byte) error {
	if len(message) > MaxMessage {
		return errTooLarge(len(message))
	}
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.o.Pieces || len(message) <= wholeSize {
		return closed(w.o.Pings.Write(ctx, w.c, message))
	}
	for len(message) > 0 {
		piece := runePrefix(message, pieceSize)
		if err := w.o.Pings.Write(ctx, w.c, piece); err != nil {
			return closed(err)
		}
		message = message[len(piece):]
	}
	return nil
}

func (w *webSocket) Receive(ctx context.Context) ([]byte, error) {
	for {
		piece, err := w.one(ctx)
		if err != nil {
			return nil, closed(err)
		}
		message, err := w.join(piece)
		if err != nil {
			_ = w.c.Close(websocket.StatusMessageTooBig, "message too large")
			return nil, err
		}
		if message != nil {
			return message, nil
		}
	}
}

// join adds a text message to what there is of the message under way, and
// returns what is whole; nil where more is to come. Of pieces that turn out not
// to belong together the newest is returned, the others are lost: no version
// sends such.
func (w *webSocket) join(piece []byte) ([]byte, error) {
	if len(w.joined) == 0 {
		if len(piece) < minPiece || !w.begins(piece) {
			return piece, nil
		}
		w.joined, w.pieces = append(w.joined, piece...), 1
		return nil, nil
	}
	if w.pieces++; len(w.joined)+len(piece) > MaxMessage || w.pieces > MaxFragments {
		w.joined = nil
		return nil, errProtocol("a message in pieces of over %d bytes", MaxMessage)
	}
	switch w.scan.add(piece) {
	case scanOpen:
		if len(piece) < minPiece {
			break // none but the last is so short, and the last ends it
		}
		w.joined = append(w.joined, piece...)
		return nil, nil
	case scanEnded:
		whole := append(w.joined, piece...)
		w.joined = nil
		return whole, nil
	}
	w.joined = nil
	return w.join(piece)
}

// minPiece is the least size of a piece that is not the last: a cut that would
// split a rune is made before it.
const minPiece = pieceSize - 4

// begins says whether piece is the begin of a JSON object that it does not end.
func (w *webSocket) begins(piece []byte) bool {
	w.scan = scanner{}
	return w.scan.add(piece) == scanOpen
}

// one reads one text message.
func (w *webSocket) one(ctx context.Context) ([]byte, error) {
	kind, r, err := w.c.Reader(ctx)
	if err != nil {
		return nil, err
	}
	if kind != websocket.MessageText {
		_ = w.c.Close(websocket.StatusUnsupportedData, "text messages alone")
		return nil, errProtocol("a binary message")
	}
	if w.buf == nil {
		w.buf = make([]byte, 32<<10)
	}
	var message []byte
	// A read never spans fragments; it is shorter than the buffer only where one
	// ends.
	for reads := 0; ; reads++ {
		if reads > MaxFragments+MaxMessage/len(w.buf) {
			_ = w.c.Close(websocket.StatusPolicyViolation, "too many fragments")
			return nil, errProtocol("a message in more than %d fragments", MaxFragments)
		}
		n, err := r.Read(w.buf)
		message = append(message, w.buf[:n]...)
		if errors.Is(err, io.EOF) {
			return message, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// closed gives the end of a WebSocket the name that all connections' have.
func closed(err error) error {
	switch {
	case err == nil || errors.Is(err, ErrClosed):
		return err
	case websocket.CloseStatus(err) == websocket.StatusNormalClosure, websocket.CloseStatus(err) == websocket.StatusGoingAway:
		return io.EOF
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

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
