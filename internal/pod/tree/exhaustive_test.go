package tree_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/tree"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// sound says what is wrong with a tree; "": nothing. It looks at every pair, and at exact scopes.
func sound(tr *tree.Tree) string {
	all := tr.All()
	for i, p := range all {
		for _, q := range all[:i] {
			if p.Workspace != q.Workspace {
				continue
			}
			if path, ok := scope.Disjoint(tr.Effective(p.Name), tr.Effective(q.Name)); !ok {
				return fmt.Sprintf("%s and %s both write %s", p.Name, q.Name, path)
			}
		}
		if parent, ok := tr.Find(p.Parent); ok {
			if ex, ok := scope.Subset(p.Scope(), parent.Scope()); !ok {
				return fmt.Sprintf("%s has %v of what %s was given", p.Name, ex, parent.Name)
			}
		}
		if ex, ok := scope.Subset(tr.Effective(p.Name), p.Scope()); !ok {
			return fmt.Sprintf("%s can do %v more than it was given", p.Name, ex)
		}
	}
	return ""
}

// step is one of what may happen to a tree.
type step struct {
	name string
	do   func(*tree.Tree) (tree.Change, error)
}

// steps are all that may happen to pods of these names with these rules: with rules for
// tops as well, one that denies itself something.
func steps(names []string, rules []scope.Rule) (out []step) {
	for _, n := range names {
		for _, r := range rules {
			p := record.Pod{Name: n, State: record.Live, Allow: []scope.Rule{r}}
			out = append(out, step{fmt.Sprintf("install %s %v", n, r), func(t *tree.Tree) (tree.Change, error) { return t.Install(p) }})
			for _, d := range rules {
				denying := p
				denying.Deny = []scope.Rule{d}
				if d != r && d.Permission == scope.Write {
					out = append(out, step{fmt.Sprintf("install %s %v without %v", n, r, d), func(t *tree.Tree) (tree.Change, error) { return t.Install(denying) }})
				}
			}
			for _, parent := range names {
				child := p
				child.Parent = parent
				if parent != n {
					out = append(out, step{fmt.Sprintf("delegate %s>%s %v", parent, n, r), func(t *tree.Tree) (tree.Change, error) { return t.Delegate(child) }})
				}
			}
		}
		out = append(
			out,
			step{"remove " + n, func(t *tree.Tree) (tree.Change, error) { return t.Remove(n) }}, // released, stopped or found gone
			step{"adopt " + n, func(t *tree.Tree) (tree.Change, error) { return t.Adopt(n, procid.ID{PID: 1}, "") }},
		)
	}
	return out
}

// state is a tree as text, by which one that was seen is known.
func state(tr *tree.Tree) string {
	var b strings.Builder
	for _, p := range tr.All() {
		fmt.Fprintf(&b, "%s<%s %v -%v %d;", p.Name, p.Parent, p.Allow, p.Deny, p.Process.PID)
	}
	return b.String()
}

// explore goes through all trees that come of the steps, in whatever order, and after each
// reads its records back as another life of the daemon does. It stops at the first that is not sound.
func explore(t *testing.T, all []step) (trees, refused int, wrong string) {
	t.Helper()
	seen := map[string]bool{}
	next := []*tree.Tree{new(tree.Tree)}
	for len(next) > 0 {
		tr := next[0]
		next = next[1:]
		for _, s := range all {
			c, err := s.do(tr)
			if err != nil {
				refused++
				continue
			}
			again, err := tree.New(tr.All())
			if err != nil {
				t.Fatal(err)
			}
			again.Apply(c)
			if again, err = tree.New(again.All()); err != nil {
				return len(seen), refused, fmt.Sprintf("after %s: %s, then %s: %v", state(tr), s.name, state(again), err)
			}
			key := state(again)
			if seen[key] {
				continue
			}
			seen[key] = true
			if wrong := sound(again); wrong != "" {
				return len(seen), refused, fmt.Sprintf("after %s: %s: %s", state(tr), s.name, wrong)
			}
			next = append(next, again)
		}
	}
	return len(seen), refused, ""
}

