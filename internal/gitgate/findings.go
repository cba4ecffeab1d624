package gitgate

import (
	"cmp"
	"maps"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// Count is how many findings there are of a kind, and by one rule or for one reason.
type Count struct {
	Kind Kind
	What string // the rule of a secret, and the reason of others
	N    int
}

// group is what findings have in common that are counted as one.
type group struct {
	kind Kind
	what string
}

func (f Finding) group() group { return group{f.Kind, cmp.Or(f.Rule, f.Why)} }

// findings are what was found in a push: of each group the first ones, and how many there
// are. Many of one group hide none of another.
type findings struct {
	first map[group][]Finding
	n     map[group]int
}

// add notes one.
func (fs *findings) add(f Finding) {
	if fs.n == nil {
		fs.first, fs.n = map[group][]Finding{}, map[group]int{}
	}
	g := f.group()
	if fs.n[g]++; fs.n[g] <= MaxFindings {
		fs.first[g] = append(fs.first[g], f)
	}
}

// kindOrder has what can be one of many behind what can't.
var kindOrder = []Kind{ForcedRef, DeletedRef, HeldFile, Unscannable, Binary, Secret}

// order has what is denied before what is asked about, and of that first what does most
// where it comes to.
func (fs *findings) order(a, b group) int {
	asked := func(g group) int {
		if fs.first[g][0].Action == Deny {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(asked(a), asked(b)),
		cmp.Compare(slices.Index(kindOrder, a.kind), slices.Index(kindOrder, b.kind)),
		cmp.Compare(workspace.HoldRank(a.what), workspace.HoldRank(b.what)),
		cmp.Compare(a.what, b.what),
	)
}

// named are MaxFindings of them at most: one of each group, then another, as far as it goes.
// All of them are counted.
func (fs *findings) named() (named []Finding, counts []Count) {
	groups := slices.SortedFunc(maps.Keys(fs.n), fs.order)
	take, left := make([]int, len(groups)), MaxFindings
	for more := true; more && left > 0; {
		more = false
		for i, g := range groups {
			if left > 0 && take[i] < len(fs.first[g]) {
				take[i]++
				left--
				more = true
			}
		}
	}
	for i, g := range groups {
		named = append(named, fs.first[g][:take[i]]...)
		counts = append(counts, Count{g.kind, g.what, fs.n[g]})
	}
	return named, counts
}
