package policy

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
)

var (
	idForm     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[a-z0-9][a-z0-9._:/-]{0,63}\z`) })
	secretForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]{0,127}\z`) })
)

// defaultRule is what verdicts call the default.
const defaultRule = "default"

// Compile checks a policy and makes it ready to decide. secrets are the names
// of those that the sandbox was given: a rule that wants another, and does
// not call it optional, is an error. The error joins every *Error that was
// found, see Problems; nothing of a policy that has one is usable. p is not
// kept, nor changed.
func Compile(p Policy, secrets []string) (*Set, error) {
	var errs Errors
	if tooMany(&p, &errs) {
		return nil, errs.Err()
	}
	p = *Clone(&p)
	expand(&p, &errs)
	switch p.Version {
	case 0:
		p.Version = Version
	case Version:
	default:
		errs.Addf("version", "", "%d is no version of this schema: it has %d", p.Version, Version)
	}
	switch p.Default {
	case "":
		p.Default = DefaultDeny
	case DefaultDeny, DefaultPublic, DefaultRead:
	default:
		errs.Addf("default", "deny, public or public-read", "%s is no default", Quoted(p.Default))
	}
	compileServices(&p, &errs)
	compileDNS(&p.DNS, &errs)
	wait := compileAsking(&p.Ask, &errs)
	s := &Set{askTimeout: wait, policy: p, public: Public(p.Default), reads: p.Default == DefaultRead, exact: map[string][]*rule{}, wild: map[string][]*rule{}}
	if tooMany(&p, &errs) { // with the presets' rules
		return nil, errs.Err()
	}
	exprs, size, ok := measure(p.Rules, &errs)
	if !ok {
		return nil, errs.Err()
	}
	s.expressions = size
	ids := map[string]int{}
	for i := range p.Rules {
		r := compileRule(i, &p.Rules[i], secrets, exprs, &errs)
		if first, taken := ids[r.ID]; taken {
			errs.Addf(at("rules", i)+".id", "every rule has an id of its own", "%s is the id of rules[%d] too", Quoted(r.ID), first)
		}
		ids[r.ID] = i
		s.add(r)
	}
	if err := errs.Err(); err != nil {
		return nil, err
	}
	s.revision = revisionOf(&s.policy)
	return s, nil
}

// rule is a Rule made ready.
type rule struct {
	*Rule
	place    int
	deny     bool
	ask      bool
	ports    ports // nil: every one, which only a denying rule says
	named    bool  // the ports are the rule's own, and not the default
	matches  []match
	prefixes []netip.Prefix // canonical
	route    *Route         // nil where the rule asks for nothing
	secret   bool           // a secret is put in: requests by number are none of its
}

func compileRule(i int, r *Rule, given []string, exprs expressions, p *Errors) *rule {
	where := at("rules", i)
	if r.ID == "" {
		r.ID = fmt.Sprintf("rule-%d", i+1)
	} else if !idForm().MatchString(r.ID) || r.ID == defaultRule {
		p.Addf(where+".id", "a to z, 0 to 9 and . _ : / -, at most 64, and not \"default\"", "%s is no id", Quoted(r.ID))
	}
	c := &rule{Rule: r, place: i}
	switch r.Action {
	case "":
		r.Action = actionAllow
	case actionAllow:
	case ActionAsk:
		c.ask = true
	case ActionDeny:
		c.deny = true
	default:
		p.Addf(where+".action", "allow, ask or deny", "%s is no action", Quoted(r.Action))
	}
	compileHosts(where, r, p)
	c.prefixes = compileAddresses(where, r, p)
	if len(r.Hosts)+len(r.Addresses) == 0 {
		p.Add(where, "neither hosts nor addresses: it is about nothing", "hosts: [example.com]")
	}
	compileProtocol(where, c, p)
	compilePorts(where, c, p)
	for j := range r.Matches {
		c.matches = append(c.matches, compileMatch(at(where+".matches", j), &r.Matches[j], c.deny, exprs, p))
	}
	compileRoute(where, c, given, p)
	return c
}

