package scope_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/scope"
)

// The bounded universe: rules about targets of two names, and paths of three names, so that
// there is always one that no rule says, two levels deeper than any target.
var (
	targets = []string{"/", "/a", "/a/a", "/a/b", "/b"}
	paths   = walk("", 4)
	rules   = everyRule(targets)
)

func walk(dir string, depth int) []string {
	out := []string{max(dir, "/")}
	if depth == 0 {
		return out
	}
	for _, name := range []string{"a", "b", "c"} {
		out = append(out, walk(dir+"/"+name, depth-1)...)
	}
	return out
}

func everyRule(targets []string) (out []scope.Rule) {
	for _, t := range targets {
		for _, p := range []scope.Permission{scope.Read, scope.Write} {
			out = append(out, scope.Rule{Target: t, Permission: p}, scope.Rule{Target: t, Permission: p, Recursive: true})
		}
	}
	return out
}

// matches says what a rule is about in words of its own: by components.
func matches(r scope.Rule, p string) bool {
	split := func(s string) []string {
		return slices.DeleteFunc(strings.Split(s, "/"), func(c string) bool { return c == "" })
	}
	t, q := split(r.Target), split(p)
	if len(q) < len(t) || !slices.Equal(q[:len(t)], t) {
		return false
	}
	return r.Recursive || len(q)-len(t) <= 1
}

// reading is what a scope allows at each path of the universe, by the definition.
func reading(s scope.Scope) []scope.Permission {
	out := make([]scope.Permission, len(paths))
	for i, p := range paths {
		for _, r := range s.Allow {
			if matches(r, p) {
				out[i] = max(out[i], r.Permission)
			}
		}
		for _, r := range s.Deny {
			if matches(r, p) && out[i] >= r.Permission {
				out[i] = r.Permission - 1
			}
		}
	}
	return out
}

func within(a, b []scope.Permission) bool {
	for i := range a {
		if a[i] > b[i] {
			return false
		}
	}
	return true
}

// scopes are those of up to so many rules that allow, and one at most that denies.
func scopes(rules []scope.Rule, allows int) (out []scope.Scope) {
	var sets [][]scope.Rule
	for i, r := range rules {
		sets = append(sets, []scope.Rule{r})
		if allows > 1 {
			for _, q := range rules[:i] {
				sets = append(sets, []scope.Rule{q, r})
			}
		}
	}
	for _, allow := range sets {
		out = append(out, scope.Scope{Allow: allow})
		for _, d := range rules {
			out = append(out, scope.Scope{Allow: allow, Deny: []scope.Rule{d}})
		}
	}
	return out
}

// TestRulesAreSets: of every two rules, covering is containing and overlapping is meeting.
func TestRulesAreSets(t *testing.T) {
	for _, a := range rules {
		for _, b := range rules {
			contains, meets := true, false
			for _, p := range paths {
				if got, want := a.Matches(p), matches(a, p); got != want {
					t.Fatalf("%v about %s: %v, want %v", a, p, got, want)
				}
				contains = contains && (matches(a, p) || !matches(b, p))
				meets = meets || matches(a, p) && matches(b, p)
			}
			if got, want := a.Covers(b), contains && a.Permission >= b.Permission; got != want {
				t.Errorf("%v covers %v: %v, want %v", a, b, got, want)
			}
			if got := a.Overlaps(b); got != meets {
				t.Errorf("%v overlaps %v: %v, want %v", a, b, got, meets)
			}
		}
	}
}

// TestAtIsTheDefinition: the permission at each path is what the rules say it is.
func TestAtIsTheDefinition(t *testing.T) {
	for _, s := range scopes(rules, 2) {
		want := reading(s)
		for i, p := range paths {
			if i%7 == 0 || i < 20 { // of 121 paths the near ones, and some
				if got := s.At(p); got != want[i] {
					t.Fatalf("%v at %s: %v, want %v", s, p, got, want[i])
				}
			}
		}
	}
}

// TestSubsetIsExact: over all pairs of small scopes the witnesses decide what every path does.
func TestSubsetIsExact(t *testing.T) {
	few := everyRule([]string{"/", "/a", "/a/a", "/b"})
	type known struct {
		s  scope.Scope
		at []scope.Permission
	}
	know := func(all []scope.Scope) (out []known) {
		for _, s := range all {
			out = append(out, known{s, reading(s)})
		}
		return out
	}
	narrow, wide := know(scopes(few, 1)), know(scopes(few, 2))
	yes, no := 0, 0
	for i, w := range wide {
		for j, n := range narrow {
			if (i+j)%3 != 0 { // a third of the pairs meets each of both
				continue
			}
			ex, ok := scope.Subset(n.s, w.s)
			if ok != within(n.at, w.at) {
				t.Fatalf("%v in %v: %v at %v, and the paths say otherwise", n.s, w.s, ok, ex)
			}
			if ok {
				yes++
				continue
			}
			no++
			if got, want := n.s.At(ex.Path), w.s.At(ex.Path); got <= want || got != ex.Wants || want != ex.Has {
				t.Fatalf("%v in %v: %v is no excess", n.s, w.s, ex)
			}
		}
	}
	if yes < 1000 || no < 1000 {
		t.Errorf("%d within and %d not: too few to say anything", yes, no)
	}
}

// TestWithinNeverWidens is the proof that what is handed on is the parent's: whatever the
// parent's rules, and whatever one sibling has, a rule that is within allows nothing that the parent
// had not, and writes nothing that the sibling writes. Each refusal's nearest is within.
func TestWithinNeverWidens(t *testing.T) {
	few := everyRule([]string{"/", "/a", "/a/a", "/b"})
	alone := map[scope.Rule][]scope.Permission{}
	for _, r := range few {
		alone[r] = reading(scope.Scope{Allow: []scope.Rule{r}})
	}
	granted, refused, near, blind := 0, 0, 0, 0
	for _, parent := range scopes(few, 2) {
		has := reading(parent)
		for i := range few {
			taken := []scope.Taken{{By: "sibling", Rules: few[i : i+1]}}
			for _, r := range few {
				ref := parent.Within(r, taken)
				if ref != nil {
					refused++
					if n := ref.Nearest; n.Target != "" {
						near++
						if n == r || parent.Within(n, taken) != nil {
							t.Fatalf("%v of %v beside %v: the nearest is %v, which is not within", r, parent, taken, n)
						}
					}
				}
				two := few[i].Permission == scope.Write && r.Permission == scope.Write && few[i].Overlaps(r)
				beyond := !within(alone[r], has) || two
				if ref == nil && beyond {
					t.Fatalf("%v of %v beside %v is within, and goes beyond", r, parent, taken)
				}
				if ref == nil {
					granted++
				}
				// The control: who does not look at what is denied, and at siblings, would be caught.
				if beyond && (scope.Scope{Allow: parent.Allow}).Within(r, nil) == nil {
					blind++
				}
			}
		}
	}
	if granted < 1000 || refused < 1000 || near < 1000 || blind < 1000 {
		t.Errorf("%d granted, %d refused, %d with something near, %d by a check that looks away: too few to say anything", granted, refused, near, blind)
	}
}
