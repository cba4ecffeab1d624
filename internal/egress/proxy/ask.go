package proxy

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"reflect"
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

// person asks one, and says why nothing goes on; nil where it may. other: the policy is
// another by now, and it may be asked anew under that.
func (p *Proxy) person(ctx context.Context, q approval.Question, began func()) (why *Refusal, other bool) {
	out := approval.Outcome{State: approval.Denied}
	err := q.Check()
	if err == nil && p.o.Ask != nil {
		out = p.o.Ask(ctx, q, began)
	}
	if out.State.LetsGo() {
		return nil, false
	}
	r := AskRefusal(q, out)
	if err != nil {
		r.Reason, r.Hint, r.What = "rule "+q.Rule+" has a person asked, and this can't be asked: "+err.Error(), "", ""
	}
	return r, out.Changed
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
	if x.verdict.Ask || x.verdict.Route.AsksForSecret() || x.waits() {
		x.revision = pol.Revision()
	}
}

// askForSecret is inject's consent.
func (x *exchange) askForSecret(name string) *inject.Refusal {
	why, anew := x.askPerson(approval.Secret, name)
	for anew && why == nil {
		var asks bool
		if asks, why = x.stillGives(name); why == nil && asks {
			why, anew = x.askPerson(approval.Secret, name)
		} else if why == nil {
			anew = !x.settles(consent{})
		}
	}
	if why == nil {
		return nil
	}
	return &inject.Refusal{Status: why.Status, Code: why.Code, Reason: why.Reason, Hint: why.Hint, What: why.What}
}

// stillGives asks the policy that is another by now about a request that waits for one of its
// secrets. So much has been done with it under the old one that it may only go on where all
// but the question is the same. asks: a person is to be asked about the secret.
func (x *exchange) stillGives(name string) (asks bool, why *Refusal) {
	before := x.verdict
	x.ask(*x.query)
	switch v := x.verdict; {
	case !v.Allowed():
		why = x.cutFor(v, v.Reason)
	case v.Ask || !sameBut(before, v) || asking(before) > 1: // of the others a person has spoken under the old one
		why = refuse(http.StatusForbidden, CodeApprovalVoided, "the policy has changed what is done with the request")
		why.Rule, why.Host, why.Hint = v.Rule, x.host(), "try again: it is asked anew"
	default:
		return slices.ContainsFunc(v.Route.Given(), func(s policy.Secret) bool { return s.Ask && s.Name == name }), nil
	}
	x.consenting(consent{})
	return false, why
}

// asking is for how many secrets a person may be asked.
func asking(v policy.Verdict) (n int) {
	for _, s := range v.Route.Given() {
		if s.Ask {
			n++
		}
	}
	return n
}

// sameBut reports whether two verdicts have the same done with a request, but for which rule
// says so, and whether a person is asked about its one secret. What is counted for a rule goes
// on under that rule alone.
func sameBut(a, b policy.Verdict) bool {
	if a.Mode != b.Mode || a.ByAddress != b.ByAddress || a.Route == nil || b.Route == nil ||
		a.Rule != b.Rule && a.Route.Limits != (policy.Limits{}) {
		return false
	}
	plain := func(r policy.Route) policy.Route {
		r.Rule = ""
		if len(r.Secrets) == 1 {
			r.Secrets = slices.Clone(r.Secrets)
			r.Secrets[0].Ask = false
		}
		return r
	}
	return reflect.DeepEqual(plain(*a.Route), plain(*b.Route))
}

// consented asks a person where the verdict wants that. anew: the policy is another by now, and
// the request waits on.
func (x *exchange) consented() (why *Refusal, anew bool) {
	switch {
	case x.verdict.Ask:
		return x.askPerson(approval.Request, "")
	case x.waits(): // it did
		return nil, !x.settles(consent{})
	}
	return nil, false
}

// askPerson holds the request until a person has answered. Of its body is read what
// the guard has read already, and nothing else. anew: there was no answer, or it is of
// another policy than holds now, and the request waits on.
func (x *exchange) askPerson(kind approval.Kind, secret string) (why *Refusal, anew bool) {
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
		return why, false
	}
	x.consenting(consent{waits: true})
	ctx, stop := x.cn.gone(x.ctx, true)
	defer stop()
	why, other := x.cn.p.person(ctx, q, func() { x.cn.p.o.Record(x.askedRecord(q)) })
	switch {
	case why == nil && x.settles(consent{revision: x.revision}):
		if kind == approval.Request {
			x.verdict.Reason = reasonAllowed
		}
		return nil, false
	case ctx.Err() == nil && (why == nil || other):
		return nil, true
	}
	if why == nil {
		why = AskRefusal(q, approval.Outcome{State: approval.Voided})
	}
	x.consenting(consent{})
	return x.unallowed(ctx, why), false
}

// unallowed is why a request that waited does not go on.
func (x *exchange) unallowed(ctx context.Context, why *Refusal) *Refusal {
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

// settles notes how far a person has been asked, unless the policy is another by now than that
// of the verdict: then the request waits on. A Recheck comes before this, and sees that it
// waits, or after it.
func (x *exchange) settles(c consent) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cn.p.o.Policy().Revision() != x.revision && !weak.On(weak.NetAskStale) {
		return false
	}
	x.consent = c
	return true
}

// waits reports whether a person is asked, or is to be asked anew.
func (x *exchange) waits() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.consent.waits
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

// consented has a person asked about a connection that is passed on unread, where its rule
// wants that, and anew where the policy has changed meanwhile. It returns the verdict under which
// the connection goes on.
func (cn *conn) consented(v policy.Verdict) (policy.Verdict, *Refusal) {
	if !v.Ask {
		return v, nil
	}
	for {
		if v.Ask {
			if why, anew := cn.askPerson(v); !anew {
				v.Reason = reasonAllowed
				return v, why
			}
		} else if cn.settles(consent{}) {
			return v, nil
		}
		pol := cn.p.o.Policy()
		cn.revision = pol.Revision()
		v = cn.verdict(pol, cn.policyConn())
		cn.addrs = agreed(cn.addrs, v, func(a netip.AddrPort) policy.Verdict {
			return cn.verdict(pol, policy.Conn{Addr: a, Names: cn.p.namesOf(a.Addr(), cn.name)})
		})
		if why := changed(v, cn.relayed); why != "" {
			return v, cn.cutFor(v, why)
		}
	}
}

// askPerson holds a connection until a person has answered. anew: there was no answer, or it is
// of another policy than holds now, and the connection waits on.
func (cn *conn) askPerson(v policy.Verdict) (why *Refusal, anew bool) {
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
	why, other := cn.p.person(ctx, q, func() { cn.p.o.Record(cn.askedRecord(q)) })
	switch {
	case why == nil && cn.settles(consent{revision: q.Revision}):
		return nil, false
	case ctx.Err() == nil && (why == nil || other):
		return nil, true
	case why == nil:
		why = AskRefusal(q, approval.Outcome{State: approval.Voided})
	}
	cn.consenting(consent{})
	return why, false
}

// settles is of a connection what it is of a request.
func (cn *conn) settles(c consent) bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.p.o.Policy().Revision() != cn.revision && !weak.On(weak.NetAskStale) {
		return false
	}
	cn.consentLocked(c)
	return true
}

func (cn *conn) consenting(c consent) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.consentLocked(c)
}

func (cn *conn) consentLocked(c consent) {
	cn.consent = c
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
