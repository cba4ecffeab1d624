package changes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// ApplyOptions say how changes are taken.
type ApplyOptions struct {
	Ask    bool             // about each, on the terminal
	Force  bool             // overwrite what changed in the directory since
	DryRun bool             // change nothing
	Digest workspace.Digest // of what may be taken; zero: whatever was changed

	Filter FilterOptions
}

// Apply takes what the sandbox name changed at and below paths, and says what was
// taken and what was not.
func (r *Reviewer) Apply(ctx context.Context, o ApplyOptions, name string, paths []string) error {
	switch {
	case o.Ask && (!console.IsTerminal(r.Stdin) || !console.IsTerminal(r.Stderr)):
		return usage.Errorf("-i asks on a terminal, and there is none").WithHint("name the paths to take")
	case o.Force && len(paths) == 0:
		return usage.Errorf("--force needs the paths that it is for").WithHint("%s PATH", subject{Name: name, volume: r.Volumes}.command("apply", " --force"))
	}
	svc, sb, err := r.diffable(ctx, name, o.Filter, paths)
	if err == nil {
		err = checkGit(sb, paths)
	}
	if err != nil {
		return err
	}
	res, diff, err := r.applyChanges(ctx, svc, sb, o, paths)
	if res != nil {
		if werr := r.showApplied(ctx, svc, sb, res, diff, o, err); err == nil {
			err = werr
		}
	}
	return withApplyHint(err, sb, res, o.Filter, paths)
}

// applyChanges applies what sb changed, and remembers what it wrote: a later
// apply does not take that for a change of the user's. It returns what there was to
// apply, nil where that was not read.
func (r *Reviewer) applyChanges(ctx context.Context, svc *client.Client, sb subject, o ApplyOptions, paths []string) (_ *workspace.Result, diff *workspace.Diff, _ error) {
	base, err := workspace.OpenBase(sb.Dir)
	if err != nil {
		return nil, diff, err
	}
	defer func() { _ = base.Close() }()
	if !o.DryRun {
		// Two at once would each forget what the other wrote. Where no lock can be had at all,
		// saveMarks will say why.
		unlock, err := r.lock(marksDir, "apply", sb)
		if sandbox.KindOf(err) == sandbox.Conflict {
			return nil, diff, err
		}
		if err == nil {
			defer unlock()
		}
	}
	what, err := r.compareOptions(ctx, base, sb, o.Filter, paths)
	if err != nil {
		return nil, diff, err
	}
	if !o.DryRun {
		if err := r.finishMarks(sb.ID, what.Applied); err != nil {
			return nil, diff, err
		}
	}
	q := &asker{r: r}
	opts := workspace.ApplyOptions{
		Paths: paths, Filter: what.Filter, Brought: what.Brought, Allow: paths, Force: o.Force, DryRun: o.DryRun, Applied: what.Applied,
	}
	var stream *heldStream
	opts.Still = func() bool { return stream.still() }
	opts.Check = func(d *workspace.Diff) error {
		diff = d
		stream.ended()
		if o.Digest.IsZero() {
			return r.checkShown(ctx, o, sb, d, base)
		}
		return checkDigest(o.Digest, d.Sum().Digest, sb, o.Filter, paths)
	}
	opts.Note = func(marks []workspace.Mark) error { return r.noteMarks(sb.ID, marks) }
	if o.Ask {
		opts.Confirm = func(it workspace.Item) (bool, error) { return q.ask(ctx, &it) }
	}
	req := request(!o.DryRun, paths, what.Filter)
	req.Origins, req.Selves, req.Whole = true, true, !o.DryRun && !sb.volume // it deletes what renamed directories show
	req.Hold = req.Whole && !o.Ask                                           // nothing is renamed then, and an answer takes its time
	body, err := sb.changes(ctx, svc, req)
	if err != nil {
		return nil, diff, err
	}
	stream = &heldStream{ReadCloser: body}
	defer func() { _ = stream.Close() }() // Apply has read it to its end, or failed: the sandbox goes on
	res, err := workspace.Apply(ctx, base, stream, opts)
	if res != nil && len(res.Marks) > 0 {
		merr := r.saveMarks(sb.ID, res.Marks)
		if merr == nil {
			merr = r.taken(sb.ID, diff, res.Applied)
		}
		if err == nil {
			err = merr
		}
	}
	return res, diff, err
}

// checkDigest refuses changes that are not those of the digest want.
func checkDigest(want, got workspace.Digest, sb subject, o FilterOptions, paths []string) error {
	if got == want {
		return nil
	}
	return sandbox.Errorf(sandbox.Conflict, "apply: the changes are not those of digest %s: something changed, in the sandbox or here, or other paths or filters are named; nothing was changed", want).
		WithHint("look again: %s", withPaths(sb.command("diff", o.flags()), paths))
}

// withPaths adds paths to a command, each fit for a shell.
func withPaths(command string, paths []string) string {
	for _, p := range paths {
		command += " " + shell.Word(p)
	}
	return command
}

