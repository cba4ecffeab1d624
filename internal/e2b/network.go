package e2b

import (
	"maps"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/netspec"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// network is what a create may say of the network beside
// allow_internet_access.
type network struct {
	AllowOut    []string                    `json:"allowOut"`
	DenyOut     []string                    `json:"denyOut"`
	Rules       map[string][]policy.E2BRule `json:"rules"`
	EgressProxy *policy.E2BProxy            `json:"egressProxy"`
	// AllowPublicTraffic opens the sandbox's ports to whoever knows their names.
	AllowPublicTraffic *bool  `json:"allowPublicTraffic"`
	MaskRequestHost    string `json:"maskRequestHost"`
}

// networkOf fills in what spec says of the network, and returns in what it is
// not quite what E2B would make of it. A create that says nothing has none, as
// any other sandbox here; so has one that says allow_internet_access, which
// E2B's clients say by themselves, unless internet is set.
func (req *newSandbox) networkOf(spec *sandbox.Spec, internet bool) (notes []policy.Note, err error) {
	n := req.Network
	if n == nil {
		n = &network{}
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	out := policy.E2BNetwork{AllowInternetAccess: req.AllowInternet, AllowOut: n.AllowOut, DenyOut: n.DenyOut, Rules: n.Rules}
	asked := len(n.AllowOut)+len(n.DenyOut)+len(n.Rules) > 0
	closed := req.AllowInternet == nil || !*req.AllowInternet
	if !internet {
		if !closed {
			notes = append(notes, policy.Note{Where: "allow_internet_access", Text: "not given: e2b_internet of the server's configuration is false"})
		}
		closed, out.AllowInternetAccess = true, new(bool)
	}
	if closed && !asked {
		return notes, nil
	}
	p, more, err := policy.FromE2B(out)
	if err != nil {
		return nil, netspec.Error("network", err)
	}
	notes = append(notes, more...)
	values := out.Secrets()
	set, err := policy.Compile(p, slices.Collect(maps.Keys(values)))
	if err != nil {
		return nil, netspec.Error("network", err)
	}
	if spec.Network, spec.Policy, err = netspec.Resolve("", &p); err != nil {
		return nil, err
	}
	// A header for a name that is not let through has no place: a note says so.
	for _, name := range set.Secrets() {
		if spec.SecretValues == nil {
			spec.SecretValues = map[string]string{}
		}
		spec.Secrets = append(spec.Secrets, name)
		spec.SecretValues[name] = values[name]
	}
	return notes, nil
}

// check refuses what can't be kept.
func (n *network) check() error {
	switch {
	case n.AllowPublicTraffic != nil && *n.AllowPublicTraffic:
		return sandbox.Errorf(sandbox.Unsupported, "network.allowPublicTraffic: a sandbox's ports always ask for its access token").
			WithHint("leave it out, or set it to false")
	case n.MaskRequestHost != "":
		return sandbox.Errorf(sandbox.Unsupported, "network.maskRequestHost: not available in this version").WithHint("leave it out")
	case n.EgressProxy != nil:
		return sandbox.Errorf(sandbox.Unsupported, "network.egressProxy: no proxy can be put behind the gate").WithHint("leave it out")
	}
	return nil
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
