package workspace

import "slices"

// Brought is what a sync put at a path of the workspace, and what the base had there then.
type Brought struct {
	Mark
	Kind   Kind   `json:"kind"` // Deleted: it was removed in the workspace
	Mode   uint32 `json:"mode,omitempty"`
	Digest Digest `json:"digest,omitzero"`
	Target string `json:"target,omitempty"`
}

// is reports whether c is b as it was brought, and so no change of the sandbox's.
func (b Brought) is(c *Change) bool {
	switch {
	case b.Kind != c.Kind:
		return false
	case c.Kind == File:
		return b.Digest == c.Digest && executable(b.Mode) == executable(c.Mode)
	case c.Kind == Symlink:
		return b.Target == c.Target
	}
	return c.Kind == Deleted || c.Kind == Dir
}

// broughtSet is what was brought, by path: after a sync that was killed there may be two
// for one, and either may be there.
type broughtSet map[string][]Brought

func broughtByPath(list []Brought) broughtSet {
	byPath := make(broughtSet, len(list))
	for _, b := range list {
		byPath[b.Path] = append(byPath[b.Path], b)
	}
	return byPath
}

// has reports whether c is as it was brought.
func (s broughtSet) has(c *Change) bool {
	return slices.ContainsFunc(s[c.Path], func(b Brought) bool { return b.is(c) })
}
