package tool

import (
	"context"
	"time"
)

// MaxCost is how many steps may be taken without a look at the clock.
const MaxCost = maxCost

// Late looks at a line once there is no more time, and returns how many steps
// that took at most.
func Late(ctx context.Context, expr, line string) (steps int, err error) {
	m, err := newMatcher(ctx, expr, time.Time{})
	if err != nil {
		return 0, err
	}
	r := m.hurry([]byte(line))
	_ = m.re.MatchReader(r)
	return m.steps * r.n, nil
}

// Decode reads a request.
func Decode(b []byte, q any) error { return decode(b, q) }

// Pattern reads a pattern and returns what it matches.
func Pattern(text string) (func(string) bool, error) {
	p, err := newPattern(text)
	if err != nil {
		return nil, err
	}
	return p.match, nil
}

// Place says where a path leads below a root.
func Place(root, p string) (rel, abs string, err error) {
	c := &call{root: root}
	return c.place(p)
}

// Dirents returns the names in what getdents64 gave.
func Dirents(b []byte) (names []string) {
	for _, e := range parseDirents(b) {
		names = append(names, e.name)
	}
	return names
}
