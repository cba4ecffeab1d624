package process

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

// Limits of one Read.
const (
	maxRead     = 1 << 20
	defaultRead = chunk
	maxReadWait = time.Minute
)

// begun answers a Start that does not stream.
func begun(c *Command, stream *connect.ServerStream[guestv1.Event]) error {
	if c.proc == nil {
		return execSink{stream}.exit(c.exit)
	}
	return stream.Send(&guestv1.Event{Event: &guestv1.Event_Started_{
		Started: &guestv1.Event_Started{Pid: uint32(c.PID())},
	}})
}

// Read returns what one stream has from an offset on.
func (s *execService) Read(ctx context.Context, req *connect.Request[guestv1.ReadRequest]) (*connect.Response[guestv1.ReadResponse], error) {
	c, err := s.engine.Get(req.Msg.GetId())
	if err != nil {
		return nil, coded(err)
	}
	var stream journal.Stream
	switch req.Msg.GetStream() {
	case guestv1.Stream_STREAM_STDOUT:
		stream = journal.Stdout
	case guestv1.Stream_STREAM_STDERR:
		stream = journal.Stderr
	default:
		return nil, coded(fmt.Errorf("%w: no stream is named", ErrInvalid))
	}
	size := int(req.Msg.GetMaxBytes())
	if size == 0 {
		size = defaultRead
	}
	if size > maxRead {
		return nil, coded(fmt.Errorf("%w: %d bytes at once, of at most %d", ErrInvalid, size, maxRead))
	}
	wait := min(time.Duration(req.Msg.GetWaitMs())*time.Millisecond, maxReadWait)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.engine.ctx, cancel)()
	defer c.attend()()
	m, err := c.read(ctx, stream, offset(req.Msg.GetOffset()), offset(req.Msg.GetRelease()), size)
	if err != nil {
		return nil, coded(err)
	}
	return connect.NewResponse(m), nil
}

// read waits for output, and at its end for the command's.
func (c *Command) read(ctx context.Context, s journal.Stream, from, release int64, size int) (*guestv1.ReadResponse, error) {
	ev, state := c.out.Read(ctx, s, from, release, size)
	m := &guestv1.ReadResponse{Offset: uint64(ev.Offset), Data: ev.Data}
	if state == journal.Ended {
		m.Ended = true
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
	if err := context.Cause(c.e.ctx); err != nil {
		return nil, err
	}
	if exit, ended := c.Exit(); ended {
		m.Exit = exitMessage(exit)
	}
	return m, nil
}

// attend keeps a command that waits for a follower while it is read.
func (c *Command) attend() (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers++
	if c.orphan != nil {
		c.orphan.Stop()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.readers--; c.readers == 0 && !c.out.Followed() {
			c.awaitFollowerLocked()
		}
	}
}

// sink is a protocol's side of a stream. An error ends the stream.
type sink interface {
	output(journal.Event) error // the data is the caller's again after
	keepalive() error
	exit(Exit) error
}

// stream sends what a follower reads, and then the exit. It returns when the
// exit was sent, sending failed or ctx ended.
func (c *Command) stream(ctx context.Context, f *Follower, every time.Duration, to sink) error {
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	quiet := time.NewTimer(every)
	defer quiet.Stop()
	for {
		ev, state := f.Next(buf[:])
		done := c.done
		switch state {
		case journal.Ready:
			if err := to.output(ev); err != nil {
				return err
			}
			continue
		case journal.Idle:
			done = nil // there is output to come first
		case journal.Ended:
		}
		quiet.Reset(every)
		select {
		case <-f.Wake():
		case <-done:
			return to.exit(c.exit)
		case <-quiet.C:
			if err := to.keepalive(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.e.ctx.Done():
			return context.Cause(c.e.ctx)
		}
	}
}
