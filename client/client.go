// Package client is Carboy's Go SDK: sandboxes, and commands and files in
// them, through a daemon's unix socket or over HTTP with an API key.
//
// Exec and Hold outlive the daemon: where it dies they connect again and go
// on at the byte at which they were. Nothing else is sent twice. The package
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
	// and may start one. Its error ends the attempt, not the call.
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
			return home.Dial(ctx, o.Socket)
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
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &http.Client{Transport: rt, CheckRedirect: stay}
	c.guest = &http.Client{Transport: &guestTransport{base: rt}, CheckRedirect: stay}
	return c, nil
}

// Close closes connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// authTransport adds the key.
type authTransport struct {
	base *http.Transport
	key  string
}

func (t *authTransport) RoundTrip(r *http.Request) (*http.Response, error) {
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
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
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
	return &Error{
		Kind: Unavailable,
		Msg:  fmt.Sprintf("daemon at %s: no answer", c.where),
		Hint: "carboy daemon status",
		Err:  err,
	}
}

// dialAgain lets the caller start a daemon anew. A failure is only one more
// lost attempt.
func (c *Client) dialAgain(ctx context.Context) {
	if c.redial != nil {
		_ = c.redial(ctx) // the attempt that follows fails and tells why
	}
}
