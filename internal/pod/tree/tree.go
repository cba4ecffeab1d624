// Package tree decides which pod has which part of a workspace: who may be given what, who
// stands in the way, and what becomes of a pod's children and its rights when it goes. It is pure:
// records in, a change of records or a refusal out. Who applies a change wrote it down before.
//
// What holds in every tree that it makes: no path may be written by two pods, and no pod may
// do what the one that delegated to it was not given.
//
// It refuses to judge who is alive.
package tree

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Tree is the pods of an owner, and who delegated to whom. The zero Tree is empty. It is not
// safe for concurrent use.
type Tree struct {
	pods map[string]record.Pod
}

// Change is what a step does to a tree: records to be put in their place and names whose
// records go, all at once. Affected are the pods whose rights are others than before, and
// which go on.
type Change struct {
	Put      []record.Pod
	Gone     []string
	Affected []string
}

// New makes a tree of records that were read. A parent that is not among them is none.
func New(records []record.Pod) (*Tree, error) {
	t := &Tree{pods: make(map[string]record.Pod, len(records))}
	for _, r := range records {
		if err := r.Check(); err != nil {
			return nil, err
		}
		if _, twice := t.pods[r.Name]; twice {
			return nil, fmt.Errorf("the pod %s has two records", r.Name)
		}
		t.pods[r.Name] = r.Clone()
	}
	for name, r := range t.pods {
		if _, ok := t.pods[r.Parent]; r.Parent != "" && !ok {
			r.Parent = ""
			t.pods[name] = r
		}
	}
	for name := range t.pods {
		if t.round(name) {
			return nil, fmt.Errorf("the pod %s is its own ancestor", name)
		}
	}
	return t, nil
}

// round reports whether the way up from a pod does not end.
func (t *Tree) round(name string) bool {
	for range len(t.pods) + 1 {
		if name = t.pods[name].Parent; name == "" {
			return false
		}
	}
	return true
}

// Apply makes a change that this tree, as it is, gave.
func (t *Tree) Apply(c Change) {
	if t.pods == nil {
		t.pods = map[string]record.Pod{}
	}
	for _, name := range c.Gone {
		delete(t.pods, name)
	}
	for _, r := range c.Put {
		t.pods[r.Name] = r.Clone()
	}
}

// Find returns a pod.
func (t *Tree) Find(name string) (record.Pod, bool) {
	r, ok := t.pods[name]
	return r.Clone(), ok
}

// All are the pods, in the order of their names.
func (t *Tree) All() []record.Pod {
	out := make([]record.Pod, 0, len(t.pods))
	for _, name := range slices.Sorted(maps.Keys(t.pods)) {
		out = append(out, t.pods[name].Clone())
	}
	return out
}

// Children are the pods to which one delegated, in the order of their names.
func (t *Tree) Children(name string) (out []record.Pod) {
	for _, r := range t.pods {
		if r.Parent == name {
			out = append(out, r.Clone())
		}
	}
	slices.SortFunc(out, func(a, b record.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Descends reports whether a pod stands anywhere below another.
func (t *Tree) Descends(name, of string) bool {
	for range len(t.pods) {
		r, ok := t.pods[name]
		if !ok || r.Parent == "" {
			return false
		}
		if name = r.Parent; name == of {
			return true
		}
	}
	return false
}

// taken is what the children of a pod have.
func (t *Tree) taken(name string) (out []scope.Taken) {
	for _, c := range t.Children(name) {
		out = append(out, scope.Taken{By: c.Name, Rules: c.Allow})
	}
	return out
}

// Demoted is what the children of a pod took from it: writing where they write.
func (t *Tree) Demoted(name string) (out []scope.Rule) {
	for _, c := range t.Children(name) {
		out = append(out, scope.Writes(c.Allow)...)
	}
	return out
}

// Effective is what a pod may do now: what it was given, without writing where its children write.
func (t *Tree) Effective(name string) scope.Scope {
	return t.pods[name].Scope().Difference(t.Demoted(name)...)
}

// SetSegment notes which segment of a conversation a pod holds.
func (t *Tree) SetSegment(name, segment string) (Change, error) {
	r, ok := t.pods[name]
	if !ok {
		return Change{}, unknown(name)
	}
	if by, held := t.HolderOf(segment); held && by.Name != name {
		return Change{}, segmentHeld(segment, by)
	}
	r.Segment = segment
	return Change{Put: []record.Pod{r}}, nil
}

// HolderOf finds the pod that holds a segment.
func (t *Tree) HolderOf(segment string) (record.Pod, bool) {
	for _, r := range t.All() {
		if segment != "" && r.Segment == segment {
			return r, true
		}
	}
	return record.Pod{}, false
}

// Adopt notes who a pod is now: the process that took its record over. Twice is as once.
func (t *Tree) Adopt(name string, process procid.ID, segment string) (Change, error) {
	r, ok := t.pods[name]
	if !ok {
		return Change{}, unknown(name)
	}
	if by, held := t.HolderOf(segment); held && by.Name != name {
		return Change{}, segmentHeld(segment, by)
	}
	r.Process, r.Segment = process, cmp.Or(segment, r.Segment)
	return Change{Put: []record.Pod{r}}, nil
}

// Update changes what a record says of a pod, but not its name, whose it is, and its scope.
func (t *Tree) Update(name string, change func(*record.Pod)) (Change, error) {
	was, ok := t.pods[name]
	if !ok {
		return Change{}, unknown(name)
	}
	r := was.Clone()
	change(&r)
	r.Name, r.Owner, r.Parent, r.Workspace, r.Allow, r.Deny, r.Bounds = was.Name, was.Owner, was.Parent, was.Workspace, was.Allow, was.Deny, was.Bounds
	return Change{Put: []record.Pod{r}}, r.Check()
}

// Remove takes a pod away: its children are its parent's from now on, or nobody's, and what
// it had is its parent's again, but for what they have.
func (t *Tree) Remove(name string) (Change, error) {
	r, ok := t.pods[name]
	if !ok {
		return Change{}, unknown(name)
	}
	c := Change{Gone: []string{name}}
	for _, child := range t.Children(name) {
		child.Parent = r.Parent
		c.Put = append(c.Put, child)
	}
	if r.Parent != "" {
		c.Affected = []string{r.Parent}
	}
	return c, nil
}
