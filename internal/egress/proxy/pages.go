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
	Hint    string   `json:"hint"`
}

// pages serves the gate's own.
func (x *exchange) pages() {
	w, r := x.w, x.r
	if a, ok := parseHost(r.Host); r.Host != "" && (!ok || a.name != "" && a.name != netHost) {
		x.refuse(mismatch("this is " + netHost))
		return
	}
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
		x.refuse(refuse(http.StatusNotFound, CodeNotHere, "the gate has / and /healthz"))
	}
}

func (p *Proxy) about() about {
	pol := p.o.Policy().Policy()
	a := about{
		Gate: netHost, Default: pol.Default, Rules: []string{}, Secrets: []string{},
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
	slices.Sort(a.Secrets)
	a.Secrets = slices.Compact(a.Secrets)
	return a
}
