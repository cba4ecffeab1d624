package ignore

import "strings"

// List is patterns in the order in which they stand: the last that is about a path
// decides. The zero value ignores nothing.
type List struct {
	prefix   string // of every path, with a slash at its end where it is not empty
	patterns []Pattern
	kept     map[string]bool // paths that are never ignored
	above    map[string]bool // directories that have one of those below
}

// NewList makes a List of lines. They are compared with paths to which prefix is added: where a
// tree lies below the place that the lines are for. Paths in kept, relative to
// the tree, are never ignored, as those that git tracks.
func NewList(lines []string, prefix string, kept []string) *List {
	l := &List{kept: make(map[string]bool, len(kept)), above: map[string]bool{}}
	if prefix != "" {
		l.prefix = prefix + "/"
	}
	for _, line := range lines {
		if p, ok := ParseLine(line); ok {
			l.patterns = append(l.patterns, p)
		}
	}
	for _, k := range kept {
		l.kept[k] = true
		for i := strings.LastIndexByte(k, '/'); i > 0 && !l.above[k[:i]]; i = strings.LastIndexByte(k[:i], '/') {
			l.above[k[:i]] = true
		}
	}
	return l
}

// Enter decides about a path whose directory was decided about: ignored says how. A
// path in an ignored directory is ignored, whatever patterns say of it.
func (l *List) Enter(path string, dir, ignored bool) bool {
	if l.kept[path] {
		return false
	}
	return ignored || l.match(l.prefix+path, dir)
}

// Has reports whether a path is ignored, by itself or by a directory that it is in.
func (l *List) Has(path string, dir bool) bool {
	ignored := false
	for i := range len(path) {
		if path[i] == '/' {
			ignored = l.Enter(path[:i], true, ignored)
		}
	}
	return l.Enter(path, dir, ignored)
}

// Leads reports whether something below directory path is kept, so that an ignored
// directory has to be looked into.
func (l *List) Leads(path string) bool { return l.above[path] }

// Empty reports whether l ignores nothing.
func (l *List) Empty() bool { return len(l.patterns) == 0 }

func (l *List) match(path string, dir bool) bool {
	for i := len(l.patterns) - 1; i >= 0; i-- {
		if l.patterns[i].match(path, dir) {
			return !l.patterns[i].negated
		}
	}
	return false
}
