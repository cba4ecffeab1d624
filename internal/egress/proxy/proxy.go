package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Policy decides. *policy.Set is one.
type Policy interface {
	Name(name string) policy.Verdict
	Connect(policy.Conn) policy.Verdict
	Stream(policy.Stream) policy.Verdict
	Request(policy.Request) policy.Verdict
	Policy() policy.Policy
	Service(name string) policy.Verdict
	Services() []string
	Revision() string
}

// Guard keeps secrets. *inject.Guard is one.
type Guard interface {
	Request(ctx context.Context, r *http.Request, route *policy.Route) (*inject.Exchange, *inject.Refusal)
	Response(resp *http.Response, x *inject.Exchange) *inject.Refusal
	Stream(x *inject.Exchange, header http.Header, up io.Writer, down io.Reader) (io.Writer, io.Reader)
}

// Options are what a Proxy works with. Policy, Names, Dial and Certificate are
// needed; ServeProxy needs Resolve.
type Options struct {
	// Policy is asked for anew at each decision. What it returns is compared:
	// another policy is another value, a pointer as a rule.
	Policy func() Policy
	// Names returns the names that the gate has resolved to an address.
	Names func(netip.Addr) []string
	// Resolve resolves a name as the sandbox's own question would be: with a
	// refusing verdict where policy or its answer forbids it.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, policy.Verdict, error)
	// Dial connects to an address, and may refuse it once more.
	Dial func(context.Context, netip.AddrPort) (net.Conn, error)
	// Certificate returns what the gate answers a TLS handshake for a name or
	// an address with.
	Certificate func(name string) (*tls.Certificate, error)
	Guard       Guard // nil: there are no secrets
	// Ask asks a person, and waits; begun is called once where it has to. nil: nobody
	// is there to ask, and the answer is no.
	Ask      func(ctx context.Context, q approval.Question, begun func()) approval.Outcome
	Services Services              // nil: nobody serves any
	Sandbox  string                // the ID that services are told
	Flows    *relay.Flows          // where connections are listed, and bounded; nil: nowhere
	Meter    *relay.Meter          // what rules have used up; nil: one of the proxy's own
	Roots    func() *x509.CertPool // whom upstreams may be signed by; nil: the machine's
	Record   func(netlog.Record)   // nil: nothing is recorded
	Now      func() time.Time      // nil: time.Now
	Log      *slog.Logger          // of what goes wrong in the gate itself; nil: discarded
	MaxConns int                   // connections at once; 0: defaultMaxConns
	Timeouts Timeouts              // zero fields have defaults
}

// Timeouts bound how long things take. Negative is no bound.
type Timeouts struct {
	Sniff     time.Duration // until a connection has said what it is: 10 s
	Handshake time.Duration // of TLS, on either side: 10 s
	Head      time.Duration // of a request, from its first byte on: 15 s
	Idle      time.Duration // of a kept connection between requests: 3 min
	Body      time.Duration // between two reads of a request's body: 5 min
	Dial      time.Duration // of a connection to an upstream: 10 s
	Stall     time.Duration // without a byte either way, under way: 1 h
	Continue  time.Duration // for an upstream's word on Expect, until the body is sent anyway: 1 s
}

// Bounds of a proxy.
const (
	defaultMaxConns = 4096
	MaxStreams      = 100 // requests at once on one connection of HTTP/2
	maxUpstreams    = 256 // destinations to which connections are kept
)

func (t *Timeouts) fill() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Sniff, 10 * time.Second},
		{&t.Handshake, 10 * time.Second},
		{&t.Head, 15 * time.Second},
		{&t.Idle, 3 * time.Minute},
		{&t.Body, 5 * time.Minute},
		{&t.Dial, 10 * time.Second},
		{&t.Stall, time.Hour},
		{&t.Continue, time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
		*d.field = max(*d.field, 0)
	}
}

// Proxy serves the HTTP of one sandbox. Its methods may be called by several
// goroutines.
type Proxy struct {
	o         Options
	tls       *tls.Config
	h1, h2    *http.Server
	q1, q2    *queue
	upstreams *upstreams
	served    sync.WaitGroup // of the two servers

	mu     sync.Mutex // guards what follows
	conns  map[*conn]struct{}
	closed bool
}

