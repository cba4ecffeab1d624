package proxy

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Why a request or a connection is refused that a person was to be asked about.
const (
	CodeApprovalDenied  = "approval_denied"     // a person said no
	CodeApprovalExpired = "approval_expired"    // nobody answered in time
	CodeApprovalVoided  = "approval_voided"     // the policy, or who was to be asked, is another now
	CodeApprovalFull    = "approval_queue_full" // too many questions wait already
)

// What records say of what a person allowed.
const reasonAllowed = "a person allowed it"

const reasonAskNow = "the policy has changed: a person is to be asked now"

// consent is how far a person has been asked.
type consent struct {
	waits    bool   // for an answer: a change of the policy voids the question
	revision string // of the policy under which the answer was yes; "": it was not
}

// covers reports whether nothing more is to be asked under a policy.
func (c consent) covers(revision string) bool {
	return c.waits || c.revision != "" && c.revision == revision || weak.On(weak.NetAskStale)
}

// person asks one, and says why nothing goes on; nil where it may.
func (p *Proxy) person(ctx context.Context, q approval.Question, began func()) *Refusal {
	out := approval.Outcome{State: approval.Denied}
	err := q.Check()
	if err == nil && p.o.Ask != nil {
		out = p.o.Ask(ctx, q, began)
	}
	if out.State.LetsGo() {
		return nil
	}
	r := AskRefusal(q, out)
	if err != nil {
		r.Reason, r.Hint, r.What = "rule "+q.Rule+" has a person asked, and this can't be asked: "+err.Error(), "", ""
	}
	return r
}

// AskRefusal says why what a question was about does not go on.
func AskRefusal(q approval.Question, out approval.Outcome) *Refusal {
	what := q.What()
	r := refuse(http.StatusForbidden, CodeApprovalDenied, "a person was asked, and did not allow "+q.Quiet())
	r.Hint = "the owner of the sandbox decides: ask them, or do without"
	switch {
	case out.Full:
		r.Status, r.Code = http.StatusTooManyRequests, CodeApprovalFull
		r.Reason = "too many questions wait for an answer, and " + q.Quiet() + " was not asked"
		r.Hint = "wait for answers to what was asked before, and try again"
	case out.State == approval.Expired:
		r.Code, r.Reason = CodeApprovalExpired, "nobody answered in time whether "+q.Quiet()+" may go out"
		r.Hint = "tell the owner of the sandbox to answer with carboy approve, and try again"
	case out.State == approval.Voided, out.State == approval.Withdrawn:
		r.Code, r.Reason = CodeApprovalVoided, "what was asked about "+q.Quiet()+" holds no longer"
		r.Hint = "try again: it is asked anew"
	}
	r.Rule, r.Host, r.What = q.Rule, withPort(q.Host, q.Port, q.Protocol == "https"), what
	return r
}

// notePolicy keeps of which policy a verdict is that has a person asked.
func (x *exchange) notePolicy(pol Policy) {
	if x.verdict.Ask || x.verdict.Route.AsksForSecret() {
		x.revision = pol.Revision()
	}
}

// askForSecret is inject's consent.
func (x *exchange) askForSecret(name string) *inject.Refusal {
	why := x.askPerson(approval.Secret, name)
	if why == nil {
		return nil
	}
	return &inject.Refusal{Status: why.Status, Code: why.Code, Reason: why.Reason, Hint: why.Hint, What: why.What}
}

// askPerson holds the request until a person has answered. Of its body is read what
// the guard has read already, and nothing else.
func (x *exchange) askPerson(kind approval.Kind, secret string) *Refusal {
	q := approval.Question{
		Kind: kind, Rule: x.verdict.Rule, Revision: x.revision, Protocol: "http", Host: x.host(), Port: x.dst.Port(),
		Method: x.r.Method, Target: x.r.URL.EscapedPath(), Secret: secret, Body: x.r.ContentLength != 0 || upgradeOf(x.r) != "",
	}
	if x.verdict.ByAddress {
		x.addrs = x.addrs[:1] // the one that is asked about
		q.Address = x.addrs[0].Addr().Unmap().String()
	}
	if x.cn.tls {
		q.Protocol = "https"
	}
	if x.r.URL.RawQuery != "" || x.r.URL.ForceQuery {
		q.Target += "?" + x.r.URL.RawQuery
	}
	if why := x.unaskable(); why != nil {
		return why
	}
	x.consenting(consent{waits: true})
	ctx, stop := x.cn.gone(x.ctx, true)
	defer stop()
	why := x.cn.p.person(ctx, q, func() { x.cn.p.o.Record(x.askedRecord(q)) })
	if why != nil {
		x.consenting(consent{})
		if x.r.Context().Err() != nil || ctx.Err() != nil && x.ctx.Err() == nil {
			x.result, x.status = "the sandbox left", statusClientClosed
			x.note(why)
			panic(http.ErrAbortHandler)
		}
		// A change of the policy voids the question and cuts the request: the first is the reason.
		if failed := x.failure(); failed != nil && failed.Reason != reasonAskNow {
			return failed
		}
		return why
	}
	x.consenting(consent{revision: x.revision})
	if kind == approval.Request {
		x.verdict.Reason = reasonAllowed
	}
	// Either the policy is still the one that was asked about, or Recheck comes after
	// this and sees the request.
	if now := x.cn.p.o.Policy().Revision(); now != x.revision && !weak.On(weak.NetAskStale) {
		return AskRefusal(q, approval.Outcome{State: approval.Voided})
	}
	return nil
}

