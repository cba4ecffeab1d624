package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
)

// Options tune a Peer. Conn is required.
type Options struct {
	Conn Conn
	// Serve answers one action of the other side; several run at once. What it
	// returns is encoded as the answer's data, and has to be a JSON object; nil
	// is an empty one. Its context ends with the connection. Nil: no action is
	// known.
	Serve func(ctx context.Context, r *langbot.Request) (any, error)
	// ErrorText is what the other side is told of Serve's error: a class, ": "
	// and a text. Nil: the error's own text.
	ErrorText func(error) string
	// Files bounds what the other side sends with __file_chunk.
	Files FileLimits
	// Budget is shared by connections, and bounds the bytes of all their actions
	// that are under way; nil: each is bounded by MaxUnderWay alone.
	Budget *Budget
	Log    *slog.Logger // nil: nothing is logged
	Now    func() time.Time
}

// Peer is one end of a connection: it serves the other side's actions, and
// calls those of the other side. Files that the other side sends are kept by it
// until they are taken, and go with it.
type Peer struct {
	o     Options
	files *files
	slots chan struct{}
	own   *Budget // of this connection

	answering sync.Mutex // held while an answer is encoded and sent

	mu      sync.Mutex
	seq     int64
	waiting map[int64]chan *langbot.Response
	err     error // why it ended

	done   chan struct{} // closed with err set
	cancel context.CancelCauseFunc
	ctx    context.Context // of the actions that are served
	active sync.WaitGroup
}

// RemoteError is what the other side answered instead of data.
type RemoteError struct {
	Action  string
	Message string // a class, ": " and a text
}

// Error is the message as it came.
func (e *RemoteError) Error() string { return e.Message }

// UnknownActionError says that there is no such action, in the words that the
// original answers with.
func UnknownActionError(action string) error {
	return &actionError{fmt.Sprintf("ValueError: Action %.200s not found", action)}
}

// actionError is an error whose text is the answer's as it is.
type actionError struct{ text string }

func (e *actionError) Error() string { return e.text }

// NewPeer returns a peer that does nothing before Run, and needs to be run.
func NewPeer(o Options) *Peer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Peer{
		o:       o,
		files:   newFiles(o.Files, o.Now),
		slots:   make(chan struct{}, MaxInFlight),
		own:     NewBudget(MaxUnderWay),
		seq:     rand.Int64N(100_001),
		waiting: map[int64]chan *langbot.Response{},
		done:    make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p
}

// Done is closed when the connection has ended, however it did.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Close ends the connection, what waits in Call, and the actions under way.
func (p *Peer) Close() error {
	p.end(ErrClosed)
	return p.o.Conn.Close()
}

// Run reads until the connection or ctx ends, and returns when the actions that
// it served have ended as well: nil where the other side ended it in order.
func (p *Peer) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	defer stop()
	err := p.read(ctx)
	p.end(err)
	_ = p.o.Conn.Close() // it is what ended, or is given up
	p.active.Wait()
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// end is called once with effect: what waits learns why.
func (p *Peer) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = ErrClosed
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, ErrClosed) {
		p.err = fmt.Errorf("%w: %w", ErrClosed, err)
	} else if errors.Is(err, ErrClosed) {
		p.err = err
	}
	p.cancel(p.err)
	p.files.drop()
	close(p.done)
}

func (p *Peer) read(ctx context.Context) error {
	for {
		message, err := p.o.Conn.Receive(ctx)
		if err != nil {
			return err
		}
		m, err := Decode(message)
		bad, isRequest := errors.AsType[*badRequestError](err)
		switch {
		case isRequest:
			err := p.answer(bad.SeqID, nil, &actionError{"ValueError: " + bad.Text})
			if err != nil {
				return err
			}
		case err != nil:
			p.o.Log.Warn("a message of a box connection was ignored", "why", err)
		case m.Response != nil:
			p.route(m.Response)
		default:
			if err := p.begin(m.Request, len(message)); err != nil {
				return err
			}
		}
	}
}

// route hands a response to the call that waits for it; one that nobody waits
// for any more is dropped.
func (p *Peer) route(r *langbot.Response) {
	p.mu.Lock()
	to := p.waiting[r.SeqID]
	delete(p.waiting, r.SeqID)
	p.mu.Unlock()
	if to == nil {
		p.o.Log.Debug("an answer that nobody waits for", "seq_id", r.SeqID)
		return
	}
	to <- r // there is room for one
}

