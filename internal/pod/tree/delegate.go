package tree

import (
	"slices"

	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Install adds a pod to which nobody delegated. It may write nowhere where another one was given
// to write, unless either denies itself what both would be about: so a parent comes back beside
// children that it has no more.
func (t *Tree) Install(r record.Pod) (Change, error) {
	r.Parent = ""
	if err := t.admit(r); err != nil {
		return Change{}, err
	}
	for _, top := range t.Children("") {
		if top.Workspace != r.Workspace {
			continue
		}
		if path, ok := scope.Disjoint(r.Scope(), top.Scope()); !ok {
			by, with := t.writer(top, path)
			return Change{}, conflicts(writes(r, path), by, with)
		}
	}
	return Change{Put: []record.Pod{r.Clone()}}, nil
}

// Delegate adds a pod below r.Parent, which has to be there and to have what it gives: see
// scope.Scope.Within. So a sibling that writes there is why a rule is not within. Nobody else can
// write there, as nobody else can where the parent may.
func (t *Tree) Delegate(r record.Pod) (Change, error) {
	parent, ok := t.pods[r.Parent]
	if err := t.admit(r); err != nil {
		return Change{}, err
	}
	if !ok {
		return Change{}, unknown(r.Parent)
	}
	if !parent.Started() {
		return Change{}, notStarted(parent)
	}
	r.Workspace, r.Deny = parent.Workspace, nil
	taken := t.taken(r.Parent)
	for _, rule := range r.Allow {
		if refusal := parent.Scope().Within(rule, taken); refusal != nil {
			return Change{}, notWithin(r.Parent, *refusal)
		}
	}
	var err error
	if r.Bounds, err = r.Bounds.Under(parent.Bounds); err != nil {
		return Change{}, beyond(r.Parent, err)
	}
	if err := t.afford(r); err != nil {
		return Change{}, err
	}
	return Change{Put: []record.Pod{r.Clone()}, Affected: []string{r.Parent}}, nil
}

// admit refuses a record that can't be new.
func (t *Tree) admit(r record.Pod) error {
	if err := r.Check(); err != nil {
		return invalid(err)
	}
	if _, taken := t.pods[r.Name]; taken {
		return duplicate(r.Name)
	}
	if by, held := t.HolderOf(r.Segment); held {
		return segmentHeld(r.Segment, by)
	}
	return nil
}

// writer goes down from a pod to the last one that was given to write a path, and returns the
// rule by which.
func (t *Tree) writer(from record.Pod, path string) (name string, by scope.Rule) {
	for _, c := range t.Children(from.Name) {
		if c.Scope().IsWritable(path) {
			return t.writer(c, path)
		}
	}
	return from.Name, writes(from, path)
}

// writes is the rule by which a pod may write a path.
func writes(p record.Pod, path string) scope.Rule {
	i := slices.IndexFunc(p.Allow, func(a scope.Rule) bool { return a.Permission == scope.Write && a.Matches(path) })
	if i < 0 {
		return scope.Rule{}
	}
	return p.Allow[i]
}
