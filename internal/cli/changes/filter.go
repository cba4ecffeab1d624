package changes

import (
	"context"
	"io"
	"slices"
	"strconv"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// FilterOptions say which changes are left out. The zero value leaves out what the
// repository ignores.
type FilterOptions struct {
	Ignored bool     `json:"ignored,omitempty"` // nothing for being ignored
	Exclude []string `json:"exclude,omitempty"` // what one of these patterns matches
	Only    []string `json:"only,omitempty"`    // what none of these matches
}

// check refuses globs that match nothing.
func (o FilterOptions) check() error {
	return workspace.CheckFilter(sandbox.ChangesFilter{Exclude: o.Exclude, Only: o.Only})
}

// same reports whether o and p leave out the same.
func (o FilterOptions) same(p FilterOptions) bool {
	return o.Ignored == p.Ignored && slices.Equal(o.Exclude, p.Exclude) && slices.Equal(o.Only, p.Only)
}

// flags are o as it is typed.
func (o FilterOptions) flags() string {
	text := ""
	if o.Ignored {
		text = " --ignored"
	}
	for _, g := range o.Exclude {
		text += " --exclude " + shell.Word(g)
	}
	for _, g := range o.Only {
		text += " --only " + shell.Word(g)
	}
	return text
}

// filter makes of o what a stream is asked for with, and says what of the base's rules
// could not be read.
func (r *Reviewer) filter(ctx context.Context, base *workspace.Base, o FilterOptions) (sandbox.ChangesFilter, error) {
	var f sandbox.ChangesFilter
	if !o.Ignored {
		rules, err := base.IgnoreRules(ctx)
		if err != nil {
			return f, err
		}
		for _, n := range rules.Notes {
			r.Note(n)
		}
		f = rules.Filter
	}
	f.Exclude, f.Only = o.Exclude, o.Only
	return f, nil
}

// request asks for changes with f.
func request(content bool, paths []string, f sandbox.ChangesFilter) api.ChangesRequest {
	return api.ChangesRequest{
		Content: content, Paths: paths, Ignore: f.Ignore, Prefix: f.Prefix, Tracked: f.Tracked, Exclude: f.Exclude, Only: f.Only, Origins: true,
	}
}

// tellLeft says what was left out, and how to have it.
func (r *Reviewer) tellLeft(left workspace.Left, does string) error {
	if r.JSON {
		return nil
	}
	if left.Ignored > 0 {
		if _, err := io.WriteString(r.Stderr, grouped(left.Ignored)+" ignored by .gitignore: --ignored "+does+" them\n"); err != nil {
			return err
		}
	}
	if left.Excluded > 0 {
		if _, err := io.WriteString(r.Stderr, grouped(left.Excluded)+" left out by --exclude or --only\n"); err != nil {
			return err
		}
	}
	return nil
}

// grouped writes n with a comma after each three digits.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
