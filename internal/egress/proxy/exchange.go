package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// exchange is one request and what becomes of it.
type exchange struct {
	cn     *conn
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	cancel context.CancelCauseFunc
	began  time.Time

	name   string // whom it is for; "" is the address
	dst    netip.AddrPort
	addrs  []netip.AddrPort
	stream policy.Verdict // of what is in the clear
	// streamed is what that is an answer to.
	streamed policy.Stream
	verdict  policy.Verdict
	revision string // of the policy that it is of; "" where nobody is to be asked
	secrets  *inject.Exchange
	account  *relay.Account
	limits   policy.Limits

	sent, received atomic.Int64
	status         int
	recorded       bool
	begun          bool   // the answer: its head has gone out
	result         string // how it ended, where not well

	mu    sync.Mutex      // guards what follows
	query *policy.Request // what the policy was asked; nil: nothing yet
	// carried is what it was asked where any bytes may go; nil: the request counts.
	carried *policy.Stream
	service string   // that is called; "": none
	consent consent  // of a person
	failed  *Refusal // why it was ended while it was under way
}

// handle serves one request of any connection.
func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) {
	cn, ok := r.Context().Value(connKey{}).(*conn)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	if cn.strict != nil {
		cn.strict.serving.Store(true)
		defer cn.strict.serving.Store(false)
	}
	x := &exchange{cn: cn, w: w, r: r, began: p.o.Now(), dst: cn.dst, addrs: cn.addrs}
	x.ctx, x.cancel = context.WithCancelCause(r.Context())
	defer x.cancel(nil)
	cn.enter(x)
	defer cn.exit(x)
	if cn.kind == explicit && r.Method == http.MethodConnect {
		x.connect()
		return
	}
	if cn.kind == info || cn.kind == explicit && forGate(r) {
		x.own()
		return
	}
	defer x.record()
	if why := x.serve(); why != nil {
		x.refuse(why)
	}
}

func (cn *conn) enter(x *exchange) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.live == nil {
		cn.live = map[*exchange]struct{}{}
	}
	cn.live[x] = struct{}{}
}

func (cn *conn) exit(x *exchange) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.live, x)
}

// serve decides about the request, and forwards it.
func (x *exchange) serve() *Refusal {
	cn := x.cn
	var why *Refusal
	if cn.kind == explicit {
		why = x.locate()
	} else {
		x.name, why = cn.agree(x.r)
	}
	switch {
	case why != nil:
		return why
	case cn.refusal != nil:
		return cn.refusal
	case cn.kind == sink:
		return x.unresolved()
	}
	if !cn.tls && cn.kind != explicit {
		if x.stream, why = cn.approve(x.name); why != nil {
			return why
		}
		x.streamed = policy.Stream{Conn: cn.policyConn(), Name: x.name}
	}
	if x.r.URL.Path == "" {
		x.r.URL.Path = "/" // a URL without a path: as it will go upstream
	}
	q := policy.Request{
		Addr: x.dst, Name: x.name, TLS: cn.tls,
		Method: x.r.Method, URL: x.r.URL, Header: sentOn(x.r.Header),
	}
	for {
		if why := x.decide(q); why != nil {
			return why
		}
		why, anew := x.consented()
		if why != nil {
			return why
		}
		if !anew {
			return x.forward()
		}
	}
}

// decide asks the policy whether the request may go, and counts it for its rule: while it waits
// for a person, once for the same rule.
func (x *exchange) decide(q policy.Request) *Refusal {
	waits, before := x.waits(), x.verdict
	x.ask(q)
	switch {
	case !x.verdict.Allowed() && waits:
		return x.cutFor(x.verdict, x.verdict.Reason)
	case !x.verdict.Allowed():
		return ofVerdict(x.verdict, x.host(), x.dst.Port(), x.cn.tls)
	case waits && x.verdict.CountsAs(before):
		return nil
	}
	return x.bound()
}

// ask asks the policy. What is asked is noted first, so that a change of the
// policy meets either this question or Recheck's.
func (x *exchange) ask(q policy.Request) {
	if x.stream.Mode == policy.ModeRelay && x.askStream() {
		return // any bytes may go there, so this request
	}
	noted := q
	x.mu.Lock()
	x.query = &noted
	x.mu.Unlock()
	pol := x.cn.p.o.Policy()
	x.verdict = pol.Request(q)
	x.notePolicy(pol)
	x.addrs = agreed(x.addrs, x.verdict, func(a netip.AddrPort) policy.Verdict {
		q.Addr = a
		return pol.Request(q)
	})
}

