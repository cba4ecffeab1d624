package proxy

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// about is what the gate says of itself to the sandbox.
type about struct {
	Gate    string   `json:"gate"`
	Default string   `json:"default"` // what becomes of what no rule is about
	Rules   []string `json:"rules"`
	Secrets []string `json:"secrets"` // names alone
	// Services are those that may be called; some may be away.
	Services []aboutService `json:"services"`
	Hint     string         `json:"hint"`
}

// aboutService is one service.
type aboutService struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	Up   bool   `json:"up"` // somebody serves it now
}

// forGate reports whether a request to the proxy is for the gate itself.
func forGate(r *http.Request) bool {
	a, ok := parseHost(r.Host)
	return ok && a.name == netHost && (a.port == 0 || a.port == defaultHTTP) && r.URL.Scheme == "http"
}

// own serves what is for the gate itself: its pages, and services.
func (x *exchange) own() {
	x.name = netHost
	if bad := x.forOwn(); bad != nil {
		x.refuse(bad)
		return
	}
	name, below, ok := serviceOf(x.r.URL)
	if !ok {
		x.pages()
		return
	}
	defer x.record()
	if why := x.call(name, below); why != nil {
		x.refuse(why)
	}
}

// forOwn refuses requests that are not for the gate, or can be read in two ways.
func (x *exchange) forOwn() *Refusal {
	if bad := x.cn.sound(x.r); bad != nil {
		return bad
	}
	a, ok := parseHost(x.r.Host)
	if x.r.Host != "" && (!ok || a.name != "" && a.name != netHost) || x.cn.name != "" && x.cn.name != netHost {
		return mismatch("this is " + netHost)
	}
	return nil
}

// pages serves the gate's own.
func (x *exchange) pages() {
	w, r := x.w, x.r
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		x.refuse(refuse(http.StatusMethodNotAllowed, CodeNotHere, "the gate's pages can only be read"))
		return
	}
	switch r.URL.Path {
	case "/":
		w.Header().Set("Content-Type", contentJSON)
		_ = json.NewEncoder(w).Encode(x.cn.p.about()) // to a guest that may have left
	case "/healthz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	default:
		x.refuse(refuse(http.StatusNotFound, CodeNotHere, "the gate has /, /healthz and services"))
	}
}

func (p *Proxy) about() about {
	pol := p.o.Policy().Policy()
	a := about{
		Gate: netHost, Default: pol.Default, Rules: []string{}, Secrets: []string{}, Services: []aboutService{},
		Hint: "what is not allowed has to be asked for on the host: carboy run --allow HOST, or carboy policy set",
	}
	if a.Default == "" {
		a.Default = policy.DefaultDeny
	}
	for _, rule := range pol.Rules {
		for _, s := range rule.Secrets {
			a.Secrets = append(a.Secrets, s.Name)
		}
		a.Rules = append(a.Rules, policy.Describe(&rule))
	}
	up := p.o.Services.Standing()
	for _, name := range p.o.Policy().Services() {
		a.Services = append(a.Services, aboutService{name, gatePages + name + "/", slices.Contains(up, name)})
	}
	slices.Sort(a.Secrets)
	a.Secrets = slices.Compact(a.Secrets)
	return a
}
