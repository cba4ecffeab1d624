package policy

import "slices"

// expand puts the rules of a policy's presets behind its own.
func expand(p *Policy, errs *problems) {
	for i, name := range p.Presets {
		preset, ok := presetByName(name)
		switch {
		case !ok:
			errs.addf(at("presets", i), presetNames(), "%s is no preset", quoted(name))
		case slices.Contains(p.Presets[:i], name):
		default:
			*p = With(*p, preset.Rules...)
		}
	}
	p.Presets = nil
}

// With is the policy with rules behind its own. Those that it has already,
// word for word, it does not get again: a preset may be asked for twice.
func With(p Policy, rules ...Rule) Policy {
	p = *Clone(&p)
	for _, r := range cloneRules(rules) {
		if !slices.ContainsFunc(p.Rules, func(o Rule) bool { return sameRule(o, r) }) {
			p.Rules = append(p.Rules, r)
		}
	}
	return p
}
