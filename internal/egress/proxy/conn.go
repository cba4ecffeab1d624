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

// connKey is where a request's context has its *conn.
type connKey struct{}

// conn is one connection of the sandbox.
type conn struct {
	p        *Proxy
	kind     kind
	carrier  *carrier
	dst      netip.AddrPort
	addrs    []netip.AddrPort // where requests may be sent: dst, or what CONNECT's host has
	began    time.Time
	ctx      context.Context // ends the connection
	cancel   context.CancelCauseFunc
	unhook   func() bool
	flow     *relay.Flow // nil: not listed
	strict   *strict     // nil: it is no HTTP/1
	revision string      // of the policy that its verdict is of
	cut      atomic.Bool // it is to end with a reset, and nothing more is to be said

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
	consent    consent                   // of a person
	live       map[*exchange]struct{}
}

// ServeTCP serves a connection that the sandbox opened to dst and of which the
// policy wants to know more before it decides (policy.ModeSniff). It returns
// when the connection has ended; ctx ends it.
func (p *Proxy) ServeTCP(ctx context.Context, conn net.Conn, dst netip.AddrPort) {
	cn, ok := p.admit(ctx, transparent, conn, dst)
	if !ok {
		return
	}
	defer cn.leave()
	cn.names = p.o.Names(cn.dst.Addr())
	if cn.list() {
		cn.sniff(cn.carrier)
	}
}

// ServeSink serves a connection to an address that DNS gives for names that
// are refused: whatever is asked for is refused, in words.
func (p *Proxy) ServeSink(ctx context.Context, conn net.Conn, dst netip.AddrPort) {
	cn, ok := p.admit(ctx, sink, conn, dst)
	if !ok {
		return
	}
	defer cn.leave()
	cn.sniff(cn.carrier)
}

// ServeInfo serves the gate's own pages, in TLS or not: what is allowed, whether
// the gate is well, and the services that programs outside offer.
func (p *Proxy) ServeInfo(ctx context.Context, conn net.Conn) {
	cn, ok := p.admit(ctx, info, conn, local(conn))
	if !ok {
		return
	}
	defer cn.leave()
	cn.sniff(cn.carrier)
}

// ServeProxy serves a connection to the gate's HTTP proxy: CONNECT, and http
// URLs.
func (p *Proxy) ServeProxy(ctx context.Context, conn net.Conn) {
	cn, ok := p.admit(ctx, explicit, conn, local(conn))
	if !ok {
		return
	}
	defer cn.leave()
	cn.serveHTTP1(cn.carrier)
}

