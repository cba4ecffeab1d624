// Package netspec makes of what a user asks about a sandbox's network the
// policy that it gets, for whoever speaks to users: the command line, the API
// and its dialects.
//
// It refuses what contradicts itself, and a secret that nothing could use. It
// decides nothing about traffic: that is package policy's.
package netspec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// What a sandbox's network can be.
const (
	Off    = sandbox.NetworkOff    // none
	On     = sandbox.NetworkOn     // the public internet, but for what the policy's rules say
	Policy = sandbox.NetworkPolicy // what the policy allows
)

var secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// ValidSecret reports whether name can be a secret's.
func ValidSecret(name string) bool { return secretName.MatchString(name) }

// maxProblems bounds how many problems of a policy one error tells.
const maxProblems = 5

// Resolve fills in what a network and a policy leave open: On goes with a
// policy whose default is public, and one that is not goes with Policy. It
// returns "" and nil where nothing is asked for.
func Resolve(network string, p *policy.Policy) (string, *policy.Policy, error) {
	switch {
	case network == "" && p == nil:
		return "", nil, nil
	case network == "" && p.Default == policy.DefaultPublic:
		return On, p, nil
	case network == "":
		return Policy, p, nil
	case network == Policy && p != nil && p.Default == policy.DefaultPublic:
		return "", nil, sandbox.Errorf(sandbox.Invalid, "network policy: the policy's default is public").
			WithHint("set the network to on, or leave out the default")
	case network == Off && p != nil:
		return "", nil, sandbox.Errorf(sandbox.Invalid, "network off: it can't go with a policy").
			WithHint("leave out one of the two")
	case network == Policy && p == nil:
		return "", nil, sandbox.Errorf(sandbox.Invalid, "network policy: there is no policy").
			WithHint("give one, or set the network to on or off")
	case network == Off, network == Policy:
		return network, p, nil
	case network == On:
		public := policy.Policy{}
		if p != nil {
			public = *p
		}
		if public.Default == policy.DefaultDeny {
			return "", nil, sandbox.Errorf(sandbox.Invalid, "network on: the policy's default is deny").
				WithHint("leave out the default, or the network")
		}
		public.Default = policy.DefaultPublic
		return On, &public, nil
	}
	return "", nil, sandbox.Errorf(sandbox.Invalid, "network %.80q: there is no such choice", network).WithHint("off, on or policy")
}

// Check reports what is wrong with a policy and the names of the secrets that
// go with it; p may be nil. A secret that no rule has a place for is an error.
func Check(p *policy.Policy, secrets []string) error {
	var placed []string
	if p != nil {
		set, err := policy.Compile(*p, secrets)
		if err != nil {
			return Error("policy", err)
		}
		placed = set.Secrets()
	}
	for _, name := range secrets {
		if !slices.Contains(placed, name) {
			return sandbox.Errorf(sandbox.Invalid, "secret %s: no rule has a place for it", name).WithHint("%s", placeHint(name))
		}
	}
	return nil
}

// places reports whether r puts a secret anywhere.
func places(r policy.Rule, name string) bool {
	return slices.ContainsFunc(r.Secrets, func(s policy.Secret) bool { return s.Name == name })
}

// placeHint says what would make a secret of use: a preset that knows it, or
// a rule.
func placeHint(name string) string {
	for _, p := range policy.Presets() {
		if slices.ContainsFunc(p.Rules, func(r policy.Rule) bool { return places(r, name) }) {
			return "--allow " + p.Name + ", or a rule of --policy with secrets: [{name: " + name + ", header: Authorization}]"
		}
	}
	return "a rule of --policy with secrets: [{name: " + name + ", header: Authorization}]"
}

// Error makes what is wrong with a policy fit to show: after what, which may be
// "", where and why, and what to do. Other errors stay what they are, and so
// does nil.
func Error(what string, err error) error {
	if _, ok := errors.AsType[*sandbox.Error](err); err == nil || ok {
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
	e := sandbox.Errorf(sandbox.Invalid, "%s%s", what, strings.Join(texts, "; "))
	if hint != "" {
		e = e.WithHint("%s", hint)
	}
	return e
}
