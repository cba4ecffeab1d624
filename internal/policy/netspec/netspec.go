// Package netspec shows policies to users, and asks them what would become of a
// request, for what speaks to users: the command line, the API and its
// dialects.
//
// It refuses what opens a private network to callers who may not give that
// away. It decides nothing about traffic: that is package policy's.
package netspec

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Private refuses a policy that opens what is closed by itself, for callers
// who are not entitled to that: addresses of the host's own networks, its
// loopback and its metadata service are not theirs to give away. p may be nil.
func Private(p *policy.Policy, secrets []string) error {
	if p == nil {
		return nil
	}
	set, err := policy.Compile(*p, secrets)
	if err != nil {
		return sandbox.PolicyError("policy", err)
	}
	own, err := OwnAddresses()
	if err != nil {
		return err
	}
	if opened := set.Opened(func(a netip.Addr) bool { return own[a] }); len(opened) > 0 {
		return sandbox.Errorf(sandbox.Denied, "policy: this key may not open %s, which is not public", opened[0]).
			WithHint(`carboy key add --private-network makes a key that may; of one in the key file, its line says "private_network": true`)
	}
	return nil
}

// OwnAddresses are this machine's.
func OwnAddresses() (map[netip.Addr]bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	own := make(map[netip.Addr]bool, len(all))
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return own, nil
}

// View is a preset as users see it.
func View(p policy.Preset) api.PolicyPreset {
	out := api.PolicyPreset{Name: p.Name, Summary: p.Summary, Rules: p.Rules, Opens: make([]string, 0, len(p.Rules))}
	for i := range p.Rules {
		out.Opens = append(out.Opens, policy.Describe(&p.Rules[i]))
		for _, s := range p.Rules[i].Secrets {
			if !slices.Contains(out.Secrets, s.Name) {
				out.Secrets = append(out.Secrets, s.Name)
			}
		}
	}
	return out
}

// Test says what would become of a request under a policy, for a sandbox that
// was given those secrets. Nothing is resolved or sent.
func Test(p policy.Policy, secrets []string, req api.PolicyTestRequest) (*api.PolicyVerdict, error) {
	set, err := policy.Compile(p, secrets)
	if err != nil {
		return nil, sandbox.PolicyError("policy", err)
	}
	var addr netip.Addr
	if req.Address != "" {
		if addr, err = netip.ParseAddr(req.Address); err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "address %.80q: that is none", req.Address)
		}
	}
	steps, err := set.Test(req.Request, addr)
	if err != nil {
		return nil, sandbox.PolicyError("request", err)
	}
	out := &api.PolicyVerdict{Request: req.Request}
	if !addr.IsValid() && len(steps) > 1 && strings.HasPrefix(steps[0].Question, "resolve ") && namesAddress(set.Policy().Rules) {
		out.Note = "that holds where the name leads to an address that no rule names: --address ADDRESS tries one"
	}
	for _, s := range steps {
		v := s.Verdict
		out.Steps = append(out.Steps, api.PolicyStep{
			Question: s.Question, Mode: modeOf(v), Code: string(v.Code), Rule: v.Rule, Reason: v.Reason,
		})
		// The last one decides.
		out.Ask = v.Ask || v.Mode == policy.ModeAllow && v.Route.AsksForSecret()
		out.Allowed, out.Code, out.Rule, out.Reason, out.Hint = v.Allowed() && !out.Ask, string(v.Code), v.Rule, v.Reason, v.Hint
		out.Secrets = nil
		if v.Route != nil && !strings.HasPrefix(req.Request, "dns:") {
			for _, sec := range v.Route.Secrets {
				out.Secrets = append(out.Secrets, sec.Name)
			}
		}
	}
	return out, nil
}

// modeOf is a verdict's mode in a word.
func modeOf(v policy.Verdict) string {
	if v.Ask {
		return "ask"
	}
	return string(v.Mode)
}

// namesAddress reports whether a rule is about addresses: it then decides about any
// name that leads there.
func namesAddress(rules []policy.Rule) bool {
	return slices.ContainsFunc(rules, func(r policy.Rule) bool { return len(r.Addresses) > 0 })
}
