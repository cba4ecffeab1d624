package manifest

import (
	"reflect"

	"github.com/carboy-sandbox/carboy/internal/text/tree"
)

// gitGate is the key under which a bottle of one JSON object says what remotes and git_user
// say in a file of its own.
const gitGate = "git-gate"

// gateKeys are the keys there, by ours.
var gateKeys = map[string]string{"repos": "remotes", "user": "git_user"}

// parseBoth reads an object that has all: {"bottles": {NAME: …}, "agents": {NAME: …}}.
func parseBoth(t text, x *Index, p *problems) {
	root := parseTree(t.file, t.bytes, p)
	if root == nil {
		return
	}
	for i := range root.Pairs {
		if pair := &root.Pairs[i]; pair.Key == bottlesDir {
			for j := range pair.Value.Pairs {
				unwrapGate(t.file, pair.Value.Pairs[j].Value, p)
			}
		}
	}
	// Each by itself, so that what one of them says has its own places. The whole is looked
	// at first, for keys that are none.
	shape := decoding{file: t.file, places: map[string]Place{}, problems: p}
	before := len(p.list) + p.more
	shape.value(root, reflect.ValueOf(new(both)).Elem(), "")
	if len(p.list)+p.more > before {
		return
	}
	for i := range root.Pairs {
		pair := &root.Pairs[i]
		for j := range pair.Value.Pairs {
			one := &pair.Value.Pairs[j]
			if pair.Key == bottlesDir {
				x.addBottle(saidIn[Bottle](t, one, p), p)
			} else {
				x.addAgent(saidIn[Agent](t, one, p), p)
			}
		}
	}
}

func saidIn[T any](t text, one *tree.Pair, p *problems) *said[T] {
	s := &said[T]{name: one.Key, origin: t.origin, at: keyAt(t.file, one), digest: digest(t.bytes)}
	s.fill(one.Value, p)
	return s
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
