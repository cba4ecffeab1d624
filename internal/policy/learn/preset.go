package learn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// takePresets puts a preset in the place of what it covers: all that was seen at its
// hosts, by no rule of the user's. Without any it does so only where the rules in its
// place would open as much. It returns what is left.
func (l *Learned) takePresets(found []*seen, always bool) []*seen {
	for _, p := range policy.Presets() {
		set, err := policy.Compile(policy.Policy{Rules: p.Rules}, l.secrets)
		if err != nil {
			continue
		}
		var at []*seen
		left := slices.DeleteFunc(slices.Clone(found), func(s *seen) bool {
			mine := about(p, s.host)
			if mine {
				at = append(at, s)
			}
			return mine
		})
		if len(at) == 0 || !l.coveredBy(set, at) || !always && !opensAsMuch(at, p) {
			continue
		}
		found = left
		l.Policy.Presets = append(l.Policy.Presets, p.Name)
		var hosts []string
		for _, s := range at {
			hosts = append(hosts, fmt.Sprintf("%s (%s)", s.host, counted(s.count, "request")))
		}
		l.presets[p.Name] = "covers " + strings.Join(hosts, ", ")
	}
	return found
}

// about reports whether a preset has a rule about a host.
func about(p policy.Preset, host string) bool {
	return host != "" && slices.ContainsFunc(p.Rules, func(r policy.Rule) bool { return slices.Contains(r.Hosts, host) })
}

// coveredBy reports whether a preset lets all of it through, and puts no secret in.
func (l *Learned) coveredBy(set *policy.Set, at []*seen) bool {
	for _, s := range at {
		if s.from != nil || s.protocol != policy.ProtocolHTTP {
			return false
		}
		for _, i := range s.records {
			r := &l.records[i]
			if unprovable(r) != "" || refusal(set, r, []string{s.host}) != "" {
				return false
			}
		}
	}
	return true
}

// opensAsMuch reports whether rules for what was seen would open all that the preset does.
func opensAsMuch(at []*seen, p policy.Preset) bool {
	for _, r := range p.Rules {
		for _, host := range r.Hosts {
			for _, port := range r.Ports {
				i := slices.IndexFunc(at, func(s *seen) bool { return s.host == host && fmt.Sprint(s.port) == port })
				if i < 0 || !at[i].opens(r.Matches) {
					return false
				}
			}
		}
	}
	return true
}

// opens reports whether what was learned has, for each method of matches, no path that is
// left out.
func (s *seen) opens(matches []policy.Match) bool {
	for _, m := range matches {
		for _, name := range m.Methods {
			have := s.methods[name]
			if have == nil || have.unclear == 0 && !wide(values(have.paths)) {
				return false
			}
		}
	}
	return true
}
