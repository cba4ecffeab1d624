package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// maxProblems bounds how many problems of a policy one error tells.
const maxProblems = 5

// ResolveNetwork fills in what a network and a policy leave open: NetworkOn
// goes with a policy whose default is public, and one that is not goes with
// NetworkPolicy. It returns "" and nil where nothing is asked for, and fails
// with Invalid where the two contradict each other. What it returns it returns
// again for itself.
func ResolveNetwork(network string, p *policy.Policy) (string, *policy.Policy, error) {
	public := p != nil && policy.Public(p.Default)
	switch network {
	case "":
		switch {
		case p == nil:
			return "", nil, nil
		case public:
			return NetworkOn, p, nil
		}
		return NetworkPolicy, p, nil
	case NetworkOff:
		if p != nil {
			return "", nil, Errorf(Invalid, "network off: it can't go with a policy").WithHint("leave out one of the two")
		}
		return network, nil, nil
	case NetworkPolicy:
		if p == nil {
			return "", nil, Errorf(Invalid, "network policy: there is no policy").WithHint("give one, or set the network to on or off")
		}
		if public {
			return "", nil, Errorf(Invalid, "network policy: the policy's default is public").
				WithHint("set the network to on, or leave out the default")
		}
		return network, p, nil
	case NetworkOn:
		out := policy.Policy{}
		if p != nil {
			out = *p
		}
		if out.Default == policy.DefaultDeny {
			return "", nil, Errorf(Invalid, "network on: the policy's default is deny").WithHint("leave out the default, or the network")
		}
		if !policy.Public(out.Default) {
			out.Default = policy.DefaultPublic
		}
		return network, &out, nil
	}
	return "", nil, Errorf(Invalid, "network %.80q: there is no such choice", network).WithHint("off, on or policy")
}

var secretName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]{0,127}\z`) })

// ValidSecret reports whether name can be a secret's.
func ValidSecret(name string) bool { return secretName().MatchString(name) }

// CheckPolicy reports what is wrong with a policy and the names of the secrets
// that go with it; p may be nil. A secret that no rule has a place for is an
// error.
func CheckPolicy(p *policy.Policy, secrets []string) error {
	var placed []string
	if p != nil {
		set, err := policy.Compile(*p, secrets)
		if err != nil {
			return PolicyError("policy", err)
		}
		placed = set.Secrets()
	}
	for i, name := range secrets {
		switch {
		case !ValidSecret(name):
			return Errorf(Invalid, "secret %.80q: not a secret's name", name).
				WithHint("letters, digits and _, and no digit first: API_TOKEN")
		case slices.Contains(secrets[:i], name):
			return Errorf(Invalid, "secret %s: named twice", name).WithHint("name it once")
		case !slices.Contains(placed, name):
			return Errorf(Invalid, "secret %s: no rule has a place for it", name).WithHint("%s", placeHint(name))
		}
	}
	return nil
}

// placeHint says what would make a secret of use: a preset that knows it, or
// a rule.
func placeHint(name string) string {
	rule := "a rule of --policy with secrets: [{name: " + name + ", header: Authorization}]"
	for _, p := range policy.Presets() {
		for _, r := range p.Rules {
			if slices.ContainsFunc(r.Secrets, func(s policy.Secret) bool { return s.Name == name }) {
				return "--allow " + p.Name + ", or " + rule
			}
		}
	}
	return rule
}

// PolicyError makes what is wrong with a policy fit to show: after what, which
// may be "", where and why, and what to do. Other errors stay what they are,
// and so does nil.
func PolicyError(what string, err error) error {
	if _, ok := errors.AsType[*Error](err); err == nil || ok {
		return err
	}
	found := policy.Problems(err)
	if len(found) == 0 {
		return err
	}
	texts := make([]string, 0, maxProblems+1)
	hint := ""
	for i, p := range found {
		if i == maxProblems {
			texts = append(texts, fmt.Sprintf("and %d more", len(found)-i))
			break
		}
		text := p.Problem
		if p.Where != "" {
			text = p.Where + ": " + text
		}
		texts = append(texts, text)
		if hint == "" {
			hint = p.Hint
		}
	}
	if what != "" {
		what += ": "
	}
	e := Errorf(Invalid, "%s%s", what, strings.Join(texts, "; "))
	if hint != "" {
		e = e.WithHint("%s", hint)
	}
	return e
}

// normalizeNetwork makes the network's name and the policy's default agree. A
// contradiction is left for Validate to refuse.
func (s *Spec) normalizeNetwork() {
	if network, p, err := s.Own().Network(s.Network, s.Policy); err == nil {
		s.Network, s.Policy = network, p
	}
	setDefault(&s.Network, DefaultNetwork)
}

// checkNetwork refuses a network that can't be promised, a policy that does
// not say what it means, and secrets that nothing could use.
func (s Spec) checkNetwork(o Offer) *Error {
	if err := s.checkNetworkChoice(o); err != nil {
		return err
	}
	return userError(CheckPolicy(s.Policy, s.Secrets))
}

// check refuses a value without a name among secrets.
func (v SecretValues) check(secrets []string) error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if !slices.Contains(secrets, name) {
			return Errorf(Invalid, "secret %.80q: there is a value for it, and the sandbox was not given it", name).
				WithHint("name it among the secrets, or leave out the value")
		}
	}
	return nil
}

// checkNetworkChoice is checkNetwork but for the policy and the secrets.
func (s Spec) checkNetworkChoice(o Offer) *Error {
	if _, _, err := ResolveNetwork(s.Network, s.Policy); err != nil {
		return userError(err)
	}
	if s.Networked() && !o.Gate {
		return Errorf(Unsupported, "network %s: this machine can't gate one", s.Network).
			WithHint("leave it off; carboy doctor says what is missing")
	}
	return nil
}

// userError makes err, if there is one, an Error.
func userError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Internal, Msg: "the policy could not be checked", Err: err}
}
