package changes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/client"
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

	Filter FilterOptions
}

// maxScreen is how much of a patch goes to a terminal, in bytes.
const maxScreen = 1 << 20

// Diff shows what the sandbox name changed at and below paths, and remembers
// that. Names, Stat, Raw and JSON exclude one another.
func (r *Reviewer) Diff(ctx context.Context, o DiffOptions, name string, paths []string) error {
	if err := onlyOne(map[string]bool{"--names": o.Names, "--stat": o.Stat, "--raw": o.Raw, "--json": r.JSON}); err != nil {
		return err
	}
	svc, sb, err := r.diffable(ctx, name, o.Filter, paths)
	if err != nil {
		return err
	}
	patch := !o.Names && !r.JSON
	c, err := r.loadChanges(ctx, svc, sb, o.Filter, paths, patch)
	if err != nil {
		return err
	}
	defer c.close()
	shown, committed := r.withoutCommits(c.Diff, paths, gitKeeps(sb))
	if err := shown.FindRenames(ctx); err != nil {
		return err
	}
	whole, err := r.showDiff(ctx, o, sb, shown)
	if err == nil {
		err = r.tellLeft(c.Left, "shows")
	}
	if err == nil {
		err = r.tellCommits(ctx, svc, sb, committed)
	}
	if err != nil || !whole || len(shown.Items) == 0 {
		return err
	}
	return r.tellDigest(sb, c.Diff, o.Filter, paths)
}

// withoutCommits is d for people: without the files in which git keeps commits, unless
// they were asked for, and which these are.
func (r *Reviewer) withoutCommits(d *workspace.Diff, paths []string, kept func(string) bool) (shown *workspace.Diff, committed gitFiles) {
	if r.JSON || slices.ContainsFunc(paths, func(p string) bool { return kept(path.Clean(p)) }) {
		return d, gitFiles{}
	}
	of := func(it workspace.Item) bool { return kept(it.Path) }
	files := *d
	files.Items = slices.DeleteFunc(slices.Clone(d.Items), of)
	for i := range d.Items {
		if of(d.Items[i]) {
			committed.add(&d.Items[i])
		}
	}
	return &files, committed
}

// gitFiles are files that git itself writes into its repository.
type gitFiles struct {
	n          int
	submodules bool // some say what the repository of a submodule would not lose
}

func (g *gitFiles) add(it *workspace.Item) {
	if it.Kind != workspace.Dir {
		g.n++
		g.submodules = g.submodules || ofSubmodule(it.Path)
	}
}

// tellCommits says what of the repository's own is not shown, and whether there are commits
// in it. A git status writes there, too.
func (r *Reviewer) tellCommits(ctx context.Context, svc *client.Client, sb subject, committed gitFiles) error {
	if committed.n == 0 {
		return nil
	}
	takes := "carboy fetch " + shell.Word(sb.Name) + " takes commits"
	if sb.volume {
		takes = sb.command("export", "") + " DIR, then git fetch DIR '+refs/heads/*:refs/remotes/" + shell.Word(sb.Name) + "/*' takes commits"
	}
	text := console.Count(committed.n, "file") + " in which git keeps commits: " + takes + "\n"
	if none, err := r.fetched(ctx, svc, sb); err == nil && none && !committed.submodules {
		text = console.Count(committed.n, "file") + " of git's own in .git, and no commits that are not here\n"
	}
	_, err := io.WriteString(r.Stderr, text)
	return err
}

