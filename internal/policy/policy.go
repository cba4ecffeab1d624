// Package policy decides what a sandbox may reach. It is pure: a policy and a
// name, a connection or a request in, a verdict and its reason out. It does
// no I/O and knows no clock; its callers enforce.
//
// It refuses everything that no rule is about, and a policy that says
// anything it does not know.
package policy

import (
	"errors"
	"reflect"
	"slices"

	"github.com/carboy-sandbox/carboy/api"
)

// Version is the only version of the schema that there is.
const Version = 1

// What a policy is made of: what users write, and the wire carries. The zero
// Policy refuses everything. Parse reads one; Compile checks it and makes it
// ready to decide.
type (
	Policy = api.Policy
	Rule   = api.PolicyRule
	Match  = api.PolicyMatch
	Value  = api.PolicyValue
	Field  = api.PolicyField
	Secret = api.PolicySecret
	Limits = api.PolicyLimits
	DNS    = api.PolicyDNS
	Asking = api.PolicyAsk
)

// Default is what becomes of what no rule is about.
type Default = string

// The defaults.
const (
	DefaultDeny Default = "deny"
	// DefaultPublic lets through what goes to public addresses, under names
	// that the gate has resolved. A host that an allowing rule is about is
	// governed by the rules alone.
	DefaultPublic Default = "public"
	// DefaultRead is DefaultPublic, and TLS to the web's ports is read as if a rule
	// for HTTP allowed it: for who wants to know what is asked for there.
	DefaultRead Default = "public-read"
)

// Public reports whether a default lets through what goes to public addresses.
func Public(d Default) bool { return d == DefaultPublic || d == DefaultRead }

// What a rule does with what it matches.
const (
	actionAllow = "allow" // also where a rule says none
	ActionDeny  = "deny"
	// ActionAsk lets through what a person has said yes to.
	ActionAsk = "ask"
)

// Protocol is how a rule's connections are carried.
type Protocol = string

// The protocols.
const (
	ProtocolHTTP Protocol = "http" // HTTP of every version, in TLS or clear; TLS is intercepted
	ProtocolTLS  Protocol = "tls"  // TLS by the name that it asks for, passed through unread
	ProtocolTCP  Protocol = "tcp"  // any bytes
	ProtocolUDP  Protocol = "udp"
)

// AuthGuest is a rule's Auth that lets the guest's own credentials through.
const AuthGuest = "guest"

// PlaceholdersPass is a rule's Placeholders that sends those in bodies on: for an API
// that an agent tells all that it saw, its own environment included. A placeholder is no
// secret.
const PlaceholdersPass = "pass"

// MatchType is how a text is compared.
type MatchType = string

// The types. HTTPRoute's own words for them are read too.
const (
	MatchExact  MatchType = "exact"  // "Exact"; also where none is named, but for paths
	matchPrefix MatchType = "prefix" // "PathPrefix": whole segments; the default for paths
	matchRegex  MatchType = "regex"  // "RegularExpression": RE2, of the whole text

	regexOfHTTPRoute MatchType = "RegularExpression"
)

// DefaultQueriesPerMinute bounds the questions of a sandbox.
const DefaultQueriesPerMinute = 600

// Clone returns a copy that shares nothing with p; nil for nil.
func Clone(p *Policy) *Policy {
	if p == nil {
		return nil
	}
	c := *p
	c.Presets = slices.Clone(p.Presets)
	c.Rules = cloneRules(p.Rules)
	c.Services = slices.Clone(p.Services)
	c.DNS.Types, c.DNS.Upstreams = slices.Clone(p.DNS.Types), slices.Clone(p.DNS.Upstreams)
	return &c
}

func cloneRules(rules []Rule) []Rule {
	rules = slices.Clone(rules)
	for i, r := range rules {
		r.Hosts, r.Addresses, r.Ports = slices.Clone(r.Hosts), slices.Clone(r.Addresses), slices.Clone(r.Ports)
		r.Matches, r.Secrets = slices.Clone(r.Matches), slices.Clone(r.Secrets)
		for j, m := range r.Matches {
			m.Methods, m.Paths = slices.Clone(m.Methods), slices.Clone(m.Paths)
			m.Headers, m.Query = slices.Clone(m.Headers), slices.Clone(m.Query)
			r.Matches[j] = m
		}
		rules[i] = r
	}
	return rules
}

// expand puts the rules of a policy's presets behind its own.
func expand(p *Policy, errs *Errors) {
	var rules []Rule
	for i, name := range p.Presets {
		preset, ok := presetByName(name)
		switch {
		case !ok:
			errs.Addf(at("presets", i), presetNames(), "%s is no preset", Quoted(name))
		case slices.Contains(p.Presets[:i], name):
		default:
			rules = append(rules, preset.Rules...)
		}
	}
	if len(rules) > 0 {
		*p = With(*p, rules...)
	}
	p.Presets = nil
}

// With is the policy with rules behind its own. Those that it has already,
// word for word, it does not get again: a preset may be asked for twice.
func With(p Policy, rules ...Rule) Policy {
	p = *Clone(&p)
	if len(rules) == 0 {
		return p
	}
	has := make(map[string]bool, len(p.Rules)+len(rules))
	for i := range p.Rules {
		has[p.Rules[i].ID+"\n"+saying(&p.Rules[i])] = true
	}
	for _, r := range cloneRules(rules) {
		key := r.ID + "\n" + saying(&r)
		if !has[key] {
			p.Rules = append(p.Rules, r)
		}
		has[key] = true
	}
	return p
}

// Add is old with the rules, presets and services of more, which may say nothing else: what
// is no rule stays as it is. What is more than any policy has is an *Error.
func Add(old, more Policy) (Policy, error) {
	if more.Default != "" && more.Default != old.Default || !reflect.ValueOf(more.DNS).IsZero() || !reflect.ValueOf(more.Ask).IsZero() {
		return Policy{}, errors.New("what is added has a default, dns or ask, and not rules, presets and services alone")
	}
	var errs Errors
	if tooMany(&more, &errs) {
		return Policy{}, errs.Err()
	}
	p := WithServices(With(old, more.Rules...), more.Services...)
	for _, name := range more.Presets {
		if !slices.Contains(p.Presets, name) {
			p.Presets = append(p.Presets, name)
		}
	}
	return p, nil
}
