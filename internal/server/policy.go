package server

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// networks is what the server asks of the domain about what sandboxes reach.
type networks interface {
	Get(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	Policy(ctx context.Context, c sandbox.Caller, ref string) (policy.Policy, error)
	SetNetwork(ctx context.Context, c sandbox.Caller, ref string, ch sandbox.NetworkChange) (*sandbox.Sandbox, error)
	NetUse(ctx context.Context, c sandbox.Caller, ref string) (sandbox.NetUse, error)
	NetLog(ctx context.Context, c sandbox.Caller, ref string, o sandbox.NetLogOptions, yield func(netlog.Record) error) error
}

// networkAPI is what /v1/ has about what sandboxes reach.
type networkAPI struct {
	m         networks
	log       *slog.Logger
	sandboxes *sandboxAPI // to show one
}

// policyTypes are what a policy is written in.
var policyTypes = []string{"application/json", "application/yaml", "application/x-yaml", "text/yaml"}

func (a networkAPI) policy(w http.ResponseWriter, r *http.Request) {
	p, err := a.m.Policy(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	answer(w, http.StatusOK, p, err)
}

func (a networkAPI) putPolicy(w http.ResponseWriter, r *http.Request) {
	sb, err := a.setPolicy(r)
	a.sandboxes.answer(w, r, sb, err)
}

func (a networkAPI) setPolicy(r *http.Request) (*sandbox.Sandbox, error) {
	add, err := flag(r, "add")
	if err != nil {
		return nil, err
	}
	b, err := wire.Body(r, policyTypes...)
	if err != nil {
		return nil, err
	}
	p, err := policy.Parse(b)
	if err != nil {
		return nil, sandbox.PolicyError("policy", err)
	}
	caller, ref := auth.Of(r).Caller, r.PathValue("id")
	sb, err := a.m.Get(r.Context(), caller, ref)
	if err != nil {
		return nil, err
	}
	if _, err := policy.Compile(p, sb.Spec.Secrets); err != nil {
		return nil, sandbox.PolicyError("policy", err)
	}
	if !auth.Of(r).PrivateNetwork() {
		if err := netspec.Private(&p, sb.Spec.Secrets); err != nil {
			return nil, err
		}
	}
	sb, err = a.m.SetNetwork(r.Context(), caller, sb.ID, sandbox.NetworkChange{Policy: p, Add: add})
	return sb, sandbox.PolicyError("policy", err)
}

// postTest says what would become of a request, and does none.
func (a networkAPI) postTest(w http.ResponseWriter, r *http.Request) {
	v, err := a.test(r)
	answer(w, http.StatusOK, v, err)
}

func (a networkAPI) test(r *http.Request) (api.PolicyVerdict, error) {
	var req api.PolicyTestRequest
	if err := wire.Decode(r, &req, false); err != nil {
		return api.PolicyVerdict{}, err
	}
	caller, ref := auth.Of(r).Caller, r.PathValue("id")
	sb, err := a.m.Get(r.Context(), caller, ref)
	if err != nil {
		return api.PolicyVerdict{}, err
	}
	p, err := a.m.Policy(r.Context(), caller, sb.ID)
	if err != nil {
		return api.PolicyVerdict{}, err
	}
	v, err := netspec.Test(p, sb.Spec.Secrets, req)
	if err != nil {
		return api.PolicyVerdict{}, err
	}
	return *v, nil
}

// presets lists what --allow knows by name.
func (a networkAPI) presets(w http.ResponseWriter, _ *http.Request) {
	out := []api.PolicyPreset{}
	for _, p := range policy.Presets() {
		out = append(out, netspec.View(p))
	}
	wire.JSON(w, http.StatusOK, out)
}
