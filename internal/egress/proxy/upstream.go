package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// protocol is what is spoken to an upstream.
type protocol uint8

const (
	http1    protocol = iota // for guests that speak it, and for upgrades
	http2or1                 // as the upstream offers, in TLS
	http2                    // in TLS for gRPC; in the clear by prior knowledge
)

// destination is all that decides whether two requests may share a connection.
type destination struct {
	addrs    string // each of them, sorted, with commas between
	name     string // whose certificate is wanted; "" without TLS
	tls      bool
	protocol protocol
	roots    [sha256.Size]byte // of the PEM; zero: the gate's
	rule     string            // of a route that has secrets: nothing else travels beside them
}

// target is a destination with what is needed to reach it.
type target struct {
	destination
	dial  []netip.AddrPort
	roots string
}

// upstreams keep connections, in a transport for each destination: what is in
// one can't be used for another.
type upstreams struct {
	p  *Proxy
	mu sync.Mutex // guards what follows
	by map[destination]*upstream
	n  uint64
}

type upstream struct {
	transport *http.Transport
	used      uint64
}

func newUpstreams(p *Proxy) *upstreams {
	return &upstreams{p: p, by: map[destination]*upstream{}}
}

// to returns the transport for a target. It dials the target's addresses,
// whatever a request's URL says.
func (u *upstreams) to(t target) (*http.Transport, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n++
	key := t.destination
	if weak.On(weak.NetPoolShared) {
		key = destination{tls: t.tls, protocol: t.protocol}
	}
	if up, ok := u.by[key]; ok {
		up.used = u.n
		return up.transport, nil
	}
	tr, err := u.p.transport(t)
	if err != nil {
		return nil, err
	}
	u.by[key] = &upstream{transport: tr, used: u.n}
	if len(u.by) > maxUpstreams {
		u.forgetLocked()
	}
	return tr, nil
}

// forgetLocked lets go of the destination that was used least lately. Requests
// under way end as they would.
func (u *upstreams) forgetLocked() {
	var oldest destination
	least := u.n
	for d, up := range u.by {
		if up.used < least {
			oldest, least = d, up.used
		}
	}
	u.by[oldest].transport.CloseIdleConnections()
	delete(u.by, oldest)
}

// close ends what is not in use.
func (u *upstreams) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, up := range u.by {
		up.transport.CloseIdleConnections()
	}
	clear(u.by)
}

const (
	maxResponseHead = 256 << 10
	idleUpstream    = 90 * time.Second
)

func (p *Proxy) transport(t target) (*http.Transport, error) {
	tr := &http.Transport{
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		ReadBufferSize:         smallBuffer,
		WriteBufferSize:        smallBuffer,
		IdleConnTimeout:        idleUpstream,
		MaxResponseHeaderBytes: maxResponseHead,
		ExpectContinueTimeout:  p.o.Timeouts.Continue,
		TLSHandshakeTimeout:    p.o.Timeouts.Handshake,
		Protocols:              new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			// What an upstream may have the gate hold for slow guests: enough of
			// one stream for a long way, and not as much of each of a hundred.
			MaxReceiveBufferPerConnection: 32 << 20,
			MaxReceiveBufferPerStream:     4 << 20,
			SendPingTimeout:               30 * time.Second,
			PingTimeout:                   15 * time.Second,
		},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return p.dial(ctx, t.dial)
		},
	}
	tr.Protocols.SetHTTP1(t.protocol != http2)
	tr.Protocols.SetHTTP2(t.protocol != http1 && t.tls)
	tr.Protocols.SetUnencryptedHTTP2(t.protocol == http2 && !t.tls)
	if !t.tls {
		return tr, nil
	}
	config, err := p.clientTLS(t)
	if err != nil {
		return nil, err
	}
	tr.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return p.dialTLS(ctx, t, config)
	}
	return tr, nil
}

