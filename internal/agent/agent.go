// Package agent is the one client of the guest agent: all that the host, and a
// program that asks a daemon, say to the agent of a sandbox is said here. It
// runs commands and follows them, moves archives, and asks what walls and gates
// have to ask. A connection is the caller's to make: a unix socket, a
// channel into a virtual machine, or a way through the daemon.
//
// What the agent answers is hostile: output is handed on in pieces of bounded
// size and bounded in all by the caller, and an answer that is none is an
// error. No text of the guest becomes part of an error of this package, but
// for a refusal, which is escaped and bounded.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
)

const (
	maxMessage = 4 << 20 // bytes of one message of the guest
	maxAnswer  = 1 << 20
	maxReason  = 400 // bytes of a guest's refusal

	// base stands before the paths of an agent, whose address is its connection.
	base = "http://guest"

	// idleTimeout is how long a connection is kept that nothing goes over.
	idleTimeout = 15 * time.Second
)

// Dial connects to the guest agent.
type Dial func(ctx context.Context) (net.Conn, error)

// Guest is one sandbox's agent, for several at once. Its connections are used
// again, and given up when idle. Close it after use.
type Guest struct {
	dial Dial
	http *http.Client
	rpc  guestv1connect.ExecServiceClient
}

// New returns a Guest that is reached by dial.
func New(dial Dial) *Guest {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := dial(ctx)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrUnreached, err)
			}
			return c, nil
		},
		DisableCompression:     true,
		MaxIdleConns:           4,
		MaxResponseHeaderBytes: maxHead,
		IdleConnTimeout:        idleTimeout,
	}}
	return &Guest{dial: dial, http: c, rpc: guestv1connect.NewExecServiceClient(c, base, connect.WithReadMaxBytes(maxMessage))}
}

// Close gives up idle connections.
func (g *Guest) Close() { g.http.CloseIdleConnections() }

// ErrBroken is the cause of an error for a guest that went away, or that
// answers nonsense.
var ErrBroken = errors.New("the guest broke off")

// refused tells what a guest does not want to do from one that broke off.
func refused(err error) error {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeUnauthenticated, connect.CodeNotFound, connect.CodeFailedPrecondition, connect.CodePermissionDenied:
		if e, ok := errors.AsType[*connect.Error](err); ok {
			return &Refusal{Text: fmt.Sprintf("%.*q", maxReason, e.Message())}
		}
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

// Refusal is the guest's own reason, escaped and bounded.
type Refusal struct {
	Text     string
	notThere bool // what it is about
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Text }

// Extract puts a tar stream into the directory dir, as root and for owner; a
// directory that is there stays as it is. The agent bounds it, and refuses
// what would leave dir.
func (g *Guest) Extract(ctx context.Context, dir, owner string, tar io.Reader) error {
	q := url.Values{"path": {dir}, "user": {"root"}, "owner": {owner}}
	return g.send(ctx, http.MethodPost, "/carboy/archive?"+q.Encode(), tar, nil)
}

// Put puts a tar stream at a path, with the rights of the sandbox's own user: into the directory
// that is there, or where as is set as its one top entry's new name. skipped says what was
// left out first, and why; "": nothing was.
func (g *Guest) Put(ctx context.Context, path string, as bool, tar io.Reader) (skipped string, err error) {
	q := url.Values{"path": {path}}
	if as {
		q.Set("mode", "as")
	}
	var res struct {
		Skipped []struct{ Name, Reason string } `json:"skipped"`
	}
	err = g.send(ctx, http.MethodPost, "/carboy/archive?"+q.Encode(), tar, func(r io.Reader) error {
		if err := json.NewDecoder(io.LimitReader(r, maxAnswer)).Decode(&res); err != nil {
			return fmt.Errorf("%w: %w", ErrBroken, err)
		}
		return nil
	})
	if err == nil && len(res.Skipped) > 0 {
		skipped = fmt.Sprintf("%.*q: %.*q", maxReason, res.Skipped[0].Name, maxReason, res.Skipped[0].Reason)
	}
	return skipped, err
}

// Do sends a request, with a body of that media type unless it is nil, to a path of
// the agent's. No redirect is followed. The caller closes the answer's body, and
// bounds what it reads of it.
func (g *Guest) Do(ctx context.Context, method, path, media string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", media)
	}
	return g.http.Do(req)
}

// send sends a request, with a tar stream unless body is nil, and hands the body
// of a good answer to take, if take is not nil. An answer that is no refusal
// either is ErrBroken.
func (g *Guest) send(ctx context.Context, method, path string, body io.Reader, take func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := g.Do(ctx, method, path, "application/x-tar", body)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 && take != nil {
		return take(resp.Body)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if resp.StatusCode/100 == 2 {
		return nil
	}
	var refusal struct {
		Message string `json:"message"`
	}
	missing := resp.StatusCode == http.StatusNotFound
	switch bad := json.Unmarshal(answer, &refusal) != nil || refusal.Message == ""; {
	case bad && missing:
		refusal.Message = "not found"
	case bad:
		return fmt.Errorf("%w: %s answers with status %d", ErrBroken, resp.Request.URL.Path, resp.StatusCode)
	}
	return &Refusal{Text: fmt.Sprintf("%.*q", maxReason, refusal.Message), notThere: missing}
}