// heldItems returns those of items that are held back, without directories for which an
// item below them speaks.
func heldItems(items []workspace.Item) []workspace.Item {
	speaks := map[string]bool{}
	for i := range items {
		if items[i].Held == "" {
			continue
		}
		for p := path.Dir(items[i].Path); p != "." && !speaks[p]; p = path.Dir(p) {
			speaks[p] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(items), func(it workspace.Item) bool {
		return it.Held == "" || it.Kind == workspace.Dir && speaks[it.Path]
	})
}

// showDiff shows d, and reports whether that is all of it.
func (r *Reviewer) showDiff(ctx context.Context, o DiffOptions, sb subject, d *workspace.Diff) (whole bool, _ error) {
	switch {
	case r.JSON:
		return true, r.WriteJSON(newDiffJSON(sb.Name, d))
	case o.Names:
		return true, r.diffNames(d)
	case o.Stat:
		return true, r.diffStat(ctx, d)
	}
	w, done := r.patchWriter(r.Stdout, o.Raw)
	if !console.IsTerminal(r.Stdout) {
		if err := d.WritePatch(ctx, w, workspace.PatchOptions{Raw: o.Raw}); err != nil {
			return false, err
		}
		return true, done()
	}
	n, err := writeScreen(ctx, w, d, o.Raw, maxScreen)
	if err == nil {
		err = done()
	}
	if err != nil || n == len(d.Items) {
		return err == nil, err
	}
	r.Note(fmt.Sprintf("%s of %s changes are shown whole: there is too much for a terminal", grouped(int64(n)), grouped(int64(len(d.Items)))))
	return false, r.Hint(fmt.Sprintf("%s lists all; %s | less shows all; --only and --exclude choose", sb.command("diff", " --names"), sb.command("diff", "")))
}

// writeScreen writes as much of a patch as limit allows, in whole lines, and returns how
// many changes that are.
func writeScreen(ctx context.Context, w io.Writer, d *workspace.Diff, raw bool, limit int) (int, error) {
	for i := range d.Items {
		var b bytes.Buffer
		err := d.Items[i].WritePatch(ctx, &b, workspace.PatchOptions{Raw: raw})
		if err != nil {
			return i, err
		}
		text := b.Bytes()
		if len(text) > limit {
			_, err := w.Write(text[:bytes.LastIndexByte(text[:limit], '\n')+1])
			return i, err
		}
		limit -= len(text)
		if _, err := w.Write(text); err != nil {
			return i, err
		}
	}
	return len(d.Items), nil
}

// tellDigest says how to take just what was shown, and remembers it for an
// apply on the same terminal. stdout is left to the patch.
func (r *Reviewer) tellDigest(sb subject, d *workspace.Diff, o FilterOptions, paths []string) error {
	if len(d.Items) == 0 {
		return nil
	}
	sum := d.Sum()
	if !r.JSON {
		digest := sum.Digest.String()
		if _, err := io.WriteString(r.Stderr, console.Escape("digest "+digest)+"\n"); err != nil {
			return err
		}
		if err := r.Hint("to take just this: " + withPaths(sb.command("apply", " --digest "+digest+o.flags()), paths)); err != nil {
			return err
		}
	}
	return r.rememberShown(sb.ID, sum, o)
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
	Left    workspace.Left    `json:"left"` // how many files are left out
}

func newDiffJSON(name string, d *workspace.Diff) diffJSON {
	return diffJSON{Name: name, Digest: d.Sum().Digest, Since: d.Since, Changes: nonNil(d.Items), Summary: d.Summary(), Left: d.Left}
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
		if d.Items[i].To != "" {
			continue // it is told where it is now
		}
		if err := r.PrintLine(itemText(&d.Items[i])); err != nil {
			return err
		}
	}
	return nil
}

// letter is that of a change, or of a rename, as git has it.
func letter(it *workspace.Item) string {
	if it.From != "" {
		return "R"
	}
	return it.Class.Letter()
}

// pathText is the path of a change; of a rename both.
func pathText(it *workspace.Item) string {
	if it.From != "" {
		return it.From + " -> " + it.Path
	}
	return it.Path
}

// itemText is one line for a change.
func itemText(it *workspace.Item) string {
	text := letter(it) + "  " + pathText(it)
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
	files.Items = slices.DeleteFunc(slices.Clone(d.Items), func(it workspace.Item) bool { return it.Kind == workspace.Dir || it.To != "" })
	var t console.Table
	for i := range files.Items {
		one := files
		one.Items = files.Items[i : i+1]
		var c lineCounter
		if err := one.WritePatch(ctx, &c, workspace.PatchOptions{Raw: true}); err != nil {
			return err
		}
		it := &one.Items[0]
		t.Row(letter(it), pathText(it), statText(it, &c))
	}
	if err := t.Write(r.Stdout); err != nil {
		return err
	}
	sum := files.Summary()
	sum.Held = len(heldItems(d.Items)) // as apply counts them
	return r.PrintLine(summaryText(sum))
}

// statText is how many lines a change adds and takes.
func statText(it *workspace.Item, c *lineCounter) string {
	switch {
	case c.hunks > 0:
		return c.String()
	case it.Was == workspace.Dir:
		return "directory"
	case it.Class == workspace.ModeChanged:
		return "mode"
	case it.From != "" || it.Kind == workspace.File && it.Size == 0:
		return "+0 -0"
	}
	return c.String()
}

func summaryText(s workspace.Summary) string {
	var parts []string
	for _, p := range [...]struct {
		n    int
		what string
	}{
		{s.Added, "added"},
		{s.Renamed, "renamed"},
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
