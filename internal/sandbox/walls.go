package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// The walls. Which of them a machine has is for its backends to say.
const (
	WallProcess = "process"
	WallGVisor  = "gvisor"
	wallMicroVM = "microvm"
)

// Strength orders walls: a stronger one may stand in for a weaker.
type Strength int

// The strengths. 0 is that of no wall.
const (
	HostKernel Strength = iota + 1 // namespaces and filters on the host's own kernel
	OwnKernel                      // a kernel of its own, in user space; a machine of its own is stronger still
)

// byStrength has the walls from HostKernel on: a Spec that names one counts on its
// strength, whatever backend has that name.
var byStrength = []string{WallProcess, WallGVisor, wallMicroVM}

// offered are those that a caller may name, in the same order.
var offered = slices.DeleteFunc(slices.Clone(byStrength), func(w string) bool { return !ValidWall(w) })

// ValidWall reports whether name is a wall's, here or elsewhere. wallMicroVM is
// not: it has a place in the order, and nobody builds it.
func ValidWall(name string) bool { return name != wallMicroVM && StrengthOf(name) > 0 }

// WeakerWall reports whether a wall is weaker than another. A name that is not a
// wall's is never weaker.
func WeakerWall(wall, than string) bool {
	a, b := StrengthOf(wall), StrengthOf(than)
	return a > 0 && a < b
}

// StrengthOf is what a wall's name promises, or 0 for any other name.
func StrengthOf(wall string) Strength { return Strength(slices.Index(byStrength, wall) + 1) }

// walls are those that a normalised s allows, in the order in which they are
// tried.
func (s Spec) walls() []string { return append([]string{s.Isolation}, s.Stronger...) }

// orderWalls puts the stronger walls into the order of their strength, each
// once. Other names come last, for Validate to refuse.
func orderWalls(walls []string) []string {
	if len(walls) == 0 {
		return nil
	}
	slices.SortFunc(walls, func(a, b string) int {
		x, y := StrengthOf(a), StrengthOf(b)
		switch {
		case x == y:
			return strings.Compare(a, b)
		case x == 0:
			return 1
		case y == 0:
			return -1
		}
		return int(x - y)
	})
	return slices.Compact(walls)
}

// checkWalls wants names of walls, of which this machine has one, and no weaker
// one among the stronger.
func (s Spec) checkWalls(o Offer) *Error {
	for i, w := range s.walls() {
		if StrengthOf(w) == 0 {
			return Errorf(Invalid, "isolation %s: there is no such wall", refText(w)).
				WithHint("from weak to strong: %s", list(offered))
		}
		if i > 0 && StrengthOf(w) <= StrengthOf(s.Isolation) {
			return Errorf(Invalid, "isolation %s: %s is not stronger than it, and only stronger walls can stand in", s.Isolation, w).
				WithHint("name the weakest wall that will do first: %s", list(offered))
		}
	}
	if slices.ContainsFunc(s.walls(), func(w string) bool { return slices.Contains(o.Walls, w) }) {
		return nil
	}
	return Errorf(Unsupported, "isolation %s: this machine does not have it", strings.Join(s.walls(), " or ")).
		WithHint("available: %s", list(o.Walls))
}

const whyAsked = "asked for"

// refusal is why one wall can't keep a Spec.
type refusal struct {
	wall string
	err  error
}

// choose returns the first wall of those that spec allows that can keep it,
// and in words why that one: never one that was not named. Where none can it
// says what is in the way of each.
func (m *Manager) choose(ctx context.Context, spec Spec) (b Backend, why string, err error) {
	var refused []refusal
	for _, wall := range spec.walls() {
		b, ok := m.lives.backends[wall]
		if !ok {
			refused = append(refused, refusal{wall, Errorf(Unsupported, "this machine does not have it")})
			continue
		}
		err := b.Capabilities().check(wall, spec)
		if err == nil {
			_, err = b.Check(ctx, spec)
		}
		if ctx.Err() != nil {
			return nil, "", failure(context.Cause(ctx), spec.Name, "check what it needs")
		}
		if err == nil {
			err = m.gates.canLink(b, spec)
		}
		if err == nil {
			return b, whyText(refused, wall), nil
		}
		if KindOf(err) == Internal {
			m.log.Warn("check spec", "backend", wall, "error", err)
		}
		refused = append(refused, refusal{wall, err})
	}
	return nil, "", refusedText(spec.Name, refused)
}

func whyText(refused []refusal, chosen string) string {
	if len(refused) == 0 {
		return whyAsked
	}
	return reasons(refused) + "; " + chosen + " is allowed and stronger"
}

// reasons is "process can't: no user namespaces; gvisor can't: newuidmap is not installed".
func reasons(refused []refusal) string {
	parts := make([]string, len(refused))
	for i, r := range refused {
		parts[i] = r.wall + " can't: " + userText(r.err)
	}
	return strings.Join(parts, "; ")
}

// refusedText makes one error of all: a single wall's is its own.
func refusedText(name string, refused []refusal) error {
	if len(refused) == 1 {
		return failure(refused[0].err, name, "check what it needs")
	}
	all := Errorf(KindOf(refused[0].err), "isolation: %s", reasons(refused))
	causes := make([]error, len(refused))
	for i, r := range refused {
		causes[i] = r.err
		if KindOf(r.err) != all.Kind {
			all.Kind = Unsupported
		}
		if e, ok := errors.AsType[*Error](r.err); ok && all.Hint == "" {
			all.Hint = e.Hint
		}
	}
	all.Err = errors.Join(causes...)
	return all
}
