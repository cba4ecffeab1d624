package proxy

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/field"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Services lead to programs outside that serve the sandbox. *offer.Desk is one.
type Services interface {
	// Call makes room for a call; it fails with offer.ErrAway or offer.ErrMany.
	Call(name string) (to http.RoundTripper, done func(), err error)
	// Standing lists those that somebody serves.
	Standing() []string
}

// awayFor is after how many seconds a call may be worth another try.
const awayFor = 1

// serviceOf parts the path of a request for the gate, as it was written, into
// the name of a service and what is below. What has the form of no service is
// none.
func serviceOf(u *url.URL) (name, below string, ok bool) {
	rest, ok := strings.CutPrefix(u.EscapedPath(), "/")
	name, below, _ = strings.Cut(rest, "/")
	return name, "/" + below, ok && policy.ValidService(name)
}

// call serves a request for a service.
func (x *exchange) call(name, below string) *Refusal {
	x.mu.Lock()
	x.service = name // noted first, so that a change of the policy meets it
	x.mu.Unlock()
	x.verdict = x.cn.p.o.Policy().Service(name)
	if !x.verdict.Allowed() {
		r := ofVerdict(x.verdict, netHost, 0, x.cn.tls)
		r.Status, r.Code = http.StatusNotFound, CodeNoService
		return r
	}
	if upgradeOf(x.r) != "" {
		return refuse(http.StatusNotImplemented, CodeUpgrade, "a service is called by requests: its connection can't become "+shown(upgradeOf(x.r)))
	}
	path, err := url.PathUnescape(below)
	if err != nil {
		return badRequest("the path can't be decoded")
	}
	to, done, err := x.cn.p.o.Services.Call(name)
	if err != nil {
		return away(name, err)
	}
	defer done()
	out, body, why := x.outgoing("")
	if why != nil {
		return why
	}
	defer func() { _ = body.Close() }()
	out.URL.Scheme, out.URL.Host, out.Host = "http", netHost, netHost
	out.URL.Path, out.URL.RawPath = path, below
	if why := x.sign(out, name); why != nil {
		return why
	}
	out.GetBody = body.again(out.Body)
	return x.send(out, "", to)
}

// away says why a service can't be called now.
func away(name string, err error) *Refusal {
	code := offer.CodeAway
	if errors.Is(err, offer.ErrMany) {
		code = CodeTooManyCalls
	}
	r := refuse(http.StatusServiceUnavailable, code, name+": "+err.Error())
	r.Host, r.RetryAfter, r.Hint = netHost, awayFor, "try again in 1 s"
	return r
}

// spoken are the fields that tell a service who calls, from where and as whom, beside
// all that begin with one of spokenOf: the gate's to say.
var (
	spoken = []string{
		"forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip",
		"x-host", "x-original-host", "x-http-host-override", "remote-user", "remote-addr",
	}
	spokenOf = []string{"carboy-", "x-carboy-", "x-forwarded-", "x-remote-"}
)

// ours reports whether a field is one that the gate alone may set, however
// that is spelled.
func ours(name string) bool {
	folded := field.Fold(name)
	return slices.Contains(spoken, folded) || slices.ContainsFunc(spokenOf, func(s string) bool { return strings.HasPrefix(folded, s) })
}

// stands reports whether some servers take a request with a field of that name for
// one of another path or method. There is no rule of a service's that it could be held
// against.
func stands(name string) bool { return field.Header(name)&(field.Path|field.Method) != 0 }

// sign tells a service who calls, in the place of what the guest says of that.
func (x *exchange) sign(out *http.Request, name string) *Refusal {
	if weak.On(weak.NetCallerForged) && out.Header.Get(offer.HeaderSandbox) != "" {
		return nil
	}
	for name := range out.Header {
		switch {
		case ours(name):
			delete(out.Header, name)
		case stands(name):
			r := badRequest("its field " + shown(name) + " has some servers take it for another request, by path or method")
			r.Hint = "leave the field out: the request is the one of its first line"
			return r
		}
	}
	for name := range out.Trailer {
		if ours(name) { // what stands for another request is in no trailer
			return badRequest("a trailer field that the gate alone may set")
		}
	}
	out.Header.Set(offer.HeaderSandbox, x.cn.p.o.Sandbox)
	out.Header.Set("X-Forwarded-Host", netHost)
	out.Header.Set("X-Forwarded-Proto", map[bool]string{true: "https", false: "http"}[x.cn.tls])
	out.Header.Set(offer.HeaderPrefix, "/"+name)
	return nil
}

// serviceFailed is why a service did not answer a request.
func (x *exchange) serviceFailed() *Refusal {
	r := away(x.service, offer.ErrAway)
	r.Reason = x.service + ": the program that serves it went away before it answered; it may have begun"
	return r
}
