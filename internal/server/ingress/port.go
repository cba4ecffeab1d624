package ingress

import (
	"context"
	"net/http"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
)

// maxFlows is how many requests may be under way to one sandbox by its name or
// by headers, over TCP.
const maxFlows = 4096

// flows counts requests by sandbox.
type flows struct {
	mu sync.Mutex
	n  map[string]int
}

// enter counts one more, or reports that there are too many.
func (f *flows) enter(id string) (leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n[id] >= maxFlows {
		return nil, false
	}
	if f.n == nil {
		f.n = make(map[string]int)
	}
	f.n[id]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.n[id]--; f.n[id] == 0 {
			delete(f.n, id)
		}
	}, true
}

// servePort passes a request on to what listens on a port of a sandbox.
func (in *Ingress) servePort(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, t target) {
	fail := failTo(r, t)
	if auth.Of(r).Peer == nil {
		if sb.TrafficToken != "" && isPreflight(r) && asksFor(r, headerTraffic) {
			AnswerPreflight(w, r) // the request itself will have the token
			return
		}
		if err := in.admitTraffic(r, sb); err != nil {
			fail(w, err)
			return
		}
	}
	if sb = in.wake(w, r, sb, fail); sb == nil {
		return
	}
	in.forward(w, r, sb, hop{port: t.port, fail: fail, host: sb.Spec.Traffic.HostFor(t.port), secret: in.ours(r.Context(), sb)})
}

// ours tells keys, and sb's own tokens, from what a server inside asked for.
func (in *Ingress) ours(ctx context.Context, sb *sandbox.Sandbox) func(v string) bool {
	is := func(v, token string) bool { return token != "" && len(v) == len(token) && same(v, token) }
	return func(v string) bool {
		_, _, isKey := in.o.Tenants.Find(ctx, v)
		return isKey || is(v, sb.Token) || is(v, sb.TrafficToken)
	}
}

// admitTraffic says why r may not reach sb's ports, if it may not.
func (in *Ingress) admitTraffic(r *http.Request, sb *sandbox.Sandbox) error {
	if sb.TrafficToken == "" {
		if in.o.PublicTraffic {
			return nil
		}
		return sandbox.Errorf(sandbox.Denied, "this server opens no port of a sandbox to everybody, and the sandbox has no traffic token").
			WithHint("make the sandbox with restricted traffic, or set e2b_public_traffic in the server's configuration")
	}
	switch v := r.Header.Values(headerTraffic); {
	case len(v) == 0:
		return sandbox.Errorf(sandbox.Denied, "the ports of this sandbox are restricted: the header %s is missing", headerTraffic).
			WithHint("send the sandbox's trafficAccessToken in it")
	case len(v) > 1 || !same(v[0], sb.TrafficToken):
		return sandbox.Errorf(sandbox.Denied, "the ports of this sandbox are restricted: the header %s has not its token", headerTraffic).
			WithHint("send the sandbox's trafficAccessToken in it")
	}
	return nil
}

// wake starts sb where it asked for that and does not run. It returns nil once
// it has answered the request itself.
func (in *Ingress) wake(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, fail failer) *sandbox.Sandbox {
	if sb.State == sandbox.StateRunning || !sb.Spec.Traffic.AutoResume {
		return sb
	}
	woken, err := in.resumes.start(r.Context(), sb.ID)
	if err != nil {
		fail(w, err)
		return nil
	}
	return woken
}
