package workspace

import (
	"fmt"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Nameable reports whether an apply takes what is held back of it where it is named, and With beside it.
func (it *Item) Nameable() bool {
	return it.Kind != Special && !it.onlyShown && !it.stuck
}

// holdMoved holds back what would take from the base what is not taken elsewhere. taken says of an item
// whether it is taken, as far as that is known; what is held here is not.
func holdMoved(items []Item, taken func(*Item) bool) {
	left := map[string]*Item{}  // items that are not taken
	around := map[string]bool{} // directories among them, which the base lacks
	for i := range items {
		if it := &items[i]; !taken(it) {
			left[it.Path] = it
		}
	}
	for again := true; again; {
		again = false
		for i := range items {
			it := &items[i]
			if left[it.Path] != nil {
				continue
			}
			why := it.kept(left)
			if why == "" {
				why = it.within(around)
			}
			if why != "" {
				left[it.Path], again = it, true
				it.heldBefore, it.Held, it.heldElsewhere = it.Held, why, true
				if it.Kind == Dir {
					around[it.Path] = true
				}
			}
		}
	}
}

// within returns why an item can't be taken that lies in a directory which is not, or "".
func (it *Item) within(around map[string]bool) string {
	for p, _ := splitPath(it.Path); p != "." && len(around) > 0; p, _ = splitPath(p) {
		if around[p] {
			return fmt.Sprintf("%s around it is held back", term.Escape(p))
		}
	}
	return ""
}

// kept returns why an item would take from the base what is not taken elsewhere, or "".
func (it *Item) kept(left map[string]*Item) string {
	if it.onlyShown {
		return fmt.Sprintf("the running sandbox has %s of it open: stop that first, then apply again", term.Escape(it.shownAs))
	}
	for _, one := range it.elsewhere {
		by := left[one.to]
		if by == nil && !one.aside {
			continue
		}
		it.With, it.stuck = one.to, by != nil && (by.onlyShown || by.stuck)
		if one.from == it.Path {
			return fmt.Sprintf("it is %s in the sandbox, which is not taken with it", term.Escape(one.to))
		}
		return fmt.Sprintf("%s is in it, which is %s in the sandbox, and not taken with it", term.Escape(one.from), term.Escape(one.to))
	}
	return ""
}

// holdElsewhere holds back what would take from the base what is not taken elsewhere, by what the user named.
// Who takes the workspace's side by force, of what is named, takes that too; and who names what is in part never
// applied takes the rest.
func (a *applier) holdElsewhere(diff *Diff) {
	never := map[string]bool{}
	for i := range diff.Items {
		if it := &diff.Items[i]; it.Kind == Special {
			never[it.Path] = true
		}
	}
	for i := range diff.Items {
		it := &diff.Items[i]
		if it.heldElsewhere {
			it.Held, it.heldElsewhere, it.With = it.heldBefore, false, ""
		}
		if a.opts.Force {
			it.elsewhere, it.onlyShown = nil, false
		}
		if a.allowed(it) {
			it.elsewhere = slices.DeleteFunc(it.elsewhere, func(one elsewhere) bool { return never[one.to] })
		}
	}
	holdMoved(diff.Items, func(it *Item) bool { return it.Held == "" || a.allowed(it) })
}

// keepDeclined takes out of the plan what would take from the base what was declined elsewhere.
func (a *applier) keepDeclined() {
	declined := map[string]*Item{}
	for i := range a.result.Declined {
		declined[a.result.Declined[i].Path] = &a.result.Declined[i]
	}
	for again := len(declined) > 0; again; {
		again = false
		a.plan = slices.DeleteFunc(a.plan, func(it *Item) bool {
			why := it.kept(declined)
			if why == "" {
				return false
			}
			it.Held, again, declined[it.Path] = why, true, it
			a.result.Held = append(a.result.Held, *it)
			return true
		})
	}
}
