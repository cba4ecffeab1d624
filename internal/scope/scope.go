package scope

import (
	"slices"
	"strings"
)

// Scope is what a pod may do: rules that allow, and rules that take away. The zero Scope
// allows nothing. A Scope that was handed out is not changed any more: its methods return
// others.
type Scope struct {
	Allow []Rule `json:"allow"`
	Deny  []Rule `json:"deny"`
}

// New checks the rules of a scope, of which one has to allow something.
func New(allow, deny []Rule) (Scope, error) {
	if len(allow) == 0 {
		return Scope{}, errorf("scope must declare at least one allow rule")
	}
	for _, r := range slices.Concat(allow, deny) {
		if err := r.Check(); err != nil {
			return Scope{}, err
		}
	}
	return Scope{Allow: slices.Clone(allow), Deny: slices.Clone(deny)}, nil
}

// Writable is the scope that may write at and below a directory.
func Writable(dir string) (Scope, error) {
	return New([]Rule{{Target: dir, Permission: Write, Recursive: true}}, nil)
}

// At is what may be done at a path: the most that a rule allows, and less than the least that
// one denies. A path that is not absolute and clean has no permission.
func (s Scope) At(p string) Permission {
	if !strings.HasPrefix(p, "/") || (Rule{Target: p, Permission: Read}).Check() != nil {
		return None
	}
	return s.at(p)
}

// at is At for a path that was looked at.
func (s Scope) at(p string) Permission {
	most, least := None, Write+1
	for _, r := range s.Allow {
		if r.Matches(p) {
			most = max(most, r.Permission)
		}
	}
	for _, r := range s.Deny {
		if r.Matches(p) {
			least = min(least, r.Permission)
		}
	}
	return min(most, least-1)
}

// IsWritable reports whether a path may be written.
func (s Scope) IsWritable(p string) bool { return s.At(p) == Write }

// Union is s with more rules that allow. What s denies stays denied.
func (s Scope) Union(allow ...Rule) Scope {
	return Scope{Allow: slices.Concat(s.Allow, allow), Deny: slices.Clone(s.Deny)}
}

// Difference is s without what the rules are about: a rule to write leaves reading.
func (s Scope) Difference(deny ...Rule) Scope {
	return Scope{Allow: slices.Clone(s.Allow), Deny: slices.Concat(s.Deny, deny)}
}

// Restore takes back one Difference: for each rule one rule that denies goes which is the
// same. So one of s's own that is equal stays, and a second time takes none that is others'.
func (s Scope) Restore(deny ...Rule) Scope {
	left := slices.Clone(s.Deny)
	for _, r := range deny {
		if i := slices.Index(left, r); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	return Scope{Allow: slices.Clone(s.Allow), Deny: left}
}

// Writes are the rules by which something may be written.
func Writes(rules []Rule) (out []Rule) {
	for _, r := range rules {
		if r.Permission == Write {
			out = append(out, r)
		}
	}
	return out
}

// Summary tells a model where it may read and write. What is denied is left out: it says
// what others do.
func (s Scope) Summary() string {
	var b strings.Builder
	list := func(title string, least Permission) {
		b.WriteString(title + "\n")
		for _, r := range s.Allow {
			if r.Permission >= least {
				b.WriteString("  - " + r.Target)
				if !r.Recursive {
					b.WriteString(" [non-recursive]")
				}
				b.WriteString("\n")
			}
		}
	}
	list("Readable:", Read)
	list("Writable:", Write)
	return b.String()
}
