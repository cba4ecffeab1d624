package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	inputPiece = 1 << 20
	// inputTry is for how long one call may wait for the process to read; then
	// the same is sent again, of which the guest leaves out what it has.
	inputTry = 30 * time.Second
)

// input is what is written to the process. It belongs to whoever has the
// turn.
type input struct {
	turn  chan struct{}
	known bool  // acked is
	acked int64 // bytes that the process was given
	deaf  bool  // Info says that it reads no more
	quit  context.Context
	stop  context.CancelCauseFunc
}

// writeLine writes a line and its newline. Once begun it is written to its
// end, though ctx ends: half a line would spoil the next.
func (p *Process) writeLine(ctx context.Context, line []byte) error {
	if len(line) > MaxLine {
		return sandbox.Errorf(sandbox.Invalid, "a line of %d bytes: at most %d", len(line), MaxLine)
	}
	select {
	case p.in.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ended:
		return ErrEnded
	}
	if err := errors.Join(ctx.Err(), context.Cause(p.in.quit)); err != nil {
		<-p.in.turn
		return err
	}
	data := make([]byte, 0, len(line)+1)
	data = append(append(data, line...), '\n')
	done := make(chan error, 1)
	go func() { // leave waits for the turn's end by p.ctx
		defer func() { <-p.in.turn }()
		err := p.push(data)
		if errors.Is(err, ErrEnded) && !p.in.deaf && p.Running() {
			p.in.deaf = true
			p.Notice("it reads no more input: what it is sent goes nowhere")
		}
		done <- err
	}()
	select {
	case err := <-done:
		p.touch.now(p.o.OnUse)
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ended:
		return ErrEnded
	}
}

// push writes one line, for the holder of the turn.
func (p *Process) push(data []byte) error {
	if err := p.recall(); err != nil {
		return err
	}
	from := p.in.acked
	p.note(func(at *position) { at.inStart, at.inEnd = from, from+int64(len(data)) })
	for len(data) > 0 {
		n, err := p.give(data)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// give writes a piece of data, and returns how much that was. It is the
// smaller, the more often a connection breaks. A process that does not read
// is waited for by many calls; it is not the connection's fault.
func (p *Process) give(data []byte) (n int, err error) {
	most := min(len(data), inputPiece)
	data = data[:most]
	var acked int64
	err = p.retry(p.in.quit, func(outer context.Context) (err error) {
		ctx, cancel := context.WithTimeout(outer, inputTry)
		defer cancel()
		acked, err = p.guest.Input(ctx, p.command, p.in.acked, data, false)
		if errors.Is(err, agent.ErrBroken) && ctx.Err() == nil {
			data = data[:min(len(data), max(len(data)/4, least))]
		}
		return err
	})
	n = int(acked - p.in.acked)
	switch {
	case errors.Is(err, agent.ErrEnded), errors.Is(err, agent.ErrUnknown):
		return 0, ErrEnded
	case err != nil:
		return 0, err
	case n < len(data) || n > most: // of a piece, more may have been written before it was made smaller
		return 0, fmt.Errorf("%w: it was not given what it has", agent.ErrBroken)
	}
	p.in.acked = acked
	return n, nil
}

// recall finds out how far a daemon before this one has written. A line that
// it left half written is ended, so that it does not spoil the next. It is
// asked for by an empty write: that waits for one which the guest has not yet
// given up, and which may still go on.
func (p *Process) recall() error {
	if p.in.known {
		return nil
	}
	err := p.retry(p.in.quit, func(outer context.Context) (err error) {
		ctx, cancel := context.WithTimeout(outer, inputTry)
		defer cancel()
		p.in.acked, err = p.guest.Input(ctx, p.command, 0, nil, false)
		return err
	})
	switch {
	case errors.Is(err, agent.ErrEnded), errors.Is(err, agent.ErrUnknown):
		return ErrEnded
	case err != nil:
		return err
	}
	p.mu.Lock()
	half := p.last.inStart < p.in.acked && p.in.acked < p.last.inEnd
	p.mu.Unlock()
	if half {
		if _, err := p.give([]byte{'\n'}); err != nil {
			return err
		}
	}
	p.in.known = true
	return nil
}

// endInput closes the process's input, if it can be done soon.
func (p *Process) endInput(ctx context.Context) {
	p.in.stop(ErrEnded)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = p.retry(ctx, func(ctx context.Context) error {
		_, err := p.guest.Input(ctx, p.command, 0, nil, true)
		return err
	})
}
