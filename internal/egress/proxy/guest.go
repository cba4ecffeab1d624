package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/egress/tlswire"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// kind is what a connection is to the gate.
type kind uint8

const (
	transparent kind = iota // to where the sandbox dialled it
	tunnel                  // in a CONNECT
	explicit                // to the gate's HTTP proxy
	sink                    // to the address that stands for refused names
	info                    // to the gate's own pages
)

// guestKey is where a request's context has its *guest.
type guestKey struct{}

// guest is one connection of the sandbox.
type guest struct {
	p       *Proxy
	kind    kind
	carrier *carrier
	dst     netip.AddrPort
	addrs   []netip.AddrPort // where requests may be sent: dst, or what CONNECT's host has
	began   time.Time
	ctx     context.Context // ends the connection
	cancel  context.CancelCauseFunc
	unhook  func() bool
	flow    *relay.Flow // nil: not listed
	strict  *strict     // nil: it is no HTTP/1
	cut     atomic.Bool // it is to end with a reset, and nothing more is to be said

	host    string   // CONNECT's, a name or an address; "" elsewhere
	names   []string // that the gate has resolved to dst, when it began
	tls     bool
	http2   bool
	name    string   // that SNI asks for, or CONNECT's name; "" is none. For TLS alone
	refusal *Refusal // what every request is answered with

	mu         sync.Mutex                // guards what follows
	relayed    policy.Mode               // how it is relayed unread; "" where its requests are read
	settled    policy.Stream             // what the policy was asked about the whole connection
	isSettled  bool                      // it was
	approved   map[string]policy.Verdict // hosts of requests in the clear that the policy let through
	approvedBy Policy                    // the policy that did
	live       map[*exchange]struct{}
}

// ServeTCP serves a connection that the sandbox opened to dst and of which the
// policy wants to know more before it decides (policy.ModeSniff). It returns
// when the connection has ended; ctx ends it.
func (p *Proxy) ServeTCP(ctx context.Context, conn net.Conn, dst netip.AddrPort) {
	g, ok := p.admit(ctx, transparent, conn, dst)
	if !ok {
		return
	}
	defer g.leave()
	g.names = p.o.Names(g.dst.Addr())
	if g.list() {
		g.sniff(g.carrier)
	}
}

// ServeSink serves a connection to an address that DNS gives for names that
// are refused: whatever is asked for is refused, in words.
func (p *Proxy) ServeSink(ctx context.Context, conn net.Conn, dst netip.AddrPort) {
	g, ok := p.admit(ctx, sink, conn, dst)
	if !ok {
		return
	}
	defer g.leave()
	g.sniff(g.carrier)
}

// ServeInfo serves the gate's own pages: what is allowed, and whether the gate
// is well.
func (p *Proxy) ServeInfo(ctx context.Context, conn net.Conn) {
	g, ok := p.admit(ctx, info, conn, local(conn))
	if !ok {
		return
	}
	defer g.leave()
	g.serveHTTP1(g.carrier)
}

// ServeProxy serves a connection to the gate's HTTP proxy: CONNECT, and http
// URLs.
func (p *Proxy) ServeProxy(ctx context.Context, conn net.Conn) {
	g, ok := p.admit(ctx, explicit, conn, local(conn))
	if !ok {
		return
	}
	defer g.leave()
	g.serveHTTP1(g.carrier)
}