// unaskable refuses what a person would be shown as another request than some
// server takes it for.
func (x *exchange) unaskable() *Refusal {
	r := policy.Request{URL: x.r.URL, Header: sentOn(x.r.Header)}
	doubt := r.Overridden()
	if doubt == "" {
		return nil
	}
	why := refuse(http.StatusForbidden, string(policy.CodeRequest), "the request can't be put before a person, as rule "+x.verdict.Rule+" wants: "+doubt)
	why.Rule, why.Host = x.verdict.Rule, x.host()
	return why
}

func (x *exchange) consenting(c consent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.consent = c
}

// unconsented reports whether a verdict of now wants a person asked who was not.
func (x *exchange) unconsented(v policy.Verdict) bool {
	if !v.Ask && !v.Route.AsksForSecret() {
		return false
	}
	used := x.usedSecrets()
	x.mu.Lock()
	defer x.mu.Unlock()
	// Which secrets go out is known a little after a person has said that they may.
	asks := v.Ask || x.consent != consent{}
	for _, s := range v.Route.Given() {
		asks = asks || s.Ask && slices.Contains(used, s.Name)
	}
	return asks && !x.consent.covers(x.cn.p.o.Policy().Revision())
}

// askedRecord says that a question was asked. It has no query.
func (x *exchange) askedRecord(q approval.Question) netlog.Record {
	rec := x.cn.askedRecord(q)
	rec.Host, rec.Address, rec.Method, rec.Path = x.recordedHost(), x.dst.String(), x.r.Method, x.path()
	if q.Secret != "" {
		rec.Reason = "a person is asked whether " + q.Secret + " may go out"
	}
	return rec
}

func (cn *conn) askedRecord(q approval.Question) netlog.Record {
	return netlog.Record{
		Time: cn.p.o.Now(), Verdict: netlog.Ask, Rule: q.Rule, Reason: "a person is asked",
		Protocol: q.Protocol, Host: q.Host, Address: cn.dst.String(),
	}
}

// askPerson holds a connection that is passed on unread until a person has
// answered, where its rule wants that.
func (cn *conn) askPerson(v policy.Verdict) *Refusal {
	if !v.Ask {
		return nil
	}
	q := approval.Question{
		Kind: approval.Connection, Rule: v.Rule, Revision: cn.revision, Protocol: "tcp",
		Host: v.Name, Port: cn.dst.Port(),
	}
	if cn.tls {
		q.Protocol = "tls"
	}
	if v.ByAddress || q.Host == "" {
		cn.addrs = cn.addrs[:1] // the one that is asked about
		q.Address = cn.addrs[0].Addr().Unmap().String()
	}
	q.Host = cmp.Or(q.Host, q.Address)
	cn.consenting(consent{waits: true})
	ctx, stop := cn.gone(cn.ctx, false)
	defer stop()
	why := cn.p.person(ctx, q, func() { cn.p.o.Record(cn.askedRecord(q)) })
	if why != nil {
		cn.consenting(consent{})
		return why
	}
	cn.consenting(consent{revision: q.Revision})
	if cn.p.o.Policy().Revision() != q.Revision && !weak.On(weak.NetAskStale) {
		return AskRefusal(q, approval.Outcome{State: approval.Voided})
	}
	return nil
}

func (cn *conn) consenting(c consent) {
	cn.mu.Lock()
	cn.consent = c
	cn.mu.Unlock()
	if cn.flow != nil {
		cn.flow.Update(func(i *relay.Info) { i.Waits, i.Consent = c.waits, c.revision })
	}
}

// changed says why a connection that goes on in a mode may not, "" where it may.
func (cn *conn) changed(v policy.Verdict, relayed policy.Mode) string {
	if why := changed(v, relayed); why != "" || !v.Ask || relayed == "" {
		return why
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if !cn.consent.covers(cn.p.o.Policy().Revision()) {
		return reasonAskNow
	}
	return ""
}

// goneKey is where a connection's context has the connection of the link's that it
// came by, also within a tunnel.
type goneKey struct{}

// goner is a connection that knows when its other end is gone, without being read.
type goner interface {
	Gone(ctx context.Context, half bool) (context.Context, context.CancelFunc)
}

// carriedBy is ctx with what c is, where it knows that.
func carriedBy(ctx context.Context, c net.Conn) context.Context {
	if g, ok := c.(goner); ok {
		return context.WithValue(ctx, goneKey{}, g)
	}
	return ctx
}

// gone is a context that ends when the guest's end of the connection is gone, as far
// as that can be known.
func (cn *conn) gone(ctx context.Context, half bool) (context.Context, context.CancelFunc) {
	if g, ok := cn.ctx.Value(goneKey{}).(goner); ok {
		return g.Gone(ctx, half)
	}
	return context.WithCancel(ctx)
}
