package proxy

import (
	"maps"
	"net/http"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Recheck asks the policy anew about every connection and every request that is
// under way, and cuts those that it no longer lets through, or not in the way
// in which they are: what was passed on unread and is to be read, what has a
// secret in it that its rule no longer gives. It is to be called once the new
// policy is what Options.Policy returns. It returns how many were cut.
func (p *Proxy) Recheck() (cut int) {
	if weak.On(weak.NetRecheckOff) {
		return 0
	}
	p.mu.Lock()
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, cn := range conns {
		cut += cn.recheck()
	}
	return cut
}

// recheck rechecks one connection.
func (cn *conn) recheck() (cut int) {
	if cn.kind == sink {
		return 0
	}
	cn.mu.Lock()
	relayed, live := cn.relayed, make([]*exchange, 0, len(cn.live))
	for x := range cn.live {
		live = append(live, x)
	}
	settled := cn.isSettled
	cn.mu.Unlock()
	if settled || relayed != "" {
		v := cn.verdict(cn.p.o.Policy(), cn.policyConn())
		if why := cn.changed(v, relayed); why != "" {
			cn.end(cn.cutFor(v, why))
			return 1
		}
	}
	for _, x := range live {
		if x.recheck() {
			cut++
		}
	}
	return cut
}

// verdict is a policy's about the connection as far as it has been read, to where conn says.
func (cn *conn) verdict(pol Policy, conn policy.Conn) policy.Verdict {
	cn.mu.Lock()
	stream, settled := cn.settled, cn.isSettled
	cn.mu.Unlock()
	if !settled { // nothing of it was read
		return pol.Connect(conn)
	}
	stream.Conn = conn
	return pol.Stream(stream)
}

// changed says why a connection that goes on in a mode may not, "" where it
// may. The mode is "" where requests are read.
func changed(v policy.Verdict, relayed policy.Mode) string {
	switch {
	case !v.Allowed():
		return "the policy has changed: " + v.Reason
	case relayed != "" && (v.Mode == policy.ModeInspect || v.Mode == policy.ModeSniff):
		return "the policy has changed: the connection is to be read"
	}
	return ""
}

func (cn *conn) cutFor(v policy.Verdict, reason string) *Refusal {
	r := refuse(http.StatusForbidden, CodeCut, reason)
	r.Rule, r.Host = v.Rule, cn.shownHost()
	return r
}

// recheck asks about one request, and cuts it where it may not go on.
func (x *exchange) recheck() bool {
	x.mu.Lock()
	q, carried, service := x.query, x.carried, x.service
	x.mu.Unlock()
	if service != "" {
		v := x.cn.p.o.Policy().Service(service)
		if !v.Allowed() {
			r := x.cn.cutFor(v, "the policy has changed: "+v.Reason)
			r.Host = netHost
			x.fail(r)
		}
		return !v.Allowed()
	}
	if carried != nil {
		v := x.cn.p.o.Policy().Stream(*carried)
		why := changed(v, policy.ModeRelay)
		if why == "" && x.unconsented(v) {
			why = reasonAskNow
		}
		if why != "" {
			x.fail(x.cn.cutFor(v, why))
		}
		return why != ""
	}
	if q == nil {
		return false
	}
	v := x.cn.p.o.Policy().Request(*q)
	reason := ""
	switch {
	case !v.Allowed():
		reason = "the policy has changed: " + v.Reason
	case x.unconsented(v):
		reason = reasonAskNow
	case !weak.On(weak.NetSecretsUnlooked) && !givesAll(v.Route, x.usedSecrets()):
		reason = "the policy has changed: it no longer puts the secret in that was sent"
	default:
		return false
	}
	r := refuse(http.StatusForbidden, CodeCut, reason)
	r.Rule = v.Rule
	x.fail(r)
	return true
}

// cutFor is a Recheck's refusal of a request that waits, and sees the new policy itself.
func (x *exchange) cutFor(v policy.Verdict, reason string) *Refusal {
	r := refuse(http.StatusForbidden, CodeCut, "the policy has changed: "+reason)
	r.Rule, r.Host = v.Rule, x.host()
	return r
}

// givesAll reports whether a route still gives each of the secrets used.
func givesAll(route *policy.Route, used []string) bool {
	for _, name := range used {
		if route == nil || !slices.ContainsFunc(route.Secrets, func(s policy.Secret) bool { return s.Name == name }) {
			return false
		}
	}
	return true
}
