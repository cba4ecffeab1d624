package instance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// held is a connection over which a guest agent keeps its commands still. It
// is what they are held by: with its end they go on, whoever ends it. Nothing
// is frozen from outside: a frozen file system or control group would stay so
// when this process is killed, and a kernel of its own could not write back
// what it holds.
type held struct {
	conn net.Conn
	stop func() bool
}

// holdLimit bounds how long an agent may take to keep its commands still.
const holdLimit = time.Minute

// hold has the commands of a running instance kept still.
func (h *Host) hold(ctx context.Context, id string) (*held, error) {
	c, err := h.Dial(ctx, id, sandbox.GuestPort)
	if err != nil {
		return nil, err
	}
	if err := c.SetReadDeadline(time.Now().Add(holdLimit)); err != nil {
		c.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	_, err = fmt.Fprint(c, "POST /carboy/hold HTTP/1.1\r\nHost: guest\r\nContent-Length: 0\r\n\r\n")
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(bufio.NewReaderSize(io.LimitReader(c, maxHead), 4096), nil) //nolint:bodyclose // it ends with the connection
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = sandbox.Errorf(sandbox.Unavailable, "the sandbox's commands did not come to a stop, so that no moment of its files could be kept").
			WithHint("try again, or stop the sandbox first")
	}
	if err != nil {
		stop()
		c.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("hold the commands still: %w", err)
	}
	return &held{c, stop}, nil
}

// release lets the commands go on.
func (b *held) release() {
	b.stop()
	b.conn.Close()
}

// still fails where a command did not stay still.
func (h *Host) still(ctx context.Context, id string) error {
	if err := h.ask(ctx, id, http.MethodGet, "/carboy/hold"); err != nil {
		e := sandbox.Errorf(sandbox.Unavailable, "the sandbox's commands did not stay still while its files were copied").
			WithHint("try again, or stop the sandbox first")
		e.Err = err
		return e
	}
	return nil
}
