package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// maxSecrets bounds how many secrets one sandbox is given.
const maxSecrets = 64

// decodeCreate reads the body of a create. Its policy is read by the package
// that knows what one is, as in every other place that takes one. Both in one
// go, by a type around the request, would have errors name that type.
func (a *sandboxAPI) decodeCreate(w http.ResponseWriter, r *http.Request) (req api.CreateRequest, err error) {
	leave, err := a.reading(w, r)
	if err != nil {
		return req, err
	}
	defer leave()
	b, err := wire.Large(r, maxSetUp)
	if err != nil {
		return req, err
	}
	p, err := decodePolicyIn(b, &req)
	req.Policy = p
	return req, err
}

// decodeWithPolicy reads a request, and apart from it the policy in it, if there is
// one.
func decodeWithPolicy(r *http.Request, req any) (p *policy.Policy, err error) {
	b, err := wire.Large(r, wire.MaxBody)
	if err != nil {
		return nil, err
	}
	return decodePolicyIn(b, req)
}

func decodePolicyIn(b []byte, req any) (p *policy.Policy, err error) {
	var fields map[string]json.RawMessage
	if err := wire.DecodeBytes(b, &fields); err != nil {
		return nil, err
	}
	if raw, ok := fields["policy"]; ok && string(raw) != "null" {
		parsed, err := policy.Parse(raw)
		if err != nil {
			return nil, sandbox.PolicyError("policy", err)
		}
		p = &parsed
	}
	delete(fields, "policy")
	rest, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return p, wire.DecodeBytes(rest, req)
}

// setNetwork fills in what spec says of the network.
func setNetwork(req *api.CreateRequest, spec *sandbox.Spec) (err error) {
	if spec.Network, spec.Policy, err = sandbox.ResolveNetwork(req.Network, req.Policy); err != nil {
		return err
	}
	if len(req.Secrets) > maxSecrets {
		return sandbox.Errorf(sandbox.Invalid, "secrets: more than %d", maxSecrets)
	}
	for _, sec := range req.Secrets {
		if !sandbox.ValidSecret(sec.Name) {
			return sandbox.Errorf(sandbox.Invalid, "secrets: one has no name, or none that can be").
				WithHint("a letter or _, then up to 127 letters, digits and _")
		}
		if slices.Contains(spec.Secrets, sec.Name) {
			return sandbox.Errorf(sandbox.Invalid, "secrets: %s is there twice", sec.Name)
		}
		spec.Secrets = append(spec.Secrets, sec.Name)
		if sec.Value != nil && *sec.Value == "" {
			return sandbox.Errorf(sandbox.Invalid, "secret %s: its value is empty", sec.Name)
		}
	}
	if spec.Policy == nil && len(spec.Secrets) == 0 {
		return nil
	}
	return sandbox.CheckPolicy(spec.Policy, spec.Secrets)
}

// createNews is something to tell while a sandbox is made.
type createNews struct {
	copied *sandbox.Copied
	step   *api.SetUpStep
}

// copies is how far a copy is; nil: it tells of something else.
func (n createNews) copies() *api.Copied {
	if n.copied == nil {
		return nil
	}
	return &api.Copied{Files: n.copied.Files, Bytes: n.copied.Bytes}
}

// sandboxNews are the lines that tell of a sandbox that is made.
func sandboxNews(n createNews, sb *api.Sandbox, err *api.Error) any {
	return api.CreateEvent{Copied: n.copies(), Step: n.step, Sandbox: sb, Error: err}
}

// watchCreate answers with what f makes, after news of its workspace's copy and of its set-up,
// of whose steps f tells, where the request accepts them; and else with status.
func watchCreate(w http.ResponseWriter, r *http.Request, status int, f func(context.Context, func(api.SetUpStep)) (*api.Sandbox, error)) {
	watched(w, r, status, sandboxNews, func(ctx context.Context, tell func(createNews)) (*api.Sandbox, error) {
		if tell == nil {
			return f(ctx, nil)
		}
		return f(ctx, func(s api.SetUpStep) { tell(createNews{step: &s}) })
	})
}

// watched answers with what f makes, after news of it, each as line has it, where the request accepts them; and else with
// status, and f has nobody to tell.
func watched[T any](w http.ResponseWriter, r *http.Request, status int, line func(createNews, *T, *api.Error) any, f func(context.Context, func(createNews)) (*T, error)) {
	if r.Header.Get("Accept") != api.CreateNews {
		made, err := f(r.Context(), nil)
		answer(w, status, made, err)
		return
	}
	out := newNewsStream(w, func(a, b createNews) bool { return a.copied != nil && b.copied != nil },
		func(n createNews) any { return line(n, nil, nil) })
	ctx := sandbox.WithCopied(r.Context(), func(c sandbox.Copied) { out.report(createNews{copied: &c}) })
	made, err := f(ctx, out.report)
	switch begun := out.stop(); {
	case !begun:
		answer(w, status, made, err)
	case err != nil:
		wire.Failed(w, err)
		e := wire.Describe(err)
		out.line(line(createNews{}, nil, &e))
	default:
		out.line(line(createNews{}, made, nil))
	}
}

// secretValues are those that req brings; nil: none.
func secretValues(req *api.CreateRequest) (values sandbox.SecretValues) {
	for _, sec := range req.Secrets {
		if sec.Value == nil {
			continue
		}
		if values == nil {
			values = sandbox.SecretValues{}
		}
		values[sec.Name] = string(*sec.Value)
	}
	return values
}
