package scope

import (
	"fmt"
	"slices"
	"strings"
)

// Taken is what somebody else was given of a scope.
type Taken struct {
	By    string // a name, for the reason
	Rules []Rule
}

// Within says why a rule may not be handed on from a scope of which others have taken parts;
// nil where it may. One rule that allows has to cover it, and none that denies, and nobody
// else's that writes, may touch what it writes. A rule that reads may meet writers, but not
// what the scope can't read itself.
func (s Scope) Within(r Rule, taken []Taken) *Refusal {
	why := s.why(r, taken)
	if why == "" {
		return nil
	}
	return &Refusal{Rule: r, Why: why, Nearest: s.nearest(r, taken)}
}

// why is the reason of Within; "": the rule is within.
func (s Scope) why(r Rule, taken []Taken) string {
	if !slices.ContainsFunc(s.Allow, func(a Rule) bool { return a.Covers(r) }) {
		switch {
		case slices.ContainsFunc(s.Allow, func(a Rule) bool { return a.about(r) }):
			return "it may only be read there"
		case slices.ContainsFunc(s.Allow, func(a Rule) bool { return a.Overlaps(r) }):
			return "no one rule allows all of it"
		}
		return "no rule is about it"
	}
	for _, d := range s.Deny {
		if d.Overlaps(r) && d.Permission <= r.Permission {
			return fmt.Sprintf("%s is denied", d)
		}
	}
	if r.Permission < Write {
		return ""
	}
	for _, t := range taken {
		for _, w := range Writes(t.Rules) {
			if w.Overlaps(r) {
				return fmt.Sprintf("pod `%s` has %s", t.By, w)
			}
		}
	}
	return ""
}

// nearest is a rule close to r that is within: less of the same place, then the same place to
// be read alone.
func (s Scope) nearest(r Rule, taken []Taken) Rule {
	for _, p := range []Permission{Write, Read} {
		if p > r.Permission {
			continue
		}
		same := Rule{Target: r.Target, Permission: p, Recursive: r.Recursive}
		near := []Rule{same, {Target: r.Target, Permission: p}}
		below := []Rule{}
		for _, a := range s.Allow {
			if a.Permission >= p && (Rule{Target: r.Target, Permission: p, Recursive: r.Recursive}).about(a) {
				below = append(below, Rule{Target: a.Target, Permission: p, Recursive: a.Recursive})
			}
		}
		slices.SortStableFunc(below, func(a, b Rule) int { return strings.Count(a.Target, "/") - strings.Count(b.Target, "/") })
		for _, c := range append(near, below...) {
			if c != r && s.why(c, taken) == "" {
				return c
			}
		}
	}
	return Rule{}
}

// Excess is a path where a scope allows more than another.
type Excess struct {
	Path       string
	Has, Wants Permission // what the wider one has there, and the narrower
}

// Subset reports whether narrow allows nowhere more than wide; where it does, at which path. It
// is exact: it asks at a path of each kind that the rules can tell apart.
func Subset(narrow, wide Scope) (Excess, bool) {
	for _, p := range witnesses(narrow, wide) {
		if n, w := narrow.at(p), wide.at(p); n > w {
			return Excess{Path: p, Has: w, Wants: n}, false
		}
	}
	return Excess{}, true
}

// Disjoint reports whether no path may be written by both; where one may, which.
func Disjoint(a, b Scope) (path string, ok bool) {
	for _, p := range witnesses(a, b) {
		if a.at(p) == Write && b.at(p) == Write {
			return p, false
		}
	}
	return "", true
}

// witnesses are paths of which every path has one that all rules treat alike: each target, a
// name in it that no rule says, and one in that. What is at no target, and neither in one nor
// below, no rule is about.
func witnesses(scopes ...Scope) (paths []string) {
	for _, s := range scopes {
		for _, r := range slices.Concat(s.Allow, s.Deny) {
			paths = append(paths, r.Target)
		}
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	fresh := "x"
	for slices.ContainsFunc(paths, func(p string) bool { return strings.Contains(p, fresh) }) {
		fresh += "x"
	}
	for _, p := range slices.Clone(paths) {
		in := strings.TrimSuffix(p, "/") + "/" + fresh
		paths = append(paths, in, in+"/"+fresh)
	}
	return paths
}
