package server

import (
	"context"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// networks is what the server asks of the domain about what sandboxes reach.
type networks interface {
	Policy(ctx context.Context, c sandbox.Caller, ref string) (policy.Policy, error)
	SetPolicy(ctx context.Context, c sandbox.Caller, ref string, p policy.Policy) (*sandbox.Sandbox, error)
	SetNetwork(ctx context.Context, c sandbox.Caller, ref string, ch sandbox.NetworkChange) (*sandbox.Sandbox, error)
	NetUse(ctx context.Context, c sandbox.Caller, ref string) (sandbox.NetUse, error)
	NetLog(ctx context.Context, c sandbox.Caller, ref string, o sandbox.NetLogOptions, yield func(netlog.Record) error) error
}

// policyTypes are what a policy is written in.
var policyTypes = []string{"application/json", "application/yaml", "application/x-yaml", "text/yaml"}

func (s *Server) getPolicy(w http.ResponseWriter, r *http.Request) {
	p, err := s.m.Policy(r.Context(), principalOf(r).caller, r.PathValue("id"))
	answer(w, http.StatusOK, p, err)
}

func (s *Server) putPolicy(w http.ResponseWriter, r *http.Request) {
	sb, err := s.setPolicy(r)
	s.answerSandbox(w, r, sb, err)
}

func (s *Server) setPolicy(r *http.Request) (*sandbox.Sandbox, error) {
	b, err := wire.Body(r, policyTypes...)
	if err != nil {
		return nil, err
	}
	p, err := policy.Parse(b)
	if err != nil {
		return nil, sandbox.PolicyError("policy", err)
	}
	caller, ref := principalOf(r).caller, r.PathValue("id")
	sb, err := s.m.Get(r.Context(), caller, ref)
	if err != nil {
		return nil, err
	}
	if _, err := policy.Compile(p, sb.Spec.Secrets); err != nil {
		return nil, sandbox.PolicyError("policy", err)
	}
	if !principalOf(r).privateNetwork() {
		if err := netspec.Private(&p, sb.Spec.Secrets); err != nil {
			return nil, err
		}
	}
	sb, err = s.m.SetPolicy(r.Context(), caller, sb.ID, p)
	return sb, sandbox.PolicyError("policy", err)
}

// postPolicyTest says what would become of a request, and does none.
func (s *Server) postPolicyTest(w http.ResponseWriter, r *http.Request) {
	v, err := s.testPolicy(r)
	answer(w, http.StatusOK, v, err)
}

func (s *Server) testPolicy(r *http.Request) (api.PolicyVerdict, error) {
	var req api.PolicyTestRequest
	if err := wire.Decode(r, &req, false); err != nil {
		return api.PolicyVerdict{}, err
	}
	caller, ref := principalOf(r).caller, r.PathValue("id")
	sb, err := s.m.Get(r.Context(), caller, ref)
	if err != nil {
		return api.PolicyVerdict{}, err
	}
	p, err := s.m.Policy(r.Context(), caller, sb.ID)
	if err != nil {
		return api.PolicyVerdict{}, err
	}
	v, err := netspec.Test(p, sb.Spec.Secrets, req)
	if err != nil {
		return api.PolicyVerdict{}, err
	}
	return *v, nil
}

// getPresets lists what --allow knows by name.
func (s *Server) getPresets(w http.ResponseWriter, _ *http.Request) {
	out := []api.PolicyPreset{}
	for _, p := range policy.Presets() {
		out = append(out, netspec.View(p))
	}
	wire.JSON(w, http.StatusOK, out)
}
