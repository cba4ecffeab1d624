package client

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/carboy-sandbox/carboy/api"
)

// PortConn is a connection to a port of a sandbox.
type PortConn interface {
	io.ReadWriteCloser
	// CloseWrite ends the direction to the sandbox alone.
	CloseWrite() error
}

// DialPort connects to a port of a running sandbox; ctx bounds the dialling
// alone. Where nothing listens there it is Unavailable. A daemon that went away
// is looked for once.
func (c *Client) DialPort(ctx context.Context, id string, port int) (PortConn, error) {
	conn, err := c.dialPort(ctx, id, port)
	if c.lost(err) {
		c.dialAgain(ctx)
		return c.dialPort(ctx, id, port)
	}
	return conn, err
}

func (c *Client) dialPort(ctx context.Context, id string, port int) (PortConn, error) {
	return c.become(ctx, http.MethodGet, path(id, "/ports/"+strconv.Itoa(port)), "tcp")
}

// become asks for a connection that becomes another protocol.
func (c *Client) become(ctx context.Context, method, path, protocol string) (PortConn, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.sendError(ctx, err)
	}
	conn, ok := resp.Body.(PortConn)
	if resp.StatusCode == http.StatusSwitchingProtocols && ok {
		return conn, nil
	}
	defer resp.Body.Close()
	return nil, readError(resp)
}

// OpenPort returns a link to a port of a sandbox that lets one browser of this
// user's in, once.
func (c *Client) OpenPort(ctx context.Context, id string, port int) (*api.OpenedPort, error) {
	return ask[api.OpenedPort](ctx, c, http.MethodPost, path(id, "/ports/"+strconv.Itoa(port)+"/open"), nil)
}
