package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/egress/tlswire"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// passThrough carries TLS that the gate does not read.
//
// A hello may hide a second name, which the server would follow; the gate
// can't tell that from the random bytes which browsers send in its place. Where
// a rule wants the stream unread it is refused; where nothing but the default
// let it through it is intercepted, which works for both.
func (cn *conn) passThrough(c net.Conn, raw []byte, hello tlswire.Hello, v policy.Verdict) {
	if hello.ECH {
		if v.Rule == string(defaultRule) {
			cn.serveTLS(c, hello)
			return
		}
		r := refuse(http.StatusForbidden, CodeECH, "the TLS hello may hide a name (ECH), and the rule passes TLS through unread: turn ECH off in the client")
		r.Rule, r.Host = v.Rule, cn.name
		cn.reset(r)
		return
	}
	cn.relay(cn.carrier, raw, v, tlswire.NewRetry(hello, raw).Watch)
}

// defaultRule is the rule of a policy's default.
const defaultRule = "default"

// relay carries the connection's bytes unread, head first. watch sees them, and
// may end it; nil: nobody looks.
func (cn *conn) relay(c net.Conn, head []byte, v policy.Verdict, watch func(bool, []byte) error) {
	cn.mu.Lock()
	cn.relayed = v.Mode
	cn.mu.Unlock()
	route, account, why := cn.begin(v)
	if why == nil {
		before := v
		if v, why = cn.consented(v); why == nil && !v.CountsAs(before) {
			route, account, why = cn.begin(v)
		}
	}
	if why != nil {
		cn.reset(why)
		return
	}
	up, err := cn.p.dial(cn.ctx, cn.addrs)
	if err != nil {
		cn.reset(dialFailed(err, cn.shownHost()))
		return
	}
	res := relay.TCP(cn.ctx, c, up, relay.Options{
		Limits: route.Limits, Account: account, Head: head, Watch: watch,
	})
	rec := netlog.Record{
		Time: cn.p.o.Now(), Verdict: netlog.Allow, Rule: v.Rule, Reason: v.Reason, Protocol: "tcp",
		Host: cn.name, Address: cn.dst.String(), Sent: res.Sent, Received: res.Received,
		Duration: cn.p.o.Now().Sub(cn.began), Result: string(res.End),
	}
	if cn.tls {
		rec.Protocol = "tls"
	}
	cutFor, cut := errors.AsType[*Refusal](cutBy(cn.ctx)) // the connection may be closed before the relay sees why
	switch {
	case cut:
		rec.Verdict, rec.Code, rec.Reason, rec.Result = netlog.Deny, cutFor.Code, cutFor.Reason, string(relay.EndCut)
	case res.End == relay.EndLimit:
		rec.Verdict, rec.Code, rec.Reason = netlog.Deny, CodeLimit, "the connection carried as many bytes as its rule allows"
	case res.End == relay.EndWatch:
		rec.Verdict, rec.Code, rec.Reason = netlog.Deny, CodeNameMismatch, res.Err.Error()
	case res.End == relay.EndClosed:
		rec.Result = ""
	}
	cn.p.o.Record(rec)
}

// begin counts a connection for the rule of a verdict.
func (cn *conn) begin(v policy.Verdict) (*policy.Route, *relay.Account, *Refusal) {
	route := &policy.Route{Rule: v.Rule}
	if v.Route != nil {
		route = v.Route
	}
	account := cn.p.o.Meter.Rule(route.Rule, route.Limits)
	if wait, ok := account.Begin(); !ok {
		return nil, nil, tooFast(route.Rule, wait)
	}
	return route, account, nil
}

// dial connects to the first of addresses that answers.
func (p *Proxy) dial(ctx context.Context, addrs []netip.AddrPort) (net.Conn, error) {
	if d := p.o.Timeouts.Dial; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	var first error
	for _, a := range addrs {
		c, err := p.o.Dial(ctx, a)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, &dialError{err: first}
}

// dialError says that no connection was made: nothing was sent.
type dialError struct{ err error }

func (e *dialError) Error() string { return "dial: " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }
