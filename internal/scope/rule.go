// Package scope decides what a pod may do with the files that it shares with its parent,
// and what it may hand on. It is pure: rules and paths in, a permission, an answer or a
// refusal with its reason out. It knows no file, no link and no clock; paths come to it
// resolved, and whoever built a wall enforces what it says.
//
// It refuses what it can't prove: a child's rule that no single rule of its parent covers
// is not within, also where several would do together.
package scope

import (
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// Permission is what may be done at a path. They are ordered.
type Permission uint8

// The permissions.
const (
	None Permission = iota // of a query: no rule is about it
	Read
	Write // and read
)

// String is the word of the wire, "none" for None.
func (p Permission) String() string {
	switch p {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return "none"
}

// MarshalText implements encoding.TextMarshaler.
func (p Permission) MarshalText() ([]byte, error) {
	if p != Read && p != Write {
		return nil, fmt.Errorf("a rule can't have the permission %s", p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. The words are read and write.
func (p *Permission) UnmarshalText(text []byte) error {
	switch string(text) {
	case "read":
		*p = Read
	case "write":
		*p = Write
	default:
		return fmt.Errorf("permission %.20q: it has to be read or write", text)
	}
	return nil
}

// Rule is about the paths at and below a target.
type Rule struct {
	Target     string     `json:"target"` // an absolute path, clean
	Permission Permission `json:"permission"`
	// Recursive has the rule be about all that is below the target; otherwise it is about the
	// target and what lies directly in it. A rule that is read without it is recursive.
	Recursive bool `json:"recursive"`
}

// UnmarshalJSON reads a rule strictly, and has it recursive unless it says otherwise.
func (r *Rule) UnmarshalJSON(b []byte) error {
	raw := struct {
		Target     string     `json:"target"`
		Permission Permission `json:"permission"`
		Recursive  bool       `json:"recursive"`
	}{Recursive: true}
	if err := strict.Unmarshal(b, &raw); err != nil {
		return err
	}
	if raw.Permission == None {
		return fmt.Errorf("a rule needs a permission: read or write")
	}
	*r = Rule(raw)
	return nil
}

// String is the rule in a summary: "write:/workspace", "read:/workspace/doc [non-recursive]".
func (r Rule) String() string {
	s := r.Permission.String() + ":" + r.Target
	if !r.Recursive {
		s += " [non-recursive]"
	}
	return s
}

// maxPath is as long as a path of the kernel's may be.
const maxPath = 4095

// Check refuses a rule that can't be about anything: the target has to be an absolute path of
// letters that can be seen, without "." and "..".
func (r Rule) Check() error {
	switch {
	case !strings.HasPrefix(r.Target, "/"):
		return errorf("scope target must be absolute: %s", Shown(r.Target))
	case len(r.Target) > maxPath:
		return errorf("scope target must have at most %d bytes: %s", maxPath, Shown(r.Target))
	case Shown(r.Target) != r.Target:
		return errorf("scope target must be made of letters that can be seen: %s", Shown(r.Target))
	case path.Clean(r.Target) != r.Target:
		return errorf("scope target must be clean: %s is %s", r.Target, path.Clean(r.Target))
	case r.Permission != Read && r.Permission != Write:
		return errorf("scope target %s has no permission", r.Target)
	}
	return nil
}

// Shown is a path fit to be printed: as it is, or quoted where it has bytes that can't be seen,
// and cut where it is long.
func Shown(p string) string {
	const most = 200
	visible := func(r rune) bool { return unicode.IsGraphic(r) && r != utf8.RuneError }
	if strings.IndexFunc(p, func(r rune) bool { return !visible(r) }) >= 0 {
		return fmt.Sprintf("%.*q", most, p)
	}
	if len(p) > maxPath {
		return fmt.Sprintf("%.*s...", most, p)
	}
	return p
}

// Matches reports whether the rule is about a clean absolute path.
func (r Rule) Matches(p string) bool {
	if r.Recursive {
		return under(p, r.Target)
	}
	return p == r.Target || above(p) == r.Target
}

// Covers reports whether the rule is about all that inner is about, and allows as much.
func (r Rule) Covers(inner Rule) bool {
	return r.Permission >= inner.Permission && r.about(inner)
}

// about reports whether r is about all that inner is about.
func (r Rule) about(inner Rule) bool {
	if r.Recursive {
		return under(inner.Target, r.Target)
	}
	return inner.Target == r.Target && !inner.Recursive
}

// Overlaps reports whether both rules are about some path, whatever they permit there.
func (r Rule) Overlaps(o Rule) bool {
	switch {
	case r.Recursive && o.Recursive:
		return under(r.Target, o.Target) || under(o.Target, r.Target)
	case r.Recursive:
		return under(o.Target, r.Target) || above(r.Target) == o.Target
	case o.Recursive:
		return o.Overlaps(r)
	}
	return r.Target == o.Target || above(r.Target) == o.Target || above(o.Target) == r.Target
}

// under reports whether p is at or below dir, by whole components.
func under(p, dir string) bool {
	if dir == "/" {
		return strings.HasPrefix(p, "/")
	}
	rest, ok := strings.CutPrefix(p, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// above is the directory that p lies in; "" for the root, which lies in none.
func above(p string) string {
	if p == "/" {
		return ""
	}
	return path.Dir(p)
}