func compileHosts(where string, r *Rule, p *Errors) {
	for i, h := range r.Hosts {
		name, wild, problem, hint := ParseHost(h)
		if problem != "" {
			p.Add(at(where+".hosts", i), problem, hint)
			continue
		}
		if wild {
			name = "*." + name
		}
		r.Hosts[i] = name
	}
	r.Hosts = distinct(r.Hosts)
}

func compileAddresses(where string, r *Rule, p *Errors) (prefixes []netip.Prefix) {
	for i, a := range r.Addresses {
		prefix, problem, hint := ParsePrefix(a)
		if problem == "" && r.Action != ActionDeny {
			if b, closed := closedBlock(prefix.Addr()); closed && b.never && prefix.Bits() >= b.prefix.Bits() {
				problem = fmt.Sprintf("%s is %s: no connection goes there", Quoted(a), b.what)
			}
		}
		if problem != "" {
			p.Add(at(where+".addresses", i), problem, hint)
			continue
		}
		r.Addresses[i] = prefix.String()
		if prefix.IsSingleIP() {
			r.Addresses[i] = prefix.Addr().String()
		}
		prefixes = append(prefixes, prefix)
	}
	r.Addresses = distinct(r.Addresses)
	return prefixes
}

// ParsePrefix reads an address or a range, canonical. Bits beyond the range's
// length are an error: "10.0.0.5/8" may mean two things.
func ParsePrefix(s string) (prefix netip.Prefix, problem, hint string) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		a = canonical(a)
		return netip.PrefixFrom(a, a.BitLen()), "", ""
	}
	prefix, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		hint := "192.0.2.7, 192.0.2.0/24 or 2001:db8::/32"
		if _, err := cleanName(strings.TrimPrefix(s, "*.")); err == nil {
			hint = "a name belongs in hosts"
		}
		return prefix, Quoted(s) + " is no address", hint
	case prefix.Masked() != prefix:
		return prefix, fmt.Sprintf("%s is an address within %s", Quoted(s), prefix.Masked()), "write the one that is meant"
	}
	return canonicalPrefix(prefix), "", ""
}

// protocols that a rule can have, and the ports of those that have a default.
var defaultPorts = map[Protocol]ports{
	ProtocolHTTP: {{80, 80}, {443, 443}},
	ProtocolTLS:  {{443, 443}},
	ProtocolTCP:  nil,
	ProtocolUDP:  nil,
}

func compileProtocol(where string, c *rule, p *Errors) {
	r := c.Rule
	where += ".protocol"
	if _, known := defaultPorts[r.Protocol]; !known && r.Protocol != "" {
		p.Addf(where, "http, tls, tcp or udp", "%s is no protocol", Quoted(r.Protocol))
		return
	}
	switch {
	case !c.deny && r.Protocol == "", c.deny && r.Protocol == "" && len(r.Matches) > 0:
		r.Protocol = ProtocolHTTP
	case c.deny && len(r.Matches) > 0 && r.Protocol != ProtocolHTTP:
		p.Addf(where, "http", "matches are of requests, and %s has none", r.Protocol)
	case c.deny && len(r.Matches) == 0 && (r.Protocol == ProtocolHTTP || r.Protocol == ProtocolTLS):
		p.Add(where, "a rule that denies whole destinations does so before it is known what is spoken", "leave protocol out, or say tcp or udp")
	}
	if r.Protocol == ProtocolHTTP || c.deny {
		return
	}
	// Nothing of what follows would happen: bytes are passed on unread.
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"matches", len(r.Matches) > 0}, {"secrets", len(r.Secrets) > 0}, {"auth", r.Auth != ""}, {"placeholders", r.Placeholders != ""}, {"roots", r.Roots != ""},
	} {
		if f.set {
			p.Addf(where, "protocol: http, or no "+f.name, "%s is passed through unread, so %s can't be kept", r.Protocol, f.name)
		}
	}
}