// local is where a connection was made to.
func local(c net.Conn) netip.AddrPort {
	if a, ok := c.LocalAddr().(*net.TCPAddr); ok {
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

// list puts the connection on the list of flows, or refuses it.
func (g *guest) list() bool {
	if g.p.o.Flows == nil {
		return true
	}
	flow, err := g.p.o.Flows.Open(g.ctx, relay.Info{Stream: policy.Stream{Conn: g.conn()}})
	if err != nil {
		g.reset(refuse(http.StatusServiceUnavailable, CodeTooMany, err.Error()))
		return false
	}
	g.flow = flow
	unhook := context.AfterFunc(flow.Context(), func() { g.end(cutBy(flow.Context())) })
	old := g.unhook
	g.unhook = func() bool { unhook(); flow.Close(); return old() }
	return true
}

// cutBy is why a context has ended.
func cutBy(ctx context.Context) error {
	cause := context.Cause(ctx)
	if cut, ok := errors.AsType[*relay.CutError](cause); ok {
		return refuse(http.StatusForbidden, CodeCut, cut.Reason)
	}
	return cause
}

func (g *guest) conn() policy.Conn {
	return policy.Conn{Addr: g.dst, Names: g.names}
}

// sniff reads the connection's first bytes, and goes on as they say. c has them
// yet to be read.
func (g *guest) sniff(c net.Conn) {
	if d := g.p.o.Timeouts.Sniff; d > 0 {
		_ = c.SetReadDeadline(time.Now().Add(d))
	}
	what, head, err := firstBytes(c)
	switch what {
	case tlswire.TLS:
		g.sniffTLS(c, head)
	case tlswire.HTTP1:
		_ = c.SetReadDeadline(time.Time{})
		g.serveHTTP1(tlswire.Replay(c, head))
	case tlswire.HTTP2:
		_ = c.SetReadDeadline(time.Time{})
		g.http2 = true
		g.serve(g.p.q2, g.rebase(tlswire.Replay(c, head)))
	default:
		g.unknown(c, head, err)
	}
}

// firstBytes reads as many bytes as tell what a connection is.
func firstBytes(c net.Conn) (tlswire.Kind, []byte, error) {
	head := make([]byte, 0, tlswire.MaxSniff)
	for {
		n, err := c.Read(head[len(head):cap(head)])
		head = head[:len(head)+n]
		what := tlswire.Sniff(head)
		if what != tlswire.More {
			return what, head, nil
		}
		if err != nil {
			return tlswire.Other, head, err
		}
	}
}

// unknown goes on with what is neither TLS nor HTTP, or says nothing: such a
// connection names no host, so that the address alone can allow it.
func (g *guest) unknown(c net.Conn, head []byte, err error) {
	if errors.Is(err, io.EOF) && len(head) == 0 {
		return // opened and closed: a probe of the port
	}
	if g.kind != sink {
		v := g.stream()
		if v.Mode == policy.ModeRelay {
			g.relay(c, head, v, nil)
			return
		}
		if !v.Allowed() {
			g.reset(ofVerdict(v, g.shownHost(), g.dst.Port(), false))
			return
		}
	}
	r := refuse(http.StatusForbidden, string(policy.CodeProtocol), "the connection is neither TLS nor HTTP")
	r.Host = g.shownHost()
	g.reset(r)
}

// shownHost is whom the connection is for, as far as known.
func (g *guest) shownHost() string {
	switch {
	case g.name != "":
		return g.name
	case g.host != "":
		return g.host
	}
	return g.dst.Addr().String()
}

// rebase puts the carrier below a connection that has bytes of it replayed.
func (g *guest) rebase(c net.Conn) *carrier {
	if c == net.Conn(g.carrier) {
		return g.carrier
	}
	return &carrier{Conn: c, guest: g, done: make(chan struct{})}
}

// certificateName is what a handshake is answered for.
func (g *guest) certificateName() string {
	switch {
	case g.name != "":
		return g.name
	case g.host != "":
		return g.host
	}
	return g.dst.Addr().String()
}

// sniffTLS reads the hello, and asks the policy what becomes of the stream.
func (g *guest) sniffTLS(c net.Conn, head []byte) {
	g.tls = true
	hello, raw, err := tlswire.ReadHello(tlswire.Replay(c, head))
	if err != nil {
		if bad, ok := errors.AsType[*tlswire.HelloError](err); ok {
			g.reset(badRequest(bad.Error()))
		} else {
			g.reset(refuse(http.StatusBadRequest, codeHandshake, "the connection ended in the middle of a TLS hello"))
		}
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	c = tlswire.Replay(c, raw)
	g.name = hello.SNI
	if g.kind == sink {
		g.serveTLS(c, hello)
		return
	}
	if g.refusal = g.bind(); g.refusal != nil {
		g.serveTLS(c, hello)
		return
	}
	v := g.stream()
	switch v.Mode {
	case policy.ModePassthrough, policy.ModeRelay:
		g.passThrough(c, raw, hello, v)
	case policy.ModeInspect:
		g.serveTLS(c, hello)
	default:
		g.unsettle()
		g.refusal = g.refused(v, g.name)
		g.serveTLS(c, hello)
	}
}

// bind checks that the name of a hello is the one of CONNECT. That it is one
// that the gate has resolved to the address is for the policy to see.
func (g *guest) bind() *Refusal {
	named, _, _ := policy.CleanHost(g.host)
	if g.host == "" || named == "" {
		return nil
	}
	if g.name == "" {
		g.name = named
	}
	if g.name != named && !weak.On(weak.NetTunnelUnbound) {
		r := mismatch("CONNECT was for " + shown(named) + ", and the TLS hello in it asks for " + shown(g.name))
		r.Host = g.name
		return r
	}
	return nil
}

// stream asks the policy about the connection as a whole.
func (g *guest) stream() policy.Verdict {
	s := policy.Stream{Conn: g.conn(), Name: g.name, TLS: g.tls}
	g.settle(s)
	if g.flow != nil {
		g.flow.Update(func(i *relay.Info) { i.Name, i.TLS, i.Sniffed = s.Name, s.TLS, true })
	}
	pol := g.p.o.Policy()
	v := pol.Stream(s)
	g.addrs = agreed(g.addrs, v, func(a netip.AddrPort) policy.Verdict {
		s.Conn = policy.Conn{Addr: a, Names: g.p.namesOf(a.Addr(), g.name)}
		return pol.Stream(s)
	})
	if g.flow != nil && v.Rule != "" {
		g.flow.Update(func(i *relay.Info) { i.Rule = v.Rule })
	}
	return v
}

// settle notes what the policy is about to be asked, so that a change of it
// meets either this question or Recheck's.
func (g *guest) settle(s policy.Stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled, g.isSettled = s, true
}

// unsettle forgets it: the connection is refused, in words, whatever changes.
func (g *guest) unsettle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isSettled = false
}

// refused is a policy's refusal of a stream under a name. A name that the gate
// has not resolved to the address is a disagreement.
func (g *guest) refused(v policy.Verdict, name string) *Refusal {
	host := name
	if host == "" {
		host = g.shownHost()
	}
	r := ofVerdict(v, host, g.dst.Port(), g.tls)
	if v.Code == policy.CodeNotResolved && name != "" && !slices.Contains(g.names, name) {
		r.Status, r.Code = http.StatusMisdirectedRequest, CodeNameMismatch
	}
	return r
}

// serveTLS answers the handshake, and serves what comes in it.
func (g *guest) serveTLS(c net.Conn, hello tlswire.Hello) {
	base := g.rebase(c)
	tc := tls.Server(base, g.p.tls)
	ctx, cancel := g.ctx, context.CancelFunc(func() {})
	if d := g.p.o.Timeouts.Handshake; d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	err := tc.HandshakeContext(ctx)
	cancel()
	if err != nil {
		g.record(refuse(0, codeHandshake, "the TLS handshake with the gate failed: the client may not trust the sandbox's certificate authority"))
		_ = base.Close()
		return
	}
	state := tc.ConnectionState()
	if !strings.EqualFold(state.ServerName, hello.SNI) { // ours is in lower case
		g.reset(mismatch("the TLS hello was read in two ways"))
		return
	}
	if state.NegotiatedProtocol == "h2" {
		g.http2 = true
		g.serve(g.p.q2, tc)
		return
	}
	g.serveHTTP1(tc)
}

// serveHTTP1 serves a connection of HTTP/1.
func (g *guest) serveHTTP1(c net.Conn) {
	if _, ok := c.(*tls.Conn); !ok {
		c = g.rebase(c)
	}
	g.strict = &strict{
		Conn: c, headTime: g.p.o.Timeouts.Head, bodyTime: g.p.o.Timeouts.Body,
		report: func(r *Refusal) { g.record(r) },
	}
	g.serve(g.p.q1, g.strict)
}

// serve hands the connection to a server, and waits for its end.
func (g *guest) serve(q *queue, c net.Conn) {
	select {
	case q.conns <- c:
		<-carrierOf(c).done
	case <-g.ctx.Done():
	case <-q.done:
	}
}

// reset records why the connection is refused, and resets it.
func (g *guest) reset(r *Refusal) {
	g.record(r)
	abort(g.carrier)
}

// record records that the connection was refused.
func (g *guest) record(r *Refusal) {
	protocol := "tcp"
	if g.tls {
		protocol = "tls"
	}
	g.p.o.Record(netlog.Record{
		Time: g.p.o.Now(), Verdict: netlog.Deny, Code: r.Code, Rule: r.Rule, Reason: r.Reason,
		Protocol: protocol, Host: g.name, Address: g.dst.String(), Status: r.Status,
		Duration: g.p.o.Now().Sub(g.began),
	})
}
