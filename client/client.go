// Package client is Carboy's Go SDK: sandboxes, and commands and files in
// them, through a daemon's unix socket or over HTTP with an API key.
//
// Exec and Hold outlive the daemon: where it dies they connect again and go
// on at the byte at which they were. Nothing else is done twice: a request is sent
// again, to the next daemon, where one that left has done nothing of it. The package
// refuses a URL that is not http or https, and never puts a key into an error.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	dialTimeout = 10 * time.Second
	idleTimeout = 30 * time.Second
	idleConns   = 64
)

// Options say where the daemon is. One of Socket and URL is needed.
type Options struct {
	Socket string // path of the daemon's unix socket, of any length
	URL    string // "http://host:port" or "https://host", with Key
	Key    string // an API key; for a URL only
	// Redial is called before each attempt to find a daemon that went away,
	// and may start one. Its error ends the attempt; and the call, unless that
	// is an Exec, Hold or Follow.
	Redial func(ctx context.Context) error
}

// Client talks to one daemon. It is safe for use by several goroutines.
type Client struct {
	base   string
	http   *http.Client // our own API
	guest  *http.Client // what is answered by a guest, unless the daemon had to
	redial func(ctx context.Context) error
	where  string // for errors
}

// New returns a client for the daemon that o names. It connects to nothing.
func New(o Options) (*Client, error) {
	c := &Client{redial: o.Redial}
	t := &http.Transport{
		MaxIdleConns:        idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleTimeout,
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
	}
	switch {
	case (o.Socket == "") == (o.URL == ""):
		return nil, sandbox.Errorf(sandbox.Invalid, "client: one of a socket and a URL is needed")
	case o.Socket != "":
		c.base, c.where = "http://unix", o.Socket
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := home.Dial(ctx, o.Socket)
			if err != nil {
				return nil, &unreached{err}
			}
			return conn, nil
		}
	default:
		u, err := url.Parse(o.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return nil, sandbox.Errorf(sandbox.Invalid, "client: the URL must be http://HOST[:PORT] or https://HOST[:PORT]")
		}
		c.base, c.where = strings.TrimRight(u.String(), "/"), u.Host
		t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
		t.Proxy = http.ProxyFromEnvironment
	}
	rt := &authTransport{base: t, key: o.Key}
	if u, err := url.Parse(c.base); err == nil { // as it was above
		rt.below = u.EscapedPath()
	}
	ours := rt
	if o.Redial != nil {
		// A daemon that leaves closes connections that are idle, and who has just
		// sent a request there could not know that nobody read it.
		fresh := t.Clone()
		fresh.DisableKeepAlives = true
		ours = &authTransport{base: fresh, key: rt.key, below: rt.below}
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &http.Client{Transport: ours, CheckRedirect: stay}
	c.guest = &http.Client{Transport: &guestTransport{base: rt}, CheckRedirect: stay}
	return c, nil
}

// Close closes connections that are idle.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.guest.CloseIdleConnections()
}

// authTransport adds the key. All requests go through it, so that it refuses those
// that would name nothing.
type authTransport struct {
	base  *http.Transport
	key   string
	below string // the path of the daemon's URL
}

func (t *authTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := checkNames(strings.TrimPrefix(r.URL.EscapedPath(), t.below)); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper does, whatever it returns
		}
		return nil, err
	}
	if t.key != "" {
		r = r.Clone(r.Context())
		r.Header.Set("X-API-KEY", t.key)
	}
	return t.base.RoundTrip(r)
}

func (t *authTransport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// guestTransport makes an error of what the daemon answered in the guest's
// place, so that RPC code does not take it for the guest's own words.
type guestTransport struct {
	base http.RoundTripper
}

func (t *guestTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err != nil || resp.Header.Get(api.HeaderError) == "" {
		return resp, err
	}
	defer resp.Body.Close()
	return nil, readError(resp)
}

// call sends one request with a JSON body (none where in is nil) and decodes
// the answer into out (dropped where nil).
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	resp, err := c.send(ctx, c.http, method, path, body, "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxError))
		return err
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("decode answer of %s %s: %w", method, path, err)
	}
	return nil
}

// send sends one request and returns an answer in 2xx, or an error.
func (c *Client) send(ctx context.Context, hc *http.Client, method, path string, body io.Reader, contentType string) (*http.Response, error) {
	return c.sendAccepting(ctx, hc, method, path, body, contentType, "")
}

// sendAccepting is send for an answer in a form that has to be asked for; "": it has not.
// A request of which nothing was done, as the daemon leaves, is sent to the next one.
func (c *Client) sendAccepting(ctx context.Context, hc *http.Client, method, path string, body io.Reader, contentType, accept string) (*http.Response, error) {
	var b agent.Backoff
	for {
		req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
		if err != nil {
			return nil, fmt.Errorf("make request: %w", err)
		}
		if body != nil {
			req.Header.Set("Content-Type", contentType)
		}
		if accept != "" {
			req.Header.Set("Accept", accept)
		}
		resp, err := c.do(ctx, hc, req)
		if err == nil {
			return resp, nil
		}
		if body != nil && req.GetBody == nil { // it was read, or some of it
			return nil, err
		}
		if err := c.nextDaemon(ctx, err, &b); err != nil {
			return nil, err
		}
		if body != nil {
			if body, err = rewound(req); err != nil {
				return nil, err
			}
		}
	}
}

// rewound is the body of a request that was sent, as http.NewRequest knows it.
func rewound(req *http.Request) (io.Reader, error) {
	again, err := req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("send again: %w", err)
	}
	b, err := io.ReadAll(again)
	return bytes.NewReader(b), err
}

func (c *Client) do(ctx context.Context, hc *http.Client, req *http.Request) (*http.Response, error) {
	resp, err := hc.Do(req)
	if err != nil {
		return nil, c.sendError(ctx, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, readError(resp)
}

// nextDaemon returns nil once a request that failed by err may be sent again: the
// daemon that left has done nothing of it, and another answers. Otherwise it says why
// not.
func (c *Client) nextDaemon(ctx context.Context, err error, b *agent.Backoff) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.Again || c.redial == nil || !b.Wait(ctx) {
		return err
	}
	return c.redial(ctx)
}

// unreached is why no connection came about.
type unreached struct{ err error }

func (u *unreached) Error() string { return u.err.Error() }
func (u *unreached) Unwrap() error { return u.err }

// sendError tells apart an end of ctx, an answer of the daemon, and no answer.
func (c *Client) sendError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the URL says nothing to a user
	}
	_, unsent := errors.AsType[*unreached](err)
	return &Error{
		Kind:  Unavailable,
		Msg:   fmt.Sprintf("daemon at %s: no answer", c.where),
		Hint:  "carboy daemon status",
		Err:   err,
		Again: unsent,
	}
}

// lost reports whether err is that of a daemon that did not answer, and can be looked for.
func (c *Client) lost(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == Unavailable && e.Err != nil && c.redial != nil
}

// dialAgain lets the caller start a daemon anew. A failure is only one more
// lost attempt.
func (c *Client) dialAgain(ctx context.Context) {
	if c.redial != nil {
		_ = c.redial(ctx) // the attempt that follows fails and tells why
	}
}