func compilePorts(where string, c *rule, p *Errors) {
	r := c.Rule
	where += ".ports"
	for i, s := range r.Ports {
		one, ok := parsePort(s)
		if !ok {
			p.Addf(at(where, i), "1 to 65535, or a range: 8000-8099", "%s is no port", Quoted(s))
			continue
		}
		c.ports = append(c.ports, one)
		if one.low == one.high && !c.deny && (r.Protocol == ProtocolHTTP || r.Protocol == ProtocolTLS) && (one.low == 53 || one.low == 853) {
			p.Addf(at(where, i), "protocol: tcp", "port %d is DNS's, which the gate answers itself", one.low)
		}
	}
	if len(r.Ports) > 0 {
		c.named = true
		c.ports = merged(c.ports)
		return
	}
	if c.deny {
		return
	}
	c.ports = defaultPorts[r.Protocol]
	if _, known := defaultPorts[r.Protocol]; known && c.ports == nil {
		p.Addf(where, "ports: [\"5432\"]", "%s has no port of its own: one must be named", r.Protocol)
	}
}

// namesPort reports whether the rule has the port by itself, and not within a
// range: what is closed for what it carries is only opened on purpose.
func (r *rule) namesPort(n uint16) bool {
	return slices.ContainsFunc(r.Ports, func(s string) bool { one, ok := parsePort(s); return ok && one == portRange{n, n} })
}

func compileRoute(where string, c *rule, given []string, p *Errors) {
	r := c.Rule
	if c.deny {
		if len(r.Secrets) > 0 || r.Auth != "" || r.Placeholders != "" || r.Roots != "" || r.Limits != (Limits{}) {
			p.Add(where, "a rule that denies lets nothing through that secrets, auth, placeholders, roots or limits could be about", "")
		}
		return
	}
	route := Route{Rule: r.ID, Auth: r.Auth, Placeholders: r.Placeholders, Roots: r.Roots, Limits: r.Limits}
	compileSecrets(where, r, given, &route, p)
	c.secret = len(route.Secrets) > 0
	switch {
	case r.Auth != "" && r.Auth != AuthGuest:
		p.Addf(where+".auth", "guest, or leave it out", "%s is no stand towards credentials", Quoted(string(r.Auth)))
	case r.Auth != "" && len(r.Secrets) == 0:
		p.Add(where+".auth", "the rule has no secret, so the guest's own credentials pass anyway", "leave auth out")
	}
	if r.Placeholders != "" && r.Placeholders != PlaceholdersPass {
		p.Addf(where+".placeholders", "pass, or leave it out", "%s is no stand towards placeholders", Quoted(string(r.Placeholders)))
	}
	checkRoots(where+".roots", r.Roots, p)
	checkLimits(where+".limits", r.Limits, p)
	if c.secret || route.Placeholders != "" || route.Roots != "" || route.Limits != (Limits{}) {
		c.route = &route
	}
}

func checkLimits(where string, l Limits, p *Errors) {
	for _, f := range []struct {
		name string
		n    int64
	}{{"request_bytes", l.RequestBytes}, {"response_bytes", l.ResponseBytes}, {"bytes", l.Bytes}} {
		if f.n < 0 || f.n > maxBytes {
			p.Addf(where+"."+f.name, "a number of bytes, or 0 for no bound", "%d is no limit", f.n)
		}
	}
	if n := l.RequestsPerMinute; n < 0 || n > maxRate {
		p.Addf(where+".requests_per_minute", fmt.Sprintf("1 to %d, or 0 for no bound", maxRate), "%d is no limit", n)
	}
}

func checkRoots(where, roots string, p *Errors) {
	if roots == "" {
		return
	}
	rest, some := []byte(roots), false
	for {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if _, err := x509.ParseCertificate(b.Bytes); b.Type != "CERTIFICATE" || err != nil {
			p.Addf(where, "certificates alone", "a PEM block of type %s, which is no certificate", Quoted(b.Type))
			return
		}
		some = true
	}
	if !some || strings.TrimSpace(string(rest)) != "" {
		p.Add(where, "is not PEM certificates alone", "-----BEGIN CERTIFICATE-----")
	}
}

func distinct(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(list, func(s string) bool { was := seen[s]; seen[s] = true; return was })
}
