package ingress

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/loopback"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// rawProtocol is what a connection becomes that is passed on unread.
const rawProtocol = "tcp"

// ServeRaw makes the connection of a request one to a port of a sandbox, byte
// for byte both ways: GET /v1/sandboxes/{id}/ports/{port} with Upgrade: tcp.
func (in *Ingress) ServeRaw(w http.ResponseWriter, r *http.Request) {
	sb, port, err := in.ownPort(r)
	if err != nil {
		wire.Error(w, err)
		return
	}
	in.Become(w, r, sb.ID, rawProtocol, func(ctx context.Context) (net.Conn, error) {
		return in.m.Dial(ctx, auth.Of(r).Caller, sb.ID, port)
	})
}

// Become makes the connection of a request one that dial makes, byte for byte both ways, where the request asks for an upgrade
// to the protocol. id is of the sandbox whose share of connections it counts against.
func (in *Ingress) Become(w http.ResponseWriter, r *http.Request, id, protocol string, dial func(context.Context) (net.Conn, error)) {
	if r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), protocol) {
		wire.Error(w, sandbox.Errorf(sandbox.Invalid, "this is reached by an upgrade of the connection to %s, over HTTP/1.1", protocol).
			WithHint("send Connection: Upgrade and Upgrade: %s", protocol))
		return
	}
	if auth.Of(r).Peer == nil {
		leave, ok := in.flows.enter(id)
		if !ok {
			wire.Error(w, sandbox.Errorf(sandbox.Exhausted, "more than %d requests to this sandbox are under way", maxFlows))
			return
		}
		defer leave()
	}
	inside, err := dial(r.Context())
	if err != nil {
		wire.Error(w, err)
		return
	}
	defer inside.Close()
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		wire.Error(w, sandbox.Errorf(sandbox.Unsupported, "this connection can't be upgraded"))
		return
	}
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\n"
	if _, err := c.Write([]byte(head)); err != nil {
		_ = c.Close()
		return
	}
	loopback.Join(r.Context(), &hijacked{c, buffered.Reader}, inside)
}

// ServeOffer makes the connection of a request one on which a service is offered
// to a sandbox: POST /v1/sandboxes/{id}/offers/{service} with Upgrade: carboy-offer.
func (in *Ingress) ServeOffer(w http.ResponseWriter, r *http.Request) {
	sb, err := in.m.Get(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	if err != nil {
		wire.Error(w, err)
		return
	}
	in.Become(w, r, sb.ID, offer.Protocol, func(ctx context.Context) (net.Conn, error) {
		return in.m.OfferService(ctx, auth.Of(r).Caller, sb.ID, r.PathValue("service"))
	})
}

// hijacked is a connection of which something may have been read already.
type hijacked struct {
	net.Conn
	r *bufio.Reader
}

// Read implements io.Reader.
func (c *hijacked) Read(b []byte) (int, error) { return c.r.Read(b) }

// CloseWrite ends the direction to the other end.
func (c *hijacked) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// NetConn is the connection below.
func (c *hijacked) NetConn() net.Conn { return c.Conn }

// ownPort finds the caller's own sandbox that a path names, and the port.
func (in *Ingress) ownPort(r *http.Request) (*sandbox.Sandbox, int, error) {
	port := parsePort(r.PathValue("port"))
	if port == 0 {
		return nil, 0, sandbox.Errorf(sandbox.Invalid, "port %.20q: there is no such port", r.PathValue("port")).WithHint("from 1 to 65535")
	}
	if err := sandbox.CheckPort(port); err != nil {
		return nil, 0, err
	}
	sb, err := in.m.Get(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	return sb, port, err
}
