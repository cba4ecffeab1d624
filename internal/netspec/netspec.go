// Package netspec makes of what a user asks about a sandbox's network the
// policy that it gets, for whoever speaks to users: the command line, the API
// and its dialects.
//
// It refuses what contradicts itself, and a secret that nothing could use. It
// decides nothing about traffic: that is package policy's.
package netspec

import (
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// What a sandbox's network can be.
const (
	Off    = sandbox.NetworkOff    // none
	On     = sandbox.NetworkOn     // the public internet, but for what the policy's rules say
	Policy = sandbox.NetworkPolicy // what the policy allows
)

// ValidSecret reports whether name can be a secret's.
func ValidSecret(name string) bool { return sandbox.ValidSecret(name) }

// Resolve fills in what a network and a policy leave open, or says how they
// contradict each other.
func Resolve(network string, p *policy.Policy) (string, *policy.Policy, error) {
	return sandbox.ResolveNetwork(network, p)
}

// Check reports what is wrong with a policy and the names of the secrets that
// go with it; p may be nil. A secret that no rule has a place for is an error.
func Check(p *policy.Policy, secrets []string) error { return sandbox.CheckPolicy(p, secrets) }

// Error makes what is wrong with a policy fit to show: after what, which may be
// "", where and why, and what to do. Other errors stay what they are, and so
// does nil.
func Error(what string, err error) error { return sandbox.PolicyError(what, err) }
