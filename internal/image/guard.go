package image

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    15 * time.Second,
		ResponseHeaderTimeout:  stall,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true, // blobs are hashed as they are stored
	}
}

// outsideTransport looks at the address that is dialled, so that no name that
// changes its address between two looks gets past it. Behind a proxy it is the
// proxy that dials, and the look before is all there is.
func outsideTransport() http.RoundTripper {
	direct, proxied := newTransport(), newTransport()
	direct.Proxy = nil
	direct.DialContext = (&net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second, Control: dialOutside}).DialContext
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if proxy, err := http.ProxyFromEnvironment(req); err != nil || proxy != nil {
			return proxied.RoundTrip(req)
		}
		return direct.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func dialOutside(_, address string, _ syscall.RawConn) error {
	if inward(address) {
		return notOutside(address)
	}
	return nil
}

func notOutside(host string) error {
	return sandbox.Errorf(sandbox.Denied, "registry %s: it is inside this host or its networks, which a key does not reach", term.Escape(short(host)))
}

// checkOutside refuses a host that is inside, or has a name that leads there.
// A name that can't be looked up is the transport's to complain about.
func checkOutside(ctx context.Context, host string) error {
	if inward(host) {
		return notOutside(host)
	}
	if _, err := netip.ParseAddr(hostOnly(host)); err == nil {
		return nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", hostOnly(host))
	if err != nil {
		return nil
	}
	for _, ip := range ips {
		if inward(ip.String()) {
			return notOutside(host)
		}
	}
	return nil
}

// guard stands below everything that asks, token exchanges and redirects
// included.
type guard struct {
	inner    http.RoundTripper
	outside  http.RoundTripper // if set, takes the place of inner, and nothing inside may be asked
	registry string
	local    bool // the registry is this machine's
}

// busy is an answer that is worth another try.
type busy struct {
	status int
	after  time.Duration // that the registry asked to wait, or 0
}

func (b *busy) Error() string { return fmt.Sprintf("status %d", b.status) }

// RoundTrip refuses what must not be asked, and turns the answers that are
// worth another try into errors.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	host, inner := req.URL.Host, g.inner
	switch {
	case req.URL.Scheme == "http" && (!g.local || !loopback(host)):
		return nil, sandbox.Errorf(sandbox.Denied, "registry %s: HTTPS fails, and plain HTTP is for registries of this machine alone", term.Escape(short(host)))
	case host != g.registry && !g.local && inward(host):
		return nil, sandbox.Errorf(sandbox.Denied, "registry %s: it sends on to %s, an address inside", g.registry, term.Escape(short(host)))
	}
	if g.outside != nil {
		if err := checkOutside(req.Context(), host); err != nil {
			return nil, err
		}
		inner = g.outside
	}
	resp, err := inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		resp.Body.Close()
		return nil, &busy{resp.StatusCode, retryAfter(resp.Header.Get("Retry-After"))}
	}
	return resp, nil
}

// retryAfter reads a number of seconds. A date is not worth a clock that both
// sides agree on: it counts as not said.
func retryAfter(s string) time.Duration {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}
