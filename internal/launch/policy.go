package launch

import (
	"cmp"
	"io"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// maxPolicy bounds a file with a policy, in bytes.
const maxPolicy = 1 << 20

// LoadPolicy reads --policy and adds what --allow says; nil where there is
// neither.
func LoadPolicy(file string, allow []string, note func(string)) (*policy.Policy, error) {
	if file == "" && len(allow) == 0 {
		return nil, nil
	}
	p := policy.Policy{}
	if file != "" {
		b, err := ReadPolicyFile("--policy "+shell.Word(file), file)
		if err != nil {
			return nil, err
		}
		var notes []policy.Note
		if p, notes, err = ParsePolicy(b); err != nil {
			return nil, sandbox.PolicyError("--policy "+shell.Word(file), err)
		}
		for _, n := range notes {
			note("--policy " + shell.Word(file) + ": " + n.String())
		}
	}
	for _, arg := range allow {
		var err error
		if p, err = policy.Allow(p, arg); err != nil {
			return nil, sandbox.PolicyError("", err) // it says which
		}
	}
	return &p, nil
}

// ReadPolicyFile reads a file with a policy, for what: the start of an error.
func ReadPolicyFile(what, name string) ([]byte, error) {
	f, err := beneath.OpenInput(name)
	if err != nil {
		return nil, usage.Path(what, "", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	return ReadPolicy(what, f)
}

// ReadPolicy reads a policy's text, of bounded length.
func ReadPolicy(what string, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxPolicy+1))
	if err != nil {
		return nil, usage.Errorf("%s: %v", what, usage.Pathless(err))
	}
	if len(b) > maxPolicy {
		return nil, usage.Errorf("%s: larger than %s", what, term.FormatSize(maxPolicy))
	}
	return b, nil
}

// ParsePolicy reads a policy, or settings of Anthropic's sandbox-runtime.
func ParsePolicy(b []byte) (policy.Policy, []policy.Note, error) {
	if policy.IsSandboxRuntime(b) {
		return policy.FromSandboxRuntime(b)
	}
	p, err := policy.Parse(b)
	return p, nil, err
}

// reach fills in what the sandbox may reach, and checks it as the daemon will: a
// mistake is told before anything is started.
func (s *Spec) reach(req *Request, note func(string)) error {
	if s.Network == sandbox.NetworkOff && (len(s.Allow) > 0 || s.Policy != "" || len(s.Secrets) > 0) {
		return usage.Errorf("--network off can't go with --allow, --policy or --secret").WithHint("leave out --network")
	}
	p, err := LoadPolicy(s.Policy, s.Allow, note)
	if err != nil {
		return err
	}
	p = besides(s.Base, p)
	names := make([]string, 0, len(s.Secrets)+len(s.Given))
	for _, arg := range s.Secrets {
		one, err := parseSecret(arg)
		if err != nil {
			return err
		}
		if slices.Contains(names, one.name) {
			return usage.Errorf("--secret: %s was given twice", one.name)
		}
		names = append(names, one.name)
		req.secrets = append(req.secrets, one)
	}
	for _, g := range s.Given {
		names = append(names, g.Name)
		req.secrets = append(req.secrets, namedSecret{name: g.Name, value: g.Value})
	}
	network, p, err := sandbox.ResolveNetwork(s.Network, p)
	if err != nil {
		return err
	}
	if err := sandbox.CheckPolicy(p, names); err != nil {
		return err
	}
	if p == nil {
		req.Network = s.Network
		return nil
	}
	req.Network, req.Policy = network, p
	return nil
}

// besides is a policy with the rules of base before its own.
func besides(base, p *policy.Policy) *policy.Policy {
	if base == nil || p == nil {
		return cmp.Or(p, policy.Clone(base))
	}
	both := policy.Clone(p)
	both.Presets = append(slices.Clone(base.Presets), both.Presets...)
	both.Rules = policy.Clone(&policy.Policy{Rules: append(slices.Clone(base.Rules), both.Rules...)}).Rules
	return both
}
