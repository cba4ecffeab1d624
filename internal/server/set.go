package server

import (
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// set changes a sandbox that is there.
func (a *sandboxAPI) set(w http.ResponseWriter, r *http.Request) {
	ch, err := a.readChange(r)
	if err != nil {
		wire.Error(w, err)
		return
	}
	sb, set, err := a.m.Set(r.Context(), auth.Of(r).Caller, r.PathValue("id"), ch)
	if err != nil {
		wire.Error(w, sandbox.PolicyError("policy", err))
		return
	}
	out := api.ChangeResult{
		Sandbox: a.view(r, sb, &imageConfigs{images: a.images}), Changes: make([]api.Setting, 0, len(set)),
	}
	for _, s := range set {
		out.Changes = append(out.Changes, api.Setting{What: s.What, From: s.From, To: s.To, When: s.When, Note: s.Note})
	}
	wire.JSON(w, http.StatusOK, out)
}

// readChange reads what is to be changed, as far as that can be known to be wrong
// without the sandbox.
func (a *sandboxAPI) readChange(r *http.Request) (ch sandbox.Change, err error) {
	var req api.ChangeRequest
	p, err := decodeWithPolicy(r, &req)
	if err != nil {
		return ch, err
	}
	l := req.Limits
	if l.CPUs < 0 || l.Memory < 0 || l.PIDs < 0 || l.Disk < 0 {
		return ch, sandbox.Errorf(sandbox.Invalid, "limits: one is below zero")
	}
	ch = sandbox.Change{
		CPUs: l.CPUs, Memory: l.Memory, PIDs: l.PIDs, Disk: l.Disk, Network: req.Network, Policy: p, Add: req.Add,
		OnExpiry: sandbox.OnExpiry(req.OnExpiry), Labels: req.Labels,
	}
	if req.TTLMillis != nil {
		ttl, err := millis("ttl_ms", *req.TTLMillis)
		if err != nil {
			return ch, err
		}
		ch.TTL = &ttl
	}
	if req.Limits == (api.ChangeLimits{}) && req.Network == "" && p == nil && req.TTLMillis == nil && req.OnExpiry == "" && len(req.Labels) == 0 {
		return ch, sandbox.Errorf(sandbox.Invalid, "there is nothing to change in it").WithHint("limits, network, policy, ttl_ms, on_expiry or labels")
	}
	if req.Add && p == nil {
		return ch, sandbox.Errorf(sandbox.Invalid, "add: there is no policy whose rules could be added").WithHint("policy, or leave add out")
	}
	if ch.Network, ch.Policy, err = sandbox.ResolveNetwork(req.Network, p); err != nil {
		return ch, err
	}
	if ch.Policy == nil || auth.Of(r).PrivateNetwork() {
		return ch, nil
	}
	// The secrets that a sandbox has do not matter to which addresses are private,
	// but for the rules that name them.
	sb, err := a.m.Get(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	if err != nil {
		return ch, err
	}
	return ch, netspec.Private(ch.Policy, sb.Spec.Secrets)
}

// pending lists what was set of sb and holds from its next start on.
func pending(sb *sandbox.Sandbox) (out []api.Pending) {
	for _, s := range sb.Pending() {
		out = append(out, api.Pending{What: s.What, To: s.To, Why: s.Note})
	}
	return out
}
