package pod

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Handler answers what is asked of a pod.
type Handler interface {
	// Handle answers a method, by events to c. An *Error that it returns is told to who asked; any
	// other ends the connection. Connections are answered at once, the methods of one in turn.
	Handle(ctx context.Context, c *Conn, m Method) error
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, c *Conn, m Method) error

// Handle implements Handler.
func (f HandlerFunc) Handle(ctx context.Context, c *Conn, m Method) error { return f(ctx, c, m) }

// Serve is the server's half: it answers the connections of l until ctx ends or l fails, and
// returns when all are closed. A connection on which nothing is said, and a line that is no
// method, end nothing: the latter is answered with CodeInvalidRequest.
func Serve(ctx context.Context, l net.Listener, h Handler, o Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel(net.ErrClosed)
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		conns.Go(func() { answer(ctx, NewConn(c, o), h) })
	}
}

func answer(ctx context.Context, c *Conn, h Handler) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	for {
		m, err := c.Method()
		if err == nil {
			err = h.Handle(ctx, c, m)
		}
		said, told := errors.AsType[*Error](err)
		if line, over := errors.AsType[*LineError](err); over {
			said, told = &Error{Code: CodeInvalidRequest, Message: line.Error()}, true
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF) || !told:
			return
		}
		e, err := NewEvent(EventError, said)
		if err != nil || c.Tell(e) != nil {
			return
		}
	}
}
