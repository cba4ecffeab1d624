package e2b

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// network is what a create may say of the network beside
// allow_internet_access.
type network struct {
	AllowOut    []string                `json:"allowOut,omitempty"`
	DenyOut     []string                `json:"denyOut,omitempty"`
	Rules       map[string][]headerRule `json:"rules,omitempty"`
	EgressProxy *socksProxy             `json:"egressProxy,omitempty"`
	// AllowPublicTraffic opens the sandbox's ports to everybody who knows their names.
	AllowPublicTraffic *bool  `json:"allowPublicTraffic,omitempty"`
	MaskRequestHost    string `json:"maskRequestHost,omitempty"`
}

// outcome is what an egress comes to.
type outcome struct {
	policy  *policy.Policy // nil: no network
	network string
	secrets []string
	values  sandbox.SecretValues
	notes   []policy.Note // in what it is not quite what E2B would make of it
}

// decide makes a policy of e. One that asks for nothing, or for the internet
// alone, which E2B's clients do by themselves, has none unless internet is set;
// always has it have one all the same.
func (e egress) decide(internet, always bool) (out outcome, err error) {
	if e.EgressProxy != nil {
		return out, sandbox.Errorf(sandbox.Unsupported, "network.egressProxy: no proxy can be put behind the gate, which is the only way out").
			WithHint("leave it out")
	}
	closed := e.AllowInternetAccess != nil && !*e.AllowInternetAccess || e.AllowInternetAccess == nil && !always
	if !internet {
		if !closed {
			out.notes = append(out.notes, policy.Note{Where: "allow_internet_access", Text: "not given: e2b_internet of the server's configuration is false"})
		}
		closed, e.AllowInternetAccess = true, new(bool)
	}
	if closed && !always && len(e.AllowOut)+len(e.DenyOut)+len(e.Rules) == 0 {
		return out, nil
	}
	p, more, err := fromEgress(e)
	if err != nil {
		return out, sandbox.PolicyError("network", err)
	}
	out.notes = append(out.notes, more...)
	values := e.secrets()
	set, err := policy.Compile(p, slices.Collect(maps.Keys(values)))
	if err != nil {
		return out, sandbox.PolicyError("network", err)
	}
	if out.network, out.policy, err = sandbox.ResolveNetwork("", &p); err != nil {
		return out, err
	}
	// A header for a name that is not let through has no place: a note says so.
	for _, name := range set.Secrets() {
		if out.values == nil {
			out.values = sandbox.SecretValues{}
		}
		out.secrets = append(out.secrets, name)
		out.values[name] = values[name]
	}
	return out, nil
}

// mayOpen fails where c's key may not open what a policy does.
func (o outcome) mayOpen(c Caller) error {
	if c.PrivateNetwork {
		return nil
	}
	return netspec.Private(o.policy, o.secrets)
}

// networkOf fills in what spec says of the network. It returns the values of the
// secrets that headers of its rules are, and in what it is not quite what E2B
// would make of it.
func (h *handler) networkOf(req *newSandbox, spec *sandbox.Spec, c Caller) (sandbox.SecretValues, []policy.Note, error) {
	n := req.Network
	if n == nil {
		n = &network{}
	}
	out, err := egress{req.AllowInternet, n.AllowOut, n.DenyOut, n.Rules, n.EgressProxy}.decide(h.o.Internet, false)
	if err == nil {
		err = out.mayOpen(c)
	}
	if err != nil {
		return nil, nil, err
	}
	spec.Network, spec.Policy = out.network, out.policy
	spec.Secrets = append(spec.Secrets, out.secrets...)
	spec.Traffic = sandbox.Traffic{
		Restricted: !h.o.PublicTraffic || n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic,
		MaskHost:   n.MaskRequestHost,
		AutoResume: req.AutoResume != nil && req.AutoResume.Enabled,
	}
	if spec.Traffic.Restricted && n.AllowPublicTraffic != nil && *n.AllowPublicTraffic {
		out.notes = append(out.notes, policy.Note{Where: "network.allowPublicTraffic", Text: "not given: e2b_public_traffic of the server's configuration is false"})
	}
	return out.values, out.notes, nil
}

// setNetwork replaces what a sandbox may reach. What comes in is not changed.
func (h *handler) setNetwork(w http.ResponseWriter, r *http.Request, c Caller) error {
	var req egress
	if err := wire.Decode(r, &req, false); err != nil {
		return err
	}
	out, err := req.decide(h.o.Internet, true)
	if err != nil {
		return err
	}
	if err := out.mayOpen(c); err != nil {
		return err
	}
	sb, err := h.find(r, c)
	if err != nil {
		return err
	}
	if !sb.Spec.Networked() {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it was made without a network, and has no link to give one to", sb.ID).
			WithHint(`make it with one that is closed for now: "network": {"denyOut": ["0.0.0.0/0"]}`)
	}
	spec := sandbox.Spec{Policy: out.policy, Secrets: out.secrets}
	if err := h.fillSecrets(r.Context(), c.Owner, &spec, out.values); err != nil {
		return err
	}
	change := sandbox.NetworkChange{Policy: *spec.Policy, Secrets: append(ownSecrets(sb), spec.Secrets...), Values: out.values}
	if _, err := h.m.SetNetwork(r.Context(), c.Caller, sb.ID, change); err != nil {
		return err
	}
	notice(w, out.notes)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ownSecrets are those that sb was not given by way of this dialect.
func ownSecrets(sb *sandbox.Sandbox) []string {
	names := []string{}
	for _, name := range sb.Spec.Secrets {
		if !isHeaderSecret(name) {
			names = append(names, name)
		}
	}
	return names
}

// shownNetwork is the network of a sandbox as E2B says it; nil for one without.
func shownNetwork(sb *sandbox.Sandbox) *network {
	t := sb.Spec.Traffic
	if sb.Spec.Policy == nil && t == (sandbox.Traffic{AutoResume: t.AutoResume}) {
		return nil
	}
	n := &network{MaskRequestHost: t.MaskHost}
	public := !t.Restricted
	n.AllowPublicTraffic = &public
	if sb.Spec.Policy != nil {
		out := toEgress(*sb.Spec.Policy)
		n.AllowOut, n.DenyOut, n.Rules = out.AllowOut, out.DenyOut, out.Rules
	}
	return n
}

// notice says in an answer in what it differs from what E2B would do.
func notice(w http.ResponseWriter, notes []policy.Note) {
	if len(notes) > 0 {
		w.Header().Set(api.HeaderNotice, oneLine(notes))
	}
}

// oneLine makes notes fit for a header.
func oneLine(notes []policy.Note) string {
	texts := make([]string, len(notes))
	for i, n := range notes {
		texts[i] = n.String()
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, strings.Join(texts, "; "))
}
