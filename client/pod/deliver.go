package pod

import (
	"context"
	"errors"
	"fmt"
)

// Deliver has a pod run, and waits until it has taken it: until it says what it was given, or that
// a turn began. It reads while it sends, so that a pod that writes a long snapshot first is
// no deadlock; it needs no snapshot. The connection is closed in the end.
//
// A pod's refusal is an *Error; one that goes away is ErrClosed; ctx's end its cause.
func Deliver(ctx context.Context, c *Conn, input []Segment) error {
	m, err := NewMethod(MethodRun, Run{Input: input})
	if err != nil {
		c.Close()
		return err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	sent := make(chan error, 1)
	go func() { sent <- c.Send(m) }()
	heard := c.taken()
	if heard != nil {
		c.Close() // which ends a Send that nobody reads
	}
	drained := c.drain() // for who says yes before it has read all
	said := <-sent
	c.Close()
	<-drained
	switch {
	case ctx.Err() != nil && (heard != nil || said != nil):
		return context.Cause(ctx)
	case heard != nil:
		return ended(heard)
	case said != nil:
		return fmt.Errorf("send the task: %w", ended(said))
	}
	return nil
}

// taken reads events until one says that a run was taken, or was not.
func (c *Conn) taken() error {
	for {
		e, err := c.Event()
		if _, over := errors.AsType[*LineError](err); over {
			continue // a snapshot may be longer than anybody wants to keep
		}
		if err != nil {
			return err
		}
		switch e.Name {
		case EventUserMessage, EventTurnStart:
			return nil
		case EventInvokeStart:
			var i InvokeStart
			if e.Into(&i) == nil && i.Kind == InvokeUserSend {
				return nil
			}
		case EventError:
			said := new(Error)
			if err := e.Into(said); err != nil {
				said = &Error{Code: CodeInternal, Message: "it said no more"}
			}
			return said
		}
	}
}

// Ask sends a method that is not waited for, reading meanwhile until it is sent, and closes the
// connection.
func Ask(ctx context.Context, c *Conn, m Method) error {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	drained := c.drain()
	err := c.Send(m)
	c.Close()
	<-drained
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return ended(err)
}

// drain reads, and forgets, until the connection ends or is closed, which closes the channel.
func (c *Conn) drain() <-chan struct{} {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for {
			_, err := c.line()
			if _, over := errors.AsType[*LineError](err); err != nil && !over {
				return
			}
		}
	}()
	return drained
}
