package workspace

import (
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/ignore"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Bounds of a filter.
const (
	maxFilterLines = 20_000  // patterns: each is compared with each path
	maxFilterText  = 2 << 20 // bytes of them and of paths
)

// CheckFilter refuses a filter that is too large, or has a glob that matches nothing.
func CheckFilter(f sandbox.ChangesFilter) error {
	lines, text := 0, 0
	for i, list := range [...][]string{f.Tracked, f.Ignore, f.Exclude, f.Only} {
		if i > 0 {
			lines += len(list)
		}
		for _, s := range list {
			text += len(s)
		}
	}
	if lines > maxFilterLines || text > maxFilterText {
		return sandbox.Errorf(sandbox.Invalid, "what is to be left out: %d patterns, and with paths %d bytes; at most %d and %d", lines, text, maxFilterLines, maxFilterText).
			WithHint("leave out the rules of repositories: --ignored")
	}
	for _, g := range slices.Concat(f.Exclude, f.Only) {
		if err := ignore.CheckGlob(g); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "%s", term.Escape(err.Error())).
				WithHint("as in a .gitignore: '*.log', 'docs/', '/src/**/*.ts'")
		}
	}
	if f.Prefix != "" {
		if err := checkPath(f.Prefix); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "prefix: %w", err)
		}
	}
	return nil
}

// filter is a sandbox.ChangesFilter, to be asked.
type filter struct {
	ignored, exclude, only *ignore.List
	all                    bool     // nothing is left out
	named                  []string // selected paths that are ignored: they are meant
}

func newFilter(f sandbox.ChangesFilter, sel selection) *filter {
	out := &filter{
		ignored: ignore.NewList(f.Ignore, f.Prefix, f.Tracked),
		exclude: ignore.NewList(f.Exclude, "", nil),
		only:    ignore.NewList(f.Only, "", nil),
	}
	out.all = out.ignored.Empty() && out.exclude.Empty() && out.only.Empty()
	for _, s := range sel {
		if out.ignored.Has(s, true) || out.ignored.Has(s, false) {
			out.named = append(out.named, s)
		}
	}
	return out
}

// verdict is what a filter says of a path, given what it says of its directory.
type verdict struct{ ignored, excluded, only bool }

// out reports whether the path is left out. A directory is not as long as something in
// it may match an Only.
func (v verdict) out(dir, onlySome bool) bool {
	return v.ignored || v.excluded || onlySome && !v.only && !dir
}

func (f *filter) enter(path string, dir bool, v verdict) verdict {
	if f.all {
		return v
	}
	if !ofRepository(path) { // which git asks no patterns about
		v.ignored = f.ignored.Enter(path, dir, v.ignored)
	}
	v.ignored = v.ignored && !f.names(path)
	v.excluded = f.exclude.Enter(path, dir, v.excluded)
	v.only = f.only.Enter(path, dir, v.only)
	return v
}

// ofRepository reports whether a path is a repository's own directory or below it.
func ofRepository(path string) bool {
	return strings.Contains("/"+path+"/", "/.git/")
}

// LeavesOut returns what tells of a path whether f leaves it out.
func LeavesOut(f sandbox.ChangesFilter) func(path string, dir bool) bool {
	asked := newFilter(f, nil)
	return func(path string, dir bool) bool {
		out, _ := asked.leaves(path, dir)
		return out
	}
}

// names reports whether a path was named that is ignored, or is below one.
func (f *filter) names(path string) bool {
	return slices.ContainsFunc(f.named, func(n string) bool { return below(path, n) })
}

// leaves reports whether a path is left out, and whether that is because it is
// ignored.
func (f *filter) leaves(path string, dir bool) (out, ignored bool) {
	if f.all {
		return false, false
	}
	v := verdict{}
	for i := range len(path) {
		if path[i] == '/' {
			v = f.enter(path[:i], true, v)
		}
	}
	v = f.enter(path, dir, v)
	return v.out(dir, !f.only.Empty()), v.ignored
}

// Left counts the files of which changes were left out.
type Left struct {
	Ignored  int64 `json:"ignored"`  // by the rules of repositories
	Excluded int64 `json:"excluded"` // by globs
}
