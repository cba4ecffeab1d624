package policy

import "slices"

// Clone returns a copy that shares nothing with p; nil for nil.
func Clone(p *Policy) *Policy {
	if p == nil {
		return nil
	}
	c := *p
	c.Presets = slices.Clone(p.Presets)
	c.Rules = cloneRules(p.Rules)
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