// New returns a proxy, whose servers run until Close.
func New(o Options) *Proxy {
	if weak.On(weak.NetSlowOpen) {
		o.Timeouts = Timeouts{Sniff: -1, Head: -1, Body: -1, Idle: -1}
	}
	o.Timeouts.fill()
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Record == nil {
		o.Record = func(netlog.Record) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Services == nil {
		o.Services = offer.NewDesk()
	}
	if o.Meter == nil {
		o.Meter = relay.NewMeter(o.Now)
	}
	if o.MaxConns <= 0 {
		o.MaxConns = defaultMaxConns
	}
	p := &Proxy{o: o, conns: map[*conn]struct{}{}, q1: newQueue(), q2: newQueue()}
	p.upstreams = newUpstreams(p)
	p.tls = &tls.Config{
		MinVersion:                  tls.VersionTLS12,
		NextProtos:                  []string{"h2", "http/1.1"},
		DynamicRecordSizingDisabled: true,
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return o.Certificate(h.Conn.(*carrier).of.certificateName())
		},
	}
	p.h1, p.h2 = p.server(), p.server()
	p.h1.Protocols, p.h2.Protocols = new(http.Protocols), new(http.Protocols)
	p.h1.Protocols.SetHTTP1(true)
	p.h2.Protocols.SetHTTP2(true)
	p.h2.Protocols.SetUnencryptedHTTP2(true)
	p.h2.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: MaxStreams,
		// What a guest may have the gate hold for a slow upstream.
		MaxReceiveBufferPerConnection: 512 << 10,
		MaxReceiveBufferPerStream:     256 << 10,
		SendPingTimeout:               30 * time.Second, // a peer that is gone is noticed
		PingTimeout:                   15 * time.Second,
	}
	p.served.Go(func() { _ = p.h1.Serve(p.q1) })
	p.served.Go(func() { _ = p.h2.Serve(p.q2) })
	return p
}

func (p *Proxy) server() *http.Server {
	return &http.Server{
		Handler:           http.HandlerFunc(p.handle),
		ReadHeaderTimeout: p.o.Timeouts.Head,
		IdleTimeout:       p.o.Timeouts.Idle,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          slog.NewLogLogger(p.o.Log.Handler(), slog.LevelDebug),
		ConnContext: func(_ context.Context, c net.Conn) context.Context {
			cn := carrierOf(c).of
			return context.WithValue(cn.ctx, connKey{}, cn)
		},
		DisableGeneralOptionsHandler: true,
	}
}

// Close ends every connection, and returns when the servers have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for cn := range p.conns {
		cn.end(refuse(http.StatusServiceUnavailable, CodeCut, "the gate ends"))
	}
	p.mu.Unlock()
	_ = p.h1.Close()
	_ = p.h2.Close()
	p.served.Wait()
	p.upstreams.close()
}

// Conns returns how many connections are open.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// admit makes room for a connection, or resets it.
func (p *Proxy) admit(ctx context.Context, k kind, c net.Conn, dst netip.AddrPort) (*conn, bool) {
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	cn := &conn{p: p, kind: k, dst: dst, addrs: []netip.AddrPort{dst}, began: p.o.Now()}
	cn.carrier = &carrier{Conn: c, of: cn, done: make(chan struct{})}
	p.mu.Lock()
	full := len(p.conns) >= p.o.MaxConns && !weak.On(weak.NetConnectionsUnbounded)
	if !full && !p.closed {
		cn.ctx, cn.cancel = context.WithCancelCause(carriedBy(ctx, c))
		p.conns[cn] = struct{}{}
		p.mu.Unlock()
		cn.unhook = context.AfterFunc(cn.ctx, func() { _ = cn.carrier.Close() })
		return cn, true
	}
	p.mu.Unlock()
	if full {
		cn.record(refuse(http.StatusServiceUnavailable, CodeTooMany, "the sandbox has more connections open than its gate takes"))
	}
	abort(c)
	return nil, false
}

// end ends the connection. What ends with a refusal is cut: by then its guest
// may have an answer in part, and some clients, such as curl's HTTP/2, take the
// orderly end of a connection for the good end of what was on it.
func (cn *conn) end(why error) {
	if _, refused := errors.AsType[*Refusal](why); refused {
		cn.cut.Store(true)
	}
	cn.cancel(why)
}

// leave forgets a connection.
func (cn *conn) leave() {
	_ = cn.carrier.Close()
	cn.unhook()
	cn.cancel(nil)
	cn.p.mu.Lock()
	defer cn.p.mu.Unlock()
	delete(cn.p.conns, cn)
}

// abort resets a connection, and closes it.
func abort(c net.Conn) {
	relay.Reset(c)
	_ = c.Close()
}

// queue hands connections to an http.Server.
type queue struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newQueue() *queue {
	return &queue{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept returns the next connection.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

// Addr is of no meaning.
func (q *queue) Addr() net.Addr { return &net.TCPAddr{} }

// carrier is the bottom of a conn.
type carrier struct {
	net.Conn
	of     *conn
	closed atomic.Bool
	done   chan struct{} // closed once the connection is
}

// Write writes, unless the connection was cut: TLS and HTTP/2 have words for an
// end that comes in order, and would say them.
func (c *carrier) Write(b []byte) (int, error) {
	if c.of.cut.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close closes it once; what was cut is reset.
func (c *carrier) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if c.of.cut.Load() {
		relay.Reset(c.Conn)
	}
	err := c.Conn.Close()
	close(c.done)
	return err
}

// NetConn returns the connection itself.
func (c *carrier) NetConn() net.Conn { return c.Conn }

// CloseWrite ends what is written, or everything where that can't be ended by
// itself.
func (c *carrier) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// carrierOf finds the carrier below what an http.Server was given.
func carrierOf(c net.Conn) *carrier {
	for {
		switch t := c.(type) {
		case *carrier:
			return t
		case *strict:
			c = t.Conn
		case *tls.Conn:
			c = t.NetConn()
		default:
			return nil
		}
	}
}