// askStream asks anew what was asked about a stream in the clear, noted first
// too, and reports whether any bytes may still go there.
func (x *exchange) askStream() bool {
	q := x.streamed
	x.mu.Lock()
	x.carried = &x.streamed
	x.mu.Unlock()
	pol := x.cn.p.o.Policy()
	x.verdict = pol.Stream(q)
	x.notePolicy(pol)
	if x.verdict.Mode != policy.ModeRelay {
		x.mu.Lock()
		x.carried = nil
		x.mu.Unlock()
		return false
	}
	x.addrs = agreed(x.addrs, x.verdict, func(a netip.AddrPort) policy.Verdict {
		q.Conn = policy.Conn{Addr: a, Names: x.cn.p.namesOf(a.Addr(), q.Name)}
		return pol.Stream(q)
	})
	return true
}

// host is whom the request is for.
func (x *exchange) host() string {
	if x.name != "" {
		return x.name
	}
	if x.cn.name != "" {
		return x.cn.name
	}
	return x.dst.Addr().String()
}

// route is what the deciding rule asks for; never nil.
func (x *exchange) route() *policy.Route {
	if x.verdict.Route != nil {
		return x.verdict.Route
	}
	return &policy.Route{Rule: x.verdict.Rule}
}

// bound applies the rule's limits, as far as they can be before anything is
// sent.
func (x *exchange) bound() *Refusal {
	route := x.route()
	x.limits = route.Limits
	x.account = x.cn.p.o.Meter.Rule(route.Rule, route.Limits)
	if wait, ok := x.account.Begin(); !ok {
		return tooFast(route.Rule, wait)
	}
	if x.limits.RequestBytes > 0 && x.r.ContentLength > x.limits.RequestBytes {
		return tooMuch(route.Rule, "the request's body is larger than its rule allows")
	}
	if x.account != nil && x.limits.Bytes > 0 && x.account.Used() >= x.limits.Bytes {
		return tooMuch(route.Rule, "the rule's bytes are used up")
	}
	return nil
}

// fail ends the exchange while it is under way. The first reason counts.
func (x *exchange) fail(why *Refusal) {
	x.mu.Lock()
	if x.failed == nil {
		x.failed = why
	}
	x.mu.Unlock()
	x.cancel(why)
}

// failure is why the exchange was ended, nil where it was not.
func (x *exchange) failure() *Refusal {
	x.mu.Lock()
	failed := x.failed
	x.mu.Unlock()
	if failed != nil {
		return failed
	}
	if why := x.secrets.Refusal(); why != nil {
		return x.ofSecrets(why)
	}
	// The connection's end may have reached the request before its reason did.
	for _, ctx := range []context.Context{x.ctx, x.cn.ctx} {
		if why, ok := errors.AsType[*Refusal](context.Cause(ctx)); ok {
			return why
		}
	}
	return nil
}

// guarded keeps what the guard made of the request.
func (x *exchange) guarded(s *inject.Exchange) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.secrets = s
}

// usedSecrets are the names of those that were put in.
func (x *exchange) usedSecrets() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.secrets.Used()
}

// ofSecrets is the guard's refusal.
func (x *exchange) ofSecrets(why *inject.Refusal) *Refusal {
	return &Refusal{
		Status: why.Status, Code: why.Code, Reason: why.Reason, Hint: why.Hint, What: why.What,
		Rule: x.verdict.Rule, Host: x.host(),
	}
}

// note keeps how the exchange ended, for its record.
func (x *exchange) note(why *Refusal) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed == nil {
		x.failed = why
	}
}

// record writes what became of the exchange, once.
func (x *exchange) record() {
	cn := x.cn
	if x.recorded {
		return
	}
	x.recorded = true
	protocol := "http"
	switch {
	case x.service != "":
		protocol = netlog.Service
	case cn.tls:
		protocol = "https"
	}
	rec := netlog.Record{
		Time: cn.p.o.Now(), Verdict: netlog.Allow, Rule: x.verdict.Rule, Reason: x.verdict.Reason,
		Protocol: protocol, Host: x.recordedHost(), Address: x.dst.String(),
		Method: x.r.Method, Path: x.path(), Status: x.status, Result: x.result,
		Sent: x.sent.Load(), Received: x.received.Load(),
		Secrets: slices.Clone(x.secrets.Used()), Duration: cn.p.o.Now().Sub(x.began),
	}
	x.mu.Lock()
	if f := x.failed; f != nil {
		rec.Verdict, rec.Code, rec.Reason = netlog.Deny, f.Code, f.Reason
		if f.Rule != "" {
			rec.Rule = f.Rule
		}
		if x.status == 0 || !x.begun {
			rec.Status = f.Status
		}
	}
	x.mu.Unlock()
	cn.p.o.Record(rec)
}

// path is the request's as it was written, in ASCII.
func (x *exchange) path() string {
	if weak.On(weak.NetRecordRaw) {
		return x.r.URL.Path
	}
	return x.r.URL.EscapedPath()
}

// recordedHost is the host as the guest named it.
func (x *exchange) recordedHost() string {
	if x.name != "" || x.r.Host == "" {
		return x.host()
	}
	if a, ok := parseHost(x.r.Host); ok {
		return a.host()
	}
	return shown(x.r.Host)
}
