package server

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/netspec"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// maxSecrets bounds how many secrets one sandbox is given.
const maxSecrets = 64

// createRequest is what a create asks for. Its policy is read by the package
// that knows what one is, as in every other place that takes one.
type createRequest struct {
	api.CreateRequest
	policy *policy.Policy
}

// decodeCreate reads the body of a create.
func decodeCreate(r *http.Request) (createRequest, error) {
	var req createRequest
	var fields map[string]json.RawMessage
	if err := wire.Decode(r, &fields, false); err != nil {
		return req, err
	}
	if raw, ok := fields["policy"]; ok && string(raw) != "null" {
		p, err := policy.Parse(raw)
		if err != nil {
			return req, netspec.Error("policy", err)
		}
		req.policy = &p
	}
	delete(fields, "policy")
	rest, err := json.Marshal(fields)
	if err != nil {
		return req, err
	}
	return req, wire.DecodeBytes(rest, &req.CreateRequest)
}

// network fills in what spec says of the network.
func (req *createRequest) network(spec *sandbox.Spec) (err error) {
	if spec.Network, spec.Policy, err = netspec.Resolve(req.Network, req.policy); err != nil {
		return err
	}
	if len(req.Secrets) > maxSecrets {
		return sandbox.Errorf(sandbox.Invalid, "secrets: more than %d", maxSecrets)
	}
	for _, sec := range req.Secrets {
		if !netspec.ValidSecret(sec.Name) {
			return sandbox.Errorf(sandbox.Invalid, "secrets: one has no name, or none that can be").
				WithHint("a letter or _, then up to 127 letters, digits and _")
		}
		if slices.Contains(spec.Secrets, sec.Name) {
			return sandbox.Errorf(sandbox.Invalid, "secrets: %s is there twice", sec.Name)
		}
		spec.Secrets = append(spec.Secrets, sec.Name)
		if sec.Value == nil {
			continue
		}
		if *sec.Value == "" {
			return sandbox.Errorf(sandbox.Invalid, "secret %s: its value is empty", sec.Name)
		}
		if spec.SecretValues == nil {
			spec.SecretValues = map[string]string{}
		}
		spec.SecretValues[sec.Name] = string(*sec.Value)
	}
	if spec.Policy == nil && len(spec.Secrets) == 0 {
		return nil
	}
	return netspec.Check(spec.Policy, spec.Secrets)
}
