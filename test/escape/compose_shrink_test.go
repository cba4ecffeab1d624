package escape

import (
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// shrinking is how long is looked for less that does the same.
const shrinking = 40 * time.Second

// shrink looks for the one sequence that does it, and then for the steps of it
// that are needed. Each try is made in a new box. It reports whether anything
// did it again.
func (c *composing) shrink(b *bad) ([]facts.Composition, bool) {
	end := time.Now().Add(shrinking)
	ran := b.ran
	if !c.again(ran) {
		return ran, false
	}
	for len(ran) > 1 && time.Now().Before(end) {
		half := len(ran) / 2
		switch {
		case c.again(ran[:half]):
			ran = ran[:half]
		case c.again(ran[half:]):
			ran = ran[half:]
		default:
			return ran, true
		}
	}
	if len(ran) != 1 {
		return ran, true
	}
	one := ran[0]
	one.Finds = nil
	for i := len(one.Steps) - 1; i >= 0 && time.Now().Before(end); i-- {
		less := one
		less.Steps = slices.Delete(slices.Clone(one.Steps), i, i+1)
		if len(less.Steps) > 0 && c.again([]facts.Composition{less}) {
			one = less
		}
	}
	return []facts.Composition{one}, true
}

// again runs sequences in a new box, and reports whether something is found,
// or has changed, now or after a stop and a start.
func (c *composing) again(ran []facts.Composition) bool {
	c.settle()
	p := c.plan
	p.Replay = ran
	got, ok := c.batch(p)
	if slices.ContainsFunc(got, func(one facts.Composition) bool { return len(one.Finds) > 0 }) || len(c.changed()) > 0 {
		return true
	}
	c.turn = 0
	c.outside(ok)
	return len(c.changed()) > 0
}
