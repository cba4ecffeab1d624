package manifest

import (
	"reflect"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/text/tree"
)

// gitGate is the key under which a bottle of one JSON object says what remotes and git_user
// say in a file of its own.
const gitGate = "git-gate"

// gateKeys are the keys there, by ours.
var gateKeys = map[string]string{"repos": "remotes", "user": "git_user"}

// readBoth reads an object that has all: {"bottles": {NAME: …}, "agents": {NAME: …}}. A mistake
// in one of them is that one's, and one around them is of all that may be in it.
func (x *Index) readBoth(t text) {
	var p problems
	if t.err != nil {
		p.err(t.err)
		x.lose(&p, &x.bottles.lost, &x.agents.lost)
		return
	}
	root := parseTree(t.file, t.bytes, &p)
	if root != nil {
		shape(t.file, hull(root), &p)
	}
	if p.any() {
		x.lose(&p, &x.bottles.lost, &x.agents.lost)
		return
	}
	for i := range root.Pairs {
		pair := &root.Pairs[i]
		for j := range pair.Value.Pairs {
			if pair.Key == bottlesDir {
				readPair(x, &x.bottles, t, pair, j)
			} else {
				readPair(x, &x.agents, t, pair, j)
			}
		}
	}
}

// readPair reads one bottle or agent of all.
func readPair[T any](x *Index, k *kept[T], t text, of *tree.Pair, i int) {
	var p problems
	one := of.Value.Pairs[i]
	if of.Key == bottlesDir {
		unwrapGate(t.file, one.Value, &p)
	}
	// Its mistakes are told with the way to it, and its places are noted without.
	alone := *of
	alone.Value = &tree.Node{Kind: tree.Map, Line: of.Value.Line, Column: of.Value.Column, Pairs: []tree.Pair{one}}
	shape(t.file, &tree.Node{Kind: tree.Map, Line: of.Line, Column: of.Column, Pairs: []tree.Pair{alone}}, &p)
	s := &said[T]{name: one.Key, origin: t.origin, at: keyAt(t.file, &one), digest: digest(t.bytes)}
	if !p.any() {
		s.fill(one.Value, &p)
	}
	if p.any() {
		k.fail(x, s.name, t.origin, s.at, &p)
		return
	}
	k.add(x, s)
}

// shape looks whether an object is one that has all.
func shape(file string, root *tree.Node, p *problems) {
	d := decoding{file: file, places: map[string]Place{}, problems: p}
	d.value(root, reflect.ValueOf(new(both)).Elem(), "")
}

// hull is an object without what its bottles and agents say.
func hull(root *tree.Node) *tree.Node {
	out := *root
	out.Pairs = slices.Clone(root.Pairs)
	for i := range out.Pairs {
		v := *out.Pairs[i].Value
		v.Pairs = slices.Clone(v.Pairs)
		for j := range v.Pairs {
			v.Pairs[j].Value = &tree.Node{Kind: tree.Map, Line: v.Pairs[j].Line, Column: v.Pairs[j].Column}
		}
		out.Pairs[i].Value = &v
	}
	return &out
}

// unwrapGate puts what a bottle has under git-gate where a bottle's own keys are.
func unwrapGate(file string, bottle *tree.Node, p *problems) {
	var pairs []tree.Pair
	for i := range bottle.Pairs {
		pair := bottle.Pairs[i]
		if pair.Key != gitGate || pair.Value.Kind != tree.Map {
			pairs = append(pairs, pair)
			continue
		}
		d := decoding{file: file, problems: p}
		for j := range pair.Value.Pairs {
			in := pair.Value.Pairs[j]
			ours, ok := gateKeys[in.Key]
			if !ok {
				d.unknown(&in, gitGate, []string{"repos", "user"})
				continue
			}
			in.Key = ours
			pairs = append(pairs, in)
		}
	}
	bottle.Pairs = pairs
}
