package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/shell"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

type diffOptions struct {
	names, stat, raw bool
}

func (a *app) diffCommand() *cobra.Command {
	var o diffOptions
	cmd := &cobra.Command{
		Use:   "diff [flags] NAME [PATH...]",
		Short: "Show what a sandbox changed in its workspace",
		Args:  someArgs(1, "NAME"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.diff(ctx, o, args[0], workspacePaths(args[1:]))
		}),
		ValidArgsFunction: a.completeName(1),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.names, "names", false, "one line for each file: A added, M modified, D deleted, X mode, T type")
	fs.BoolVar(&o.stat, "stat", false, "how many lines changed in each file")
	fs.BoolVar(&o.raw, "raw", false, "a patch for programs: control characters are not escaped")
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `The changes are compared with the directory as it is now; what is the same on
both sides is left out. Without flags they are shown as a unified patch. Each
PATH is relative to the workspace, and stands for what is below it, too.

A digest of all that was shown goes to stderr: carboy apply --digest takes that, and
nothing that came after.`,
		examples: []string{
			"carboy diff brave-otter-4f2a",
			"carboy diff --names brave-otter-4f2a src",
			"carboy diff --raw brave-otter-4f2a | git apply --check",
		},
		exits: exitDocsPlain[:],
	})
}

func (a *app) diff(ctx context.Context, o diffOptions, name string, paths []string) error {
	if err := onlyOne(map[string]bool{"--names": o.names, "--stat": o.stat, "--raw": o.raw, "--json": a.JSON}); err != nil {
		return err
	}
	svc, sb, err := a.diffable(ctx, name, paths)
	if err != nil {
		return err
	}
	patch := !o.names && !a.JSON
	c, err := loadChanges(ctx, svc, sb, paths, patch)
	if err != nil {
		return err
	}
	defer c.close()
	if err := a.showDiff(ctx, o, sb.Name, c.Diff); err != nil {
		return err
	}
	return a.tellDigest(sb, c.Diff, paths)
}

func (a *app) showDiff(ctx context.Context, o diffOptions, name string, d *workspace.Diff) error {
	switch {
	case a.JSON:
		return a.WriteJSON(newDiffJSON(name, d))
	case o.names:
		return a.diffNames(d)
	case o.stat:
		return a.diffStat(ctx, d)
	}
	w, done := a.patchWriter(a.Stdout, o.raw)
	if err := d.WritePatch(ctx, w, workspace.PatchOptions{Raw: o.raw}); err != nil {
		return err
	}
	return done()
}

// tellDigest says how to take just what was shown, and remembers it for an
// apply on the same terminal. stdout is left to the patch.
func (a *app) tellDigest(sb *api.Sandbox, d *workspace.Diff, paths []string) error {
	if len(d.Items) == 0 {
		return nil
	}
	sum := d.Sum()
	if !a.JSON {
		digest := sum.Digest.String()
		if _, err := io.WriteString(a.Stderr, console.Escape("digest "+digest)+"\n"); err != nil {
			return err
		}
		if err := a.Hint("to take just this: " + withPaths("carboy apply --digest "+digest+" "+shell.Word(sb.Name), paths)); err != nil {
			return err
		}
	}
	return a.rememberShown(sb.ID, sum)
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

func (a *app) diffNames(d *workspace.Diff) error {
	for i := range d.Items {
		if err := a.PrintLine(itemText(&d.Items[i])); err != nil {
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
func (a *app) diffStat(ctx context.Context, d *workspace.Diff) error {
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
	if err := t.Write(a.Stdout); err != nil {
		return err
	}
	return a.PrintLine(summaryText(files.Summary()))
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