// begin serves a request beside the others. Where there are too many, or those
// that there are hold too much, it answers so itself, and reads nothing before
// the other side took the answer: who floods a connection waits for it.
func (p *Peer) begin(r *langbot.Request, size int) error {
	free, why := p.admit(size)
	if free == nil {
		return p.answer(r.SeqID, nil, &actionError{fmt.Sprintf("%s: %s already: wait for one of them", langbot.ClassError, why)})
	}
	p.active.Go(func() {
		defer free()
		data, err := p.serve(r)
		if err := p.answer(r.SeqID, data, err); err != nil {
			p.o.Log.Debug("an answer was not sent", "action", r.Action, "why", err)
			_ = p.o.Conn.Close() // it is of no use to anybody
		}
	})
	return nil
}

// admit makes room for a request; where there is none it says of what there is
// too much.
func (p *Peer) admit(size int) (free func(), why string) {
	if !p.room() {
		return nil, fmt.Sprintf("this connection has %d actions under way", MaxInFlight)
	}
	switch {
	case !p.own.take(size):
		why = fmt.Sprintf("this connection has actions of %d bytes under way", MaxUnderWay)
	case !p.o.Budget.take(size):
		p.own.give(size)
		why = "all connections together have too large actions under way"
	default:
		return func() {
			p.o.Budget.give(size)
			p.own.give(size)
			<-p.slots
		}, ""
	}
	<-p.slots
	return nil, why
}

// roomTime is for an action whose answer was sent to be over here as well: the
// other side may have read it, and asked for the next, by then.
const roomTime = 100 * time.Millisecond

// room takes a slot, if one is or becomes free.
func (p *Peer) room() bool {
	select {
	case p.slots <- struct{}{}:
		return true
	default:
	}
	t := time.NewTimer(roomTime)
	defer t.Stop()
	select {
	case p.slots <- struct{}{}:
		return true
	case <-t.C:
	case <-p.ctx.Done():
	}
	return false
}

func (p *Peer) serve(r *langbot.Request) (data any, err error) {
	defer func() {
		if v := recover(); v != nil {
			p.o.Log.Error("an action panicked", "action", r.Action, "panic", v, "stack", string(debug.Stack()))
			err = &actionError{langbot.ClassError + ": internal error; the runtime's log has it"}
		}
	}()
	switch {
	case r.Action == langbot.ActionFileChunk:
		return nil, p.files.add(r.Data)
	case p.o.Serve == nil:
		return nil, UnknownActionError(r.Action)
	}
	return p.o.Serve(p.ctx, r)
}

// answer sends what became of a request. Data that can't be sent makes it an
// error.
//
// An answer is encoded when the one before was sent: to a side that does not
// read, no more than one is in memory as it goes out.
func (p *Peer) answer(seq int64, data any, err error) error {
	p.answering.Lock()
	defer p.answering.Unlock()
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	var message []byte
	if err == nil {
		message, err = encodeAnswer(seq, data)
	}
	if err != nil {
		message, err = Encode(langbot.Response{
			SeqID: seq, Code: 1, Message: cutError(p.errorText(err)), Data: json.RawMessage("{}"), ChunkStatus: "continue",
		})
		if err != nil {
			return err
		}
	}
	return p.o.Conn.Send(p.ctx, message)
}

func encodeAnswer(seq int64, data any) ([]byte, error) {
	raw := json.RawMessage("{}")
	if data != nil {
		var err error
		if raw, err = Encode(data); err != nil {
			return nil, fmt.Errorf("encode the answer: %w", err)
		}
	}
	message, err := Encode(langbot.Response{SeqID: seq, Message: "success", Data: raw, ChunkStatus: "continue"})
	if err == nil && len(message) > MaxMessage {
		err = &actionError{fmt.Sprintf("%s: the answer is a message of %d bytes, and %d is the limit", langbot.ClassError, len(message), MaxMessage)}
	}
	return message, err
}

func (p *Peer) errorText(err error) string {
	if a, ok := errors.AsType[*actionError](err); ok {
		return a.text
	}
	if p.o.ErrorText != nil {
		return p.o.ErrorText(err)
	}
	return err.Error()
}