// clientTLS verifies an upstream: its name, its validity and its signers.
func (p *Proxy) clientTLS(t target) (*tls.Config, error) {
	config := &tls.Config{
		ServerName:                  t.name,
		RootCAs:                     p.roots(),
		MinVersion:                  tls.VersionTLS12,
		ClientSessionCache:          tls.NewLRUClientSessionCache(8),
		DynamicRecordSizingDisabled: true,
		InsecureSkipVerify:          weak.On(weak.NetUpstreamUnverified), // false, but in tests of the tests
	}
	switch t.protocol {
	case http1:
		config.NextProtos = []string{"http/1.1"}
	case http2or1:
		config.NextProtos = []string{"h2", "http/1.1"}
	case http2:
		config.NextProtos = []string{"h2"}
	}
	if t.roots != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(t.roots)) {
			return nil, errors.New("the rule's roots hold no certificate")
		}
	}
	return config, nil
}

func (p *Proxy) dialTLS(ctx context.Context, t target, config *tls.Config) (net.Conn, error) {
	raw, err := p.dial(ctx, t.dial)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, config)
	if d := p.o.Timeouts.Handshake; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	if err := c.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, &handshakeError{err: err}
	}
	if t.protocol == http2 && c.ConnectionState().NegotiatedProtocol != "h2" {
		c.Close()
		return nil, &handshakeError{err: errNoHTTP2}
	}
	return c, nil
}

var errNoHTTP2 = errors.New("the upstream speaks no HTTP/2, which gRPC needs")

// handshakeError says that TLS with an upstream failed: nothing was sent.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "tls: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// dialFailed says what became of a dial.
func dialFailed(err error, host string) *Refusal {
	r := refuse(http.StatusBadGateway, CodeUpstream, "no connection to "+shown(host)+": "+shortly(err))
	if why, ok := errors.AsType[*Refusal](err); ok {
		r = why
	}
	r.Host = host
	return r
}

// upstreamFailed says why a request was not answered. What the upstream sent
// is in no error: it might be anything.
func upstreamFailed(err error, host string) *Refusal {
	if _, ok := errors.AsType[*dialError](err); ok {
		return dialFailed(err, host)
	}
	r := refuse(http.StatusBadGateway, CodeUpstream, shown(host)+" did not answer: "+shortly(err))
	if h, ok := errors.AsType[*handshakeError](err); ok {
		r.Reason = "no TLS with " + shown(host) + ": " + shortly(err)
		if why := untrusted(h.err); why != "" {
			r = refuse(http.StatusBadGateway, CodeUntrusted, "the certificate of "+shown(host)+" does not verify: "+why)
			r.Hint = "a rule for the host may name its own roots"
		}
	}
	r.Host = host
	return r
}

// untrusted says what is wrong with a certificate, "" where nothing is.
func untrusted(err error) string {
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return "it is for other names" + namesOf(e.Certificate)
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired {
			return "it has expired, or is not valid yet"
		}
		return "it is not valid"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "it is signed by an unknown authority"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "it is not valid"
	}
	return ""
}

// namesOf lists a few names of a certificate.
func namesOf(c *x509.Certificate) string {
	if c == nil || len(c.DNSNames) == 0 {
		return ""
	}
	var names []string
	for _, n := range c.DNSNames[:min(len(c.DNSNames), 3)] {
		names = append(names, shown(n))
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// shortly is an error in words of our own.
func shortly(err error) string {
	var nerr net.Error
	switch {
	case errors.Is(err, errNoHTTP2):
		return errNoHTTP2.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &nerr) && nerr.Timeout():
		return "it took too long"
	case errors.Is(err, errRefused):
		return "connection refused"
	case errors.Is(err, errReset):
		return "connection reset"
	case errors.Is(err, errUnreachable), errors.Is(err, errHostUnreachable):
		return "unreachable"
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return fmt.Sprintf("TLS alert %d", uint8(alert))
	}
	return "the connection broke off, or what came is no HTTP"
}

// roots are whom upstreams may be signed by; nil: the machine's.
func (p *Proxy) roots() *x509.CertPool {
	if p.o.Roots == nil {
		return nil
	}
	return p.o.Roots()
}
