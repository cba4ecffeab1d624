package gitgate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/gitgate/pktline"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// httpsUpstream is reached by HTTPS, by the smart protocol.
type httpsUpstream struct {
	remote string
	place  gitremote.Place
	keys   Keys
	client *http.Client
}

const maxRedirects = 5

func newHTTPS(remote string, p gitremote.Place, keys Keys, dial Dial, roots *x509.CertPool) *httpsUpstream {
	u := &httpsUpstream{remote: remote, place: p, keys: keys}
	u.client = &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(ctx, dialTime)
				defer cancel()
				conn, err := dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return newIdle(conn), nil
			},
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    dialTime,
			MaxResponseHeaderBytes: 256 << 10,
			DisableKeepAlives:      true, // a credential is for one conversation
			DisableCompression:     true,
		},
		CheckRedirect: u.redirect,
	}
	return u
}

// redirect lets the first request be sent elsewhere on the same host. A credential would
// go along, and what is pushed.
func (u *httpsUpstream) redirect(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	if weak.On(weak.GitRedirected) {
		return nil
	}
	switch {
	case req.Method != http.MethodGet || len(via) > maxRedirects:
		return errors.New("upstream redirects where it may not")
	case req.URL.Scheme != from.Scheme || req.URL.Host != from.Host:
		return sandbox.Errorf(sandbox.Denied, "%s redirects to another host, %.200q, which was not asked for", u.place.Host, req.URL.Host).
			WithHint("have the sandbox's owner change the remote's URL, if that is where it is now")
	}
	return nil
}

// base is the repository's URL.
func (u *httpsUpstream) base() *url.URL {
	host := strings.TrimSuffix(net.JoinHostPort(u.place.Host, u.place.Port), ":443") // with the brackets of an address
	return &url.URL{Scheme: "https", Host: host, Path: strings.TrimSuffix(u.place.Path, "/")}
}

// open implements upstream.
func (u *httpsUpstream) open(ctx context.Context, service string) (conversation, error) {
	cred, err := u.keys.Credential(ctx, u.remote)
	if err != nil {
		return nil, unseen(err, "no credential for it can be had")
	}
	c := &httpsConversation{u: u, cred: cred, service: service, base: u.base()}
	ask := c.base.JoinPath("info", "refs")
	ask.RawQuery = "service=" + service
	res, err := c.do(ctx, http.MethodGet, ask, nil, 0, "advertisement")
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	if moved, ok := strings.CutSuffix(res.Request.URL.Path, "/info/refs"); ok {
		c.base.Path = moved
	}
	body := io.LimitReader(res.Body, maxAdvert)
	if err := skipService(pktline.NewReader(body), service); err != nil {
		return nil, fmt.Errorf("%s: %w", u.place.Host, err)
	}
	c.refs, err = readAdvert(body)
	return c, err
}

// skipService reads the line that says whose refs follow.
func skipService(r *pktline.Reader, service string) error {
	kind, data, err := r.Next()
	if err != nil || kind != pktline.Data || strings.TrimSpace(string(data)) != "# service="+service {
		return errors.New("no git server that speaks the smart protocol")
	}
	if kind, _, err = r.Next(); err != nil || kind != pktline.Flush {
		return errors.New("no git server that speaks the smart protocol")
	}
	return nil
}

// httpsConversation is one with a service by HTTPS.
type httpsConversation struct {
	u       *httpsUpstream
	cred    Credential
	service string
	base    *url.URL
	refs    *advert
	bodies  []io.Closer
}

func (c *httpsConversation) advert() *advert { return c.refs }
func (c *httpsConversation) said() string    { return "" }

// Close implements io.Closer.
func (c *httpsConversation) Close() error {
	for _, b := range c.bodies {
		_ = b.Close() // what was wanted of it was read
	}
	return nil
}

// call implements conversation.
func (c *httpsConversation) call(ctx context.Context, body io.Reader, size int64) (io.Reader, error) {
	res, err := c.do(ctx, http.MethodPost, c.base.JoinPath(c.service), body, size, "result")
	if err != nil {
		return nil, err
	}
	c.bodies = append(c.bodies, res.Body)
	return res.Body, nil
}

// do makes a request, and takes an answer of the right type alone.
func (c *httpsConversation) do(ctx context.Context, method string, to *url.URL, body io.Reader, size int64, answer string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "git/carboy")
	if body != nil {
		req.ContentLength = size // not every server takes a body in chunks
		req.Header.Set("Content-Type", "application/x-"+c.service+"-request")
		req.Header.Set("Accept", "application/x-"+c.service+"-result")
	}
	if c.cred != (Credential{}) {
		req.SetBasicAuth(c.cred.Username, c.cred.Password)
	}
	res, err := c.u.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if e, ok := errors.AsType[*sandbox.Error](err); ok {
			return nil, e
		}
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, which the agent does not need
		}
		return nil, fmt.Errorf("%s can't be reached: %w", c.u.place.Host, unplaced(err))
	}
	want := "application/x-" + c.service + "-" + answer
	if res.StatusCode == http.StatusOK && res.Header.Get("Content-Type") == want {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }() // it is refused
	return nil, c.refusal(res)
}

// refusal is what an answer means that is none.
func (c *httpsConversation) refusal(res *http.Response) error {
	says, _ := io.ReadAll(io.LimitReader(res.Body, maxWords)) // what there is of it
	switch {
	case res.StatusCode == http.StatusOK:
		return fmt.Errorf("%s is no git server that speaks the smart protocol", c.u.place.Host)
	case res.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s does not take the credential", c.u.place.Host)
	case strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") && len(bytes.TrimSpace(says)) > 0:
		return fmt.Errorf("%s answers %d: %w", c.u.place.Host, res.StatusCode, &remoteError{clip(words(string(says)), 1<<10)})
	}
	return fmt.Errorf("%s answers %d", c.u.place.Host, res.StatusCode)
}