// local is where a connection was made to.
func local(c net.Conn) netip.AddrPort {
	if a, ok := c.LocalAddr().(*net.TCPAddr); ok {
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

// list puts the connection on the list of flows, or refuses it.
func (cn *conn) list() bool {
	if cn.p.o.Flows == nil {
		return true
	}
	flow, err := cn.p.o.Flows.Open(cn.ctx, relay.Info{Stream: policy.Stream{Conn: cn.policyConn()}})
	if err != nil {
		cn.reset(refuse(http.StatusServiceUnavailable, CodeTooMany, err.Error()))
		return false
	}
	cn.flow = flow
	unhook := context.AfterFunc(flow.Context(), func() { cn.end(cutBy(flow.Context())) })
	old := cn.unhook
	cn.unhook = func() bool { unhook(); flow.Close(); return old() }
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

func (cn *conn) policyConn() policy.Conn {
	return policy.Conn{Addr: cn.dst, Names: cn.names}
}

// sniff reads the connection's first bytes, and goes on as they say. c has them
// yet to be read.
func (cn *conn) sniff(c net.Conn) {
	if d := cn.p.o.Timeouts.Sniff; d > 0 {
		_ = c.SetReadDeadline(time.Now().Add(d))
	}
	what, head, err := firstBytes(c)
	switch what {
	case tlswire.TLS:
		cn.sniffTLS(c, head)
	case tlswire.HTTP1:
		_ = c.SetReadDeadline(time.Time{})
		cn.serveHTTP1(tlswire.Replay(c, head))
	case tlswire.HTTP2:
		_ = c.SetReadDeadline(time.Time{})
		cn.http2 = true
		cn.serve(cn.p.q2, cn.rebase(tlswire.Replay(c, head)))
	default:
		cn.unknown(c, head, err)
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
func (cn *conn) unknown(c net.Conn, head []byte, err error) {
	if errors.Is(err, io.EOF) && len(head) == 0 {
		return // opened and closed: a probe of the port
	}
	if cn.kind == info && len(head) == 0 {
		return // it said nothing in its time
	}
	if cn.kind != sink && cn.kind != info {
		v := cn.stream()
		if v.Mode == policy.ModeRelay {
			cn.relay(c, head, v, nil)
			return
		}
		if !v.Allowed() {
			cn.reset(ofVerdict(v, cn.shownHost(), cn.dst.Port(), false))
			return
		}
	}
	r := refuse(http.StatusForbidden, string(policy.CodeProtocol), "the connection is neither TLS nor HTTP")
	r.Host = cn.shownHost()
	cn.reset(r)
}

// shownHost is whom the connection is for, as far as known.
func (cn *conn) shownHost() string {
	switch {
	case cn.name != "":
		return cn.name
	case cn.host != "":
		return cn.host
	}
	return cn.dst.Addr().String()
}

// rebase puts the carrier below a connection that has bytes of it replayed.
func (cn *conn) rebase(c net.Conn) *carrier {
	if c == net.Conn(cn.carrier) {
		return cn.carrier
	}
	return &carrier{Conn: c, of: cn, done: make(chan struct{})}
}

// certificateName is what a handshake is answered for.
func (cn *conn) certificateName() string {
	switch {
	case cn.name != "":
		return cn.name
	case cn.host != "":
		return cn.host
	}
	return cn.dst.Addr().String()
}

// sniffTLS reads the hello, and asks the policy what becomes of the stream.
func (cn *conn) sniffTLS(c net.Conn, head []byte) {
	cn.tls = true
	hello, raw, err := tlswire.ReadHello(tlswire.Replay(c, head))
	if err != nil {
		if bad, ok := errors.AsType[*tlswire.HelloError](err); ok {
			cn.reset(badRequest(bad.Error()))
		} else {
			cn.reset(refuse(http.StatusBadRequest, codeHandshake, "the connection ended in the middle of a TLS hello"))
		}
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	c = tlswire.Replay(c, raw)
	cn.name = hello.SNI
	if cn.kind == sink || cn.kind == info {
		cn.serveTLS(c, hello)
		return
	}
	if cn.refusal = cn.bind(); cn.refusal != nil {
		cn.serveTLS(c, hello)
		return
	}
	v := cn.stream()
	switch v.Mode {
	case policy.ModePassthrough, policy.ModeRelay:
		cn.passThrough(c, raw, hello, v)
	case policy.ModeInspect:
		cn.serveTLS(c, hello)
	default:
		cn.unsettle()
		cn.refusal = cn.refused(v, cn.name)
		cn.serveTLS(c, hello)
	}
}

// bind checks that the name of a hello is the one of CONNECT. That it is one
// that the gate has resolved to the address is for the policy to see.
func (cn *conn) bind() *Refusal {
	named, _, _ := policy.CleanHost(cn.host)
	if cn.host == "" || named == "" {
		return nil
	}
	if cn.name == "" {
		cn.name = named
	}
	if cn.name != named && !weak.On(weak.NetTunnelUnbound) {
		r := mismatch("CONNECT was for " + shown(named) + ", and the TLS hello in it asks for " + shown(cn.name))
		r.Host = cn.name
		return r
	}
	return nil
}

// stream asks the policy about the connection as a whole.
func (cn *conn) stream() policy.Verdict {
	s := policy.Stream{Conn: cn.policyConn(), Name: cn.name, TLS: cn.tls}
	cn.settle(s)
	if cn.flow != nil {
		cn.flow.Update(func(i *relay.Info) { i.Name, i.TLS, i.Sniffed = s.Name, s.TLS, true })
	}
	pol := cn.p.o.Policy()
	cn.revision = pol.Revision()
	v := pol.Stream(s)
	cn.addrs = agreed(cn.addrs, v, func(a netip.AddrPort) policy.Verdict {
		s.Conn = policy.Conn{Addr: a, Names: cn.p.namesOf(a.Addr(), cn.name)}
		return pol.Stream(s)
	})
	if cn.flow != nil && v.Rule != "" {
		cn.flow.Update(func(i *relay.Info) { i.Rule = v.Rule })
	}
	return v
}

// settle notes what the policy is about to be asked, so that a change of it
// meets either this question or Recheck's.
func (cn *conn) settle(s policy.Stream) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.settled, cn.isSettled = s, true
}

// unsettle forgets it: the connection is refused, in words, whatever changes.
func (cn *conn) unsettle() {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.isSettled = false
}

// refused is a policy's refusal of a stream under a name. A name that the gate
// has not resolved to the address is a disagreement.
func (cn *conn) refused(v policy.Verdict, name string) *Refusal {
	host := name
	if host == "" {
		host = cn.shownHost()
	}
	r := ofVerdict(v, host, cn.dst.Port(), cn.tls)
	if v.Code == policy.CodeNotResolved && name != "" && !slices.Contains(cn.names, name) {
		r.Status, r.Code = http.StatusMisdirectedRequest, CodeNameMismatch
	}
	return r
}

// serveTLS answers the handshake, and serves what comes in it.
func (cn *conn) serveTLS(c net.Conn, hello tlswire.Hello) {
	base := cn.rebase(c)
	tc := tls.Server(base, cn.p.tls)
	ctx, cancel := cn.ctx, context.CancelFunc(func() {})
	if d := cn.p.o.Timeouts.Handshake; d > 0 {
		ctx, cancel = context.WithTimeout(ctx, d)
	}
	err := tc.HandshakeContext(ctx)
	cancel()
	if err != nil {
		cn.record(refuse(0, codeHandshake, "the TLS handshake with the gate failed: the client may not trust the sandbox's certificate authority"))
		_ = base.Close()
		return
	}
	state := tc.ConnectionState()
	if !strings.EqualFold(state.ServerName, hello.SNI) { // ours is in lower case
		cn.reset(mismatch("the TLS hello was read in two ways"))
		return
	}
	if state.NegotiatedProtocol == "h2" {
		cn.http2 = true
		cn.serve(cn.p.q2, tc)
		return
	}
	cn.serveHTTP1(tc)
}

// serveHTTP1 serves a connection of HTTP/1.
func (cn *conn) serveHTTP1(c net.Conn) {
	if _, ok := c.(*tls.Conn); !ok {
		c = cn.rebase(c)
	}
	cn.strict = &strict{
		Conn: c, headTime: cn.p.o.Timeouts.Head, bodyTime: cn.p.o.Timeouts.Body,
		report: func(r *Refusal) { cn.record(r) },
	}
	cn.serve(cn.p.q1, cn.strict)
}

// serve hands the connection to a server, and waits for its end.
func (cn *conn) serve(q *queue, c net.Conn) {
	select {
	case q.conns <- c:
		<-carrierOf(c).done
	case <-cn.ctx.Done():
	case <-q.done:
	}
}

// reset records why the connection is refused, and resets it.
func (cn *conn) reset(r *Refusal) {
	cn.record(r)
	abort(cn.carrier)
}

// record records that the connection was refused.
func (cn *conn) record(r *Refusal) {
	protocol := "tcp"
	if cn.tls {
		protocol = "tls"
	}
	cn.p.o.Record(netlog.Record{
		Time: cn.p.o.Now(), Verdict: netlog.Deny, Code: r.Code, Rule: r.Rule, Reason: r.Reason,
		Protocol: protocol, Host: cn.name, Address: cn.dst.String(), Status: r.Status,
		Duration: cn.p.o.Now().Sub(cn.began),
	})
}