// withApplyHint completes the hint of a conflict with the whole command: it names the
// paths in conflict, or where those are many all that was to be applied, of f and paths.
func withApplyHint(err error, sb subject, res *workspace.Result, f FilterOptions, paths []string) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || res == nil || len(res.Conflicts) == 0 {
		return err
	}
	var over []string
	for _, c := range res.Conflicts {
		if c.Forceable {
			over = append(over, c.Item.Path)
		}
	}
	what := "overwrite"
	switch {
	case len(over) == 0:
		return e
	case len(over) > maxHintPaths && len(paths) > 0:
		what, over = "overwrite all of them", paths
	case len(over) > maxHintPaths:
		what, over = "overwrite all of them", []string{"."}
	}
	return e.WithHint("apply other paths, or %s: %s", what, withPaths(sb.command("apply", " --force"+f.flags()), over))
}

// applyJSON is the answer of apply --json.
type applyJSON struct {
	Name      string              `json:"name"`
	DryRun    bool                `json:"dry_run"`
	Digest    workspace.Digest    `json:"digest,omitzero"` // of what there was to apply
	Applied   []workspace.Item    `json:"applied"`         // or would be, in a dry run
	Held      []workspace.Item    `json:"held"`
	Declined  []workspace.Item    `json:"declined"`
	Conflicts []workspace.Outcome `json:"conflicts"`
	Left      workspace.Left      `json:"left"` // how many files are left out
}

// showApplied writes what was done to stdout, and what was not to stderr.
func (r *Reviewer) showApplied(ctx context.Context, svc *client.Client, sb subject, res *workspace.Result, diff *workspace.Diff, o ApplyOptions, applyErr error) error {
	var sum workspace.Digest
	var left workspace.Left
	if diff != nil {
		sum, left = diff.Sum().Digest, diff.Left
	}
	if r.JSON {
		return r.WriteJSON(applyJSON{
			Name: sb.Name, DryRun: o.DryRun, Digest: sum, Applied: nonNil(res.Applied), Held: nonNil(res.Held),
			Declined: nonNil(res.Declined), Conflicts: nonNil(res.Conflicts), Left: left,
		})
	}
	for i := range res.Applied {
		res.Applied[i].Held = "" // it was named, and so not held
		if err := r.PrintLine(itemText(&res.Applied[i])); err != nil {
			return err
		}
	}
	if len(res.Conflicts) > 1 {
		var t console.Table
		for _, c := range res.Conflicts {
			t.Row("conflict:", c.Item.Path, c.Reason)
		}
		if err := t.Write(r.Stderr); err != nil {
			return err
		}
	}
	if len(res.Held) > 0 {
		if err := r.showHeld(ctx, svc, sb, res.Held); err != nil {
			return err
		}
	}
	if err := r.tellLeft(left, "takes"); err != nil {
		return err
	}
	switch {
	case applyErr != nil:
	case o.DryRun:
		r.Note("dry run: nothing was changed")
	case len(res.Applied) == 0 && len(res.Held) == 0 && len(res.Declined) == 0:
		r.Note(sb.Name + ": no changes")
	}
	return nil
}

// maxHintPaths is how many paths a hint names.
const maxHintPaths = 3

// showHeld says what was held back; the files in which git keeps commits are one line, as
// of a diff.
func (r *Reviewer) showHeld(ctx context.Context, svc *client.Client, sb subject, held []workspace.Item) error {
	kept := gitKeeps(sb)
	var t console.Table
	var paths []string
	var committed gitFiles
	named := heldItems(slices.DeleteFunc(slices.Clone(held), func(it workspace.Item) bool { return kept(it.Path) }))
	for i := range held {
		if kept(held[i].Path) {
			committed.add(&held[i])
		}
	}
	for i := range named {
		t.Row("  "+named[i].Class.Letter(), named[i].Path, named[i].Held)
		for _, p := range []string{named[i].Path, named[i].With} {
			if p != "" && named[i].Nameable() && len(paths) < maxHintPaths && len(p) <= console.MaxInline && !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	if len(named) > 0 {
		r.Note(console.Count(len(named), "change") + " held back:")
		if err := t.Write(r.Stderr); err != nil {
			return err
		}
	}
	if err := r.tellCommits(ctx, svc, sb, committed); err != nil || len(paths) == 0 {
		return err
	}
	return r.Hint("to take one, name it: " + withPaths(sb.command("apply", ""), paths))
}

// checkGit refuses to put files into the place of a .git that leads elsewhere, as that of a
// linked worktree does: git would find none of its objects there.
func checkGit(sb subject, paths []string) error {
	fi, err := os.Lstat(filepath.Join(sb.Dir, ".git"))
	if err != nil || fi.IsDir() {
		return nil
	}
	for _, p := range paths {
		if p == ".git" || strings.HasPrefix(p, ".git/") {
			return sandbox.Errorf(sandbox.Conflict, "apply %s: .git is a file here, which leads to the repository's own directory; the sandbox has another one in its place", shell.Word(p)).
				WithHint("carboy fetch %s takes the commits", shell.Word(sb.Name))
		}
	}
	return nil
}
