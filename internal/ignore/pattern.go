package ignore

import (
	"fmt"
	"strings"
)

// MaxPattern is the length of the longest pattern, in bytes.
const MaxPattern = 4096

// Pattern is one line of a .gitignore.
type Pattern struct {
	text     string // without what the flags say, and without a leading slash
	negated  bool
	dirOnly  bool
	anchored bool // compared with the whole path, not its last part
}

// ParseLine reads a line; ok is false for one that says nothing: empty, a comment, or
// longer than MaxPattern.
func ParseLine(line string) (p Pattern, ok bool) {
	line = strings.TrimSuffix(line, "\r")
	if line == "" || line[0] == '#' || len(line) > MaxPattern || strings.IndexByte(line, 0) >= 0 {
		return p, false
	}
	line = trimSpaces(line)
	if rest, found := strings.CutPrefix(line, "!"); found {
		p.negated, line = true, rest
	}
	if rest, found := strings.CutSuffix(line, "/"); found {
		p.dirOnly, line = true, rest
	}
	p.anchored = strings.Contains(line, "/")
	p.text = strings.TrimPrefix(line, "/")
	return p, line != ""
}

// trimSpaces takes away spaces at the end that no backslash stands before.
func trimSpaces(s string) string {
	end := -1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			if end < 0 {
				end = i
			}
			continue
		case '\\':
			if i++; i >= len(s) {
				return s
			}
		}
		end = -1
	}
	if end < 0 {
		return s
	}
	return s[:end]
}

// Lines splits the text of a .gitignore.
func Lines(text string) []string {
	return strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n")
}

// Within returns the line that says above dir what p says in it: "" is the top.
func (p Pattern) Within(dir string) string {
	var b strings.Builder
	if p.negated {
		b.WriteByte('!')
	}
	switch {
	case dir != "":
		b.WriteString("/" + Literal(dir) + "/")
		if !p.anchored {
			b.WriteString("**/")
		}
	case p.anchored:
		b.WriteByte('/')
	case strings.HasPrefix(p.text, "#") || strings.HasPrefix(p.text, "!"):
		b.WriteByte('\\')
	}
	b.WriteString(p.text)
	if p.dirOnly {
		b.WriteByte('/')
	}
	return b.String()
}

// Literal is a pattern that path alone matches.
func Literal(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `).Replace(path)
}

// match reports whether p is about path, whatever it says of it.
func (p Pattern) match(path string, dir bool) bool {
	if p.dirOnly && !dir {
		return false
	}
	if !p.anchored {
		path = path[strings.LastIndexByte(path, '/')+1:]
	}
	return wildmatch(p.text, path)
}

// CheckGlob refuses what is no pattern that could match, for what a user types.
func CheckGlob(glob string) error {
	p, ok := ParseLine(glob)
	switch {
	case !ok:
		return fmt.Errorf("glob %.64q: it matches nothing", glob)
	case p.negated:
		return fmt.Errorf("glob %.64q: it begins with !, which no glob here may", glob)
	}
	if why := malformed(p.text); why != "" {
		return fmt.Errorf("glob %.64q: %s", glob, why)
	}
	return nil
}

// malformed says why git would let a pattern match nothing, "" where it would not.
func malformed(pattern string) string {
	for p := 0; p < len(pattern); p++ {
		switch pattern[p] {
		case '\\':
			if p++; p == len(pattern) {
				return `nothing follows its last \, which takes a character literally`
			}
		case '[':
			if p, _ = set(pattern, p, 0); p == 0 {
				return `its [ begins no set, such as [a-z]; the character itself is \[`
			}
		}
	}
	return ""
}
