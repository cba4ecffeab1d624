package workspace

import (
	"path"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/term"
)

// selection is a set of paths with all that is below them. The empty one
// holds everything.
type selection []string

// CheckPaths refuses paths that are not below a workspace, or can't be anywhere.
func CheckPaths(paths []string) error {
	_, err := newSelection(paths)
	return err
}

// newSelection cleans what a user typed: relative paths, "." and "dir/".
func newSelection(paths []string) (selection, error) {
	var s selection
	all := false
	for _, p := range paths {
		c := path.Clean(p)
		if p == "" || c == ".." || strings.HasPrefix(c, "../") || path.IsAbs(c) {
			return nil, sandbox.Errorf(sandbox.Invalid, "path %q: not inside the workspace", term.Escape(p)).
				WithHint("paths are relative to the workspace: src/main.go")
		}
		if c == "." {
			all = true
			continue
		}
		if err := checkPath(c); err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "path %q: %w", term.Escape(p), err)
		}
		s = append(s, c)
	}
	if all {
		return nil, nil
	}
	slices.SortFunc(s, comparePaths)
	kept := s[:0]
	for _, p := range s { // what is below another path adds nothing
		if len(kept) == 0 || !below(p, kept[len(kept)-1]) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// has reports whether p is selected.
func (s selection) has(p string) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(sel string) bool { return below(p, sel) })
}

// leads reports whether p is a parent of something selected.
func (s selection) leads(p string) bool {
	return slices.ContainsFunc(s, func(sel string) bool { return sel != p && below(sel, p) })
}

// under returns the selected paths that lie below p.
func (s selection) under(p string) []string {
	var out []string
	for _, sel := range s {
		if sel != p && below(sel, p) {
			out = append(out, sel)
		}
	}
	return out
}
