package doctor

import (
	"context"
	"time"
)

// Check runs one check, as Run would.
func Check(ctx context.Context, id string, o Options) []Line {
	m := newMachine(o)
	m.enterScratch(ctx)
	defer func() { _ = m.scratch.remove() }()
	for _, c := range checks() {
		if c.id == id {
			return m.lines(ctx, []check{c})
		}
	}
	return nil
}

// Guarded runs f as a check with that limit.
func Guarded(ctx context.Context, limit time.Duration, f func(context.Context) Line) []Line {
	m := newMachine(Options{})
	return m.lines(ctx, []check{{
		id: "tried", area: "area", title: "title", limit: limit,
		run: one(func(ctx context.Context, _ *machine) Line { return f(ctx) }),
	}})
}

// Scratch makes a scratch directory and returns it, and what removes it.
func Scratch(ctx context.Context, o Options) (path string, remove func() error, err error) {
	s, err := openScratch(ctx, o)
	if err != nil {
		return "", nil, err
	}
	return s.path, s.remove, nil
}

// CheckIDs are those of all checks.
func CheckIDs() (ids []string) {
	for _, c := range checks() {
		ids = append(ids, c.id)
	}
	return ids
}

// Outcome makes a Line.
func Outcome(s State, found string) Line { return outcome(s, found) }

// Private is what a report of o hides.
func (r Report) Private(o Options) Report {
	r.private = append(r.private, privateNames(o)...)
	return r
}

// Named has a report hide a user and a machine that are called so.
func (r Report) Named(user, host string) Report {
	r.private = append(r.private, hidden{user, "USER", true}, hidden{host, "HOST", true})
	return r
}

// WeakenedBy adds to a verdict what the lines say of a wall.
func WeakenedBy(v Verdict, lines []Line, wall string) Verdict { return weakenedBy(v, lines, wall) }