// TestNoTwoWriters is the proof for bounded universes: whatever is installed, delegated, removed,
// adopted and read back, in whatever order, no path has two writers and no child more than its parent.
func TestNoTwoWriters(t *testing.T) {
	flat := rw("/w")
	flat.Recursive = false
	for _, u := range []struct {
		names []string
		rules []scope.Rule
	}{
		{[]string{"a", "b", "c"}, []scope.Rule{rw("/w"), rw("/w/x"), flat, ro("/w")}},
		{[]string{"a", "b", "c", "d"}, []scope.Rule{rw("/w"), rw("/w/x")}},
	} {
		trees, refused, wrong := explore(t, steps(u.names, u.rules))
		if wrong != "" {
			t.Error(wrong)
		}
		if trees < 500 || refused < 500 {
			t.Errorf("%d trees and %d refusals: too few to say anything", trees, refused)
		}
		t.Logf("%d trees, %d refusals", trees, refused)
	}
}

// TestTwoWritersAreFound is the control: a delegation that does not ask about siblings, and one
// that does not ask about the parent, are found out.
func TestTwoWritersAreFound(t *testing.T) {
	for _, name := range []string{"sibling", "parent"} {
		careless := steps([]string{"a", "b", "c"}, []scope.Rule{rw("/w"), rw("/w/x")})
		p := record.Pod{Name: "c", State: record.Live, Allow: []scope.Rule{rw("/w")}}
		careless = append(careless, step{"careless", func(t *tree.Tree) (tree.Change, error) {
			if _, taken := t.Find("c"); taken {
				return t.Remove("nobody")
			}
			if _, ok := t.Find("a"); ok && name == "sibling" {
				p.Parent = "a"
			}
			return tree.Change{Put: []record.Pod{p}}, nil
		}})
		if _, _, wrong := explore(t, careless); wrong == "" {
			t.Errorf("%s: nothing was found", name)
		}
	}
}

// TestNoTwoWritersAtRandom is the same over larger universes, by chance.
func TestNoTwoWritersAtRandom(t *testing.T) {
	targets := []string{"/", "/w", "/w/x", "/w/x/y", "/w/z", "/v"}
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.Custom(func(t *rapid.T) scope.Rule {
			return scope.Rule{
				Target:     rapid.SampledFrom(targets).Draw(t, "target"),
				Permission: rapid.SampledFrom([]scope.Permission{scope.Read, scope.Write, scope.Write}).Draw(t, "permission"),
				Recursive:  rapid.IntRange(0, 3).Draw(t, "recursive?") > 0,
			}
		})
		tr := new(tree.Tree)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			p := record.Pod{
				Name: rapid.SampledFrom(names).Draw(t, "name"), State: record.Live, Workspace: rapid.SampledFrom([]string{"", "", "v"}).Draw(t, "workspace"),
				Allow: rapid.SliceOfN(rule, 1, 3).Draw(t, "allow"), Parent: rapid.SampledFrom(names).Draw(t, "parent"),
			}
			var c tree.Change
			var err error
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				p.Deny = rapid.SliceOfN(rule, 0, 2).Draw(t, "deny")
				c, err = tr.Install(p)
			case 1:
				c, err = tr.Remove(p.Name)
			default:
				c, err = tr.Delegate(p)
			}
			if err != nil {
				continue
			}
			tr.Apply(c)
			if wrong := sound(tr); wrong != "" {
				t.Fatalf("%s: %s", state(tr), wrong)
			}
			for _, name := range c.Gone {
				if slices.ContainsFunc(tr.All(), func(q record.Pod) bool { return q.Parent == name }) {
					t.Fatalf("%s left a child without a parent", name)
				}
			}
		}
	})
}
