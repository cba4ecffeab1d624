package changes

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// DiffOptions say in which form changes are shown; none: as a patch.
type DiffOptions struct {
	Names bool // one line for each file
	Stat  bool // how many lines changed in each
	Raw   bool // a patch without escapes, for programs
}

// Diff shows what the sandbox name changed at and below paths, and remembers
// that. Names, Stat, Raw and JSON exclude one another.
func (r *Reviewer) Diff(ctx context.Context, o DiffOptions, name string, paths []string) error {
	if err := onlyOne(map[string]bool{"--names": o.Names, "--stat": o.Stat, "--raw": o.Raw, "--json": r.JSON}); err != nil {
		return err
	}
	svc, sb, err := r.diffable(ctx, name, paths)
	if err != nil {
		return err
	}
	patch := !o.Names && !r.JSON
	c, err := loadChanges(ctx, svc, sb, paths, patch)
	if err != nil {
		return err
	}
	defer c.close()
	if err := r.showDiff(ctx, o, sb.Name, c.Diff); err != nil {
		return err
	}
	return r.tellDigest(sb, c.Diff, paths)
}

func (r *Reviewer) showDiff(ctx context.Context, o DiffOptions, name string, d *workspace.Diff) error {
	switch {
	case r.JSON:
		return r.WriteJSON(newDiffJSON(name, d))
	case o.Names:
		return r.diffNames(d)
	case o.Stat:
		return r.diffStat(ctx, d)
	}
	w, done := r.patchWriter(r.Stdout, o.Raw)
	if err := d.WritePatch(ctx, w, workspace.PatchOptions{Raw: o.Raw}); err != nil {
		return err
	}
	return done()
}

// tellDigest says how to take just what was shown, and remembers it for an
// apply on the same terminal. stdout is left to the patch.
func (r *Reviewer) tellDigest(sb *api.Sandbox, d *workspace.Diff, paths []string) error {
	if len(d.Items) == 0 {
		return nil
	}
	sum := d.Sum()
	if !r.JSON {
		digest := sum.Digest.String()
		if _, err := io.WriteString(r.Stderr, console.Escape("digest "+digest)+"\n"); err != nil {
			return err
		}
		if err := r.Hint("to take just this: " + withPaths("carboy apply --digest "+digest+" "+shell.Word(sb.Name), paths)); err != nil {
			return err
		}
	}
	return r.rememberShown(sb.ID, sum)
}

// onlyOne refuses flags that exclude one another.
func onlyOne(flags map[string]bool) error {
	var given []string
	for _, name := range []string{"--names", "--stat", "--raw", "--json"} {
		if flags[name] {
			given = append(given, name)
		}
	}
	if len(given) > 1 {
		return usage.Errorf("%s can't go together", strings.Join(given, " and "))
	}
	return nil
}

// diffJSON is the answer of diff --json.
type diffJSON struct {
	Name    string            `json:"name"`
	Digest  workspace.Digest  `json:"digest"` // for apply --digest
	Since   time.Time         `json:"since"`  // when the workspace was made
	Changes []workspace.Item  `json:"changes"`
	Summary workspace.Summary `json:"summary"`
}

func newDiffJSON(name string, d *workspace.Diff) diffJSON {
	return diffJSON{Name: name, Digest: d.Sum().Digest, Since: d.Since, Changes: nonNil(d.Items), Summary: d.Summary()}
}

// nonNil makes JSON of an empty list [], never null.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (r *Reviewer) diffNames(d *workspace.Diff) error {
	for i := range d.Items {
		if err := r.PrintLine(itemText(&d.Items[i])); err != nil {
			return err
		}
	}
	return nil
}

// itemText is one line for a change.
func itemText(it *workspace.Item) string {
	text := it.Class.Letter() + "  " + it.Path
	if it.Kind == workspace.Dir {
		text += "/"
	}
	if it.Kind == workspace.Symlink {
		text += " -> " + it.Target
	}
	for _, n := range it.Notes {
		text += "  (" + n + ")"
	}
	if it.Held != "" {
		text += "  [held: " + it.Held + "]"
	}
	return text
}

// diffStat shows how many lines each change adds and takes. Directories have
// none.
func (r *Reviewer) diffStat(ctx context.Context, d *workspace.Diff) error {
	files := *d
	files.Items = slices.DeleteFunc(slices.Clone(d.Items), func(it workspace.Item) bool { return it.Kind == workspace.Dir })
	var t console.Table
	for i := range files.Items {
		one := files
		one.Items = files.Items[i : i+1]
		var c lineCounter
		if err := one.WritePatch(ctx, &c, workspace.PatchOptions{Raw: true}); err != nil {
			return err
		}
		t.Row(one.Items[0].Class.Letter(), one.Items[0].Path, c.String())
	}
	if err := t.Write(r.Stdout); err != nil {
		return err
	}
	return r.PrintLine(summaryText(files.Summary()))
}

func summaryText(s workspace.Summary) string {
	var parts []string
	for _, p := range [...]struct {
		n    int
		what string
	}{
		{s.Added, "added"},
		{s.Modified, "modified"},
		{s.Deleted, "deleted"},
		{s.ModeChanged, "of another mode"},
		{s.TypeChanged, "of another type"},
		{s.Held, "held back"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return "no changes"
	}
	return strings.Join(parts, ", ")
}
