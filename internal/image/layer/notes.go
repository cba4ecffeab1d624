package layer

import (
	"fmt"
	"strings"
)

// named is how many names a note gives.
const named = 3

// notes gathers what was left out, by kind. The kinds are this package's own
// words, so there are few.
type notes struct {
	kinds []string // in the order of their first
	of    map[string]*note
}

type note struct {
	count int
	names []string
}

func (n *notes) add(kind, name string) {
	if n.of == nil {
		n.of = map[string]*note{}
	}
	k := n.of[kind]
	if k == nil {
		k = &note{}
		n.of[kind] = k
		n.kinds = append(n.kinds, kind)
	}
	if k.count++; len(k.names) < named {
		k.names = append(k.names, quote(name))
	}
}

// lines returns a line for each kind.
func (n *notes) lines() []string {
	var lines []string
	for _, kind := range n.kinds {
		k := n.of[kind]
		line := kind + ": " + strings.Join(k.names, ", ")
		if more := k.count - len(k.names); more > 0 {
			line += fmt.Sprintf(" and %d more", more)
		}
		lines = append(lines, line)
	}
	return lines
}
