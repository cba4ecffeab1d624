package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/shell"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

type applyOptions struct {
	ask, force, dryRun bool
	digest             digestValue
}

// digestValue is the digest of a diff, as a flag.
type digestValue struct{ workspace.Digest }

// Set reads what carboy diff printed.
func (d *digestValue) Set(s string) error {
	if err := d.UnmarshalText([]byte(s)); err != nil || d.IsZero() {
		return errors.New("not a digest: carboy diff prints it, 64 hexadecimal digits")
	}
	return nil
}

// Type names the value in help.
func (d *digestValue) Type() string { return "digest" }

// String is empty for none, so that help shows no default.
func (d *digestValue) String() string {
	if d.IsZero() {
		return ""
	}
	return d.Digest.String()
}

func (a *app) applyCommand() *cobra.Command {
	var o applyOptions
	cmd := &cobra.Command{
		Use:   "apply [flags] NAME [PATH...]",
		Short: "Take a sandbox's changes into the directory",
		Args:  someArgs(1, "NAME"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.apply(ctx, o, args[0], workspacePaths(args[1:]))
		}),
		ValidArgsFunction: a.completeName(1),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&o.ask, "interactive", "i", false, "ask about each change, on the terminal")
	fs.BoolVar(&o.force, "force", false, "also overwrite what changed in the directory since; needs PATH, and . is all")
	fs.BoolVar(&o.dryRun, "dry-run", false, "change nothing, and say what would be done")
	fs.Var(&o.digest, "digest", "`VALUE` take the changes only if carboy diff printed this of them")
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `All changes are taken, or those at and below each PATH, which is relative to the
workspace. What was taken goes to stdout. Where a file changed in the directory,
too, since the sandbox got its view of it, nothing is taken at all: name other
paths, or use --force.

What the host would execute or follow is held back and listed on stderr: git
hooks and configuration, repositories in the tree, settings of editors, CI and
agents, links that lead out. To take such a file, name it as PATH.

A sandbox that runs may change its files between carboy diff and carboy apply.
With --digest nothing is taken but what that diff showed, of the same PATHs. Without,
apply says what has changed since the last diff on the same terminal, and asks.
What -i shows is what is written.`,
		examples: []string{
			"carboy apply brave-otter-4f2a",
			"carboy apply brave-otter-4f2a src docs/index.md",
			"carboy apply -i brave-otter-4f2a",
		},
		exits: exitDocsPlain[:],
	})
}

func (a *app) apply(ctx context.Context, o applyOptions, name string, paths []string) error {
	switch {
	case o.ask && (!console.IsTerminal(a.Stdin) || !console.IsTerminal(a.Stderr)):
		return usage.Errorf("-i asks on a terminal, and there is none").WithHint("name the paths to take")
	case o.force && len(paths) == 0:
		return usage.Errorf("--force needs the paths that it is for").WithHint("carboy apply --force %s PATH", shell.Word(name))
	}
	svc, sb, err := a.diffable(ctx, name, paths)
	if err != nil {
		return err
	}
	res, sum, err := a.applyChanges(ctx, svc, sb, o, paths)
	if res != nil {
		if werr := a.showApplied(sb, res, sum, o, err); err == nil {
			err = werr
		}
	}
	return withApplyHint(err, sb.Name, res)
}

// applyChanges applies what sb changed, and remembers what it wrote: a later
// apply does not take that for a change of the user's. It returns the digest of
// what there was to apply, zero where that was not read.
func (a *app) applyChanges(ctx context.Context, svc *client.Client, sb *api.Sandbox, o applyOptions, paths []string) (_ *workspace.Result, sum workspace.Digest, _ error) {
	base, err := workspace.OpenBase(sb.Workspace.Source)
	if err != nil {
		return nil, sum, err
	}
	defer func() { _ = base.Close() }()
	marks, err := a.loadMarks(sb.ID)
	if err != nil {
		return nil, sum, err
	}
	var diff *workspace.Diff
	q := &asker{a: a}
	opts := workspace.ApplyOptions{Paths: paths, Allow: paths, Force: o.force, DryRun: o.dryRun, Applied: marks}
	opts.Check = func(d *workspace.Diff) error {
		diff, sum = d, d.Sum().Digest
		if o.digest.IsZero() {
			return a.checkShown(ctx, o, sb.Name, sb.ID, d)
		}
		return checkDigest(o.digest.Digest, sum, sb.Name, paths)
	}
	if o.ask {
		opts.Confirm = func(it workspace.Item) (bool, error) { return q.ask(ctx, &it) }
	}
	stream, err := svc.Changes(ctx, sb.ID, client.ChangesOptions{Content: !o.dryRun, Paths: paths})
	if err != nil {
		return nil, sum, err
	}
	defer func() { _ = stream.Close() }() // Apply has read it to its end, or failed
	res, err := workspace.Apply(ctx, base, stream, opts)
	if res != nil && len(res.Marks) > 0 {
		merr := a.saveMarks(sb.ID, append(marks, res.Marks...))
		if merr == nil {
			merr = a.taken(sb.ID, diff, res.Applied)
		}
		if err == nil {
			err = merr
		}
	}
	return res, sum, err
}

// checkDigest refuses changes that are not those of the digest want.
func checkDigest(want, got workspace.Digest, name string, paths []string) error {
	if got == want {
		return nil
	}
	return sandbox.Errorf(sandbox.Conflict, "apply: the changes are not those of digest %s: something changed, in the sandbox or here, or other paths are named; nothing was changed", want).
		WithHint("look again: %s", withPaths("carboy diff "+shell.Word(name), paths))
}

// withPaths adds paths to a command, each fit for a shell.
func withPaths(command string, paths []string) string {
	for _, p := range paths {
		command += " " + shell.Word(p)
	}
	return command
}

// withApplyHint completes the hint of a conflict with the whole command.
func withApplyHint(err error, name string, res *workspace.Result) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || res == nil || len(res.Conflicts) == 0 {
		return err
	}
	var paths []string
	for _, c := range res.Conflicts[:min(len(res.Conflicts), maxHintPaths)] {
		paths = append(paths, c.Item.Path)
	}
	return e.WithHint("apply other paths, or overwrite: %s", withPaths("carboy apply --force "+shell.Word(name), paths))
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
}

// showApplied writes what was done to stdout, and what was not to stderr.
func (a *app) showApplied(sb *api.Sandbox, res *workspace.Result, sum workspace.Digest, o applyOptions, applyErr error) error {
	if a.JSON {
		return a.WriteJSON(applyJSON{
			Name: sb.Name, DryRun: o.dryRun, Digest: sum, Applied: nonNil(res.Applied), Held: nonNil(res.Held),
			Declined: nonNil(res.Declined), Conflicts: nonNil(res.Conflicts),
		})
	}
	for i := range res.Applied {
		res.Applied[i].Held = "" // it was named, and so not held
		if err := a.PrintLine(itemText(&res.Applied[i])); err != nil {
			return err
		}
	}
	if len(res.Conflicts) > 1 {
		var t console.Table
		for _, c := range res.Conflicts {
			t.Row("conflict:", c.Item.Path, c.Reason)
		}
		if err := t.Write(a.Stderr); err != nil {
			return err
		}
	}
	if len(res.Held) > 0 {
		if err := a.showHeld(sb.Name, res.Held); err != nil {
			return err
		}
	}
	switch {
	case applyErr != nil:
	case o.dryRun:
		a.Note("dry run: nothing was changed")
	case len(res.Applied) == 0 && len(res.Held) == 0 && len(res.Declined) == 0:
		a.Note(sb.Name + ": no changes")
	}
	return nil
}

// maxHintPaths is how many paths a hint names.
const maxHintPaths = 3

func (a *app) showHeld(name string, held []workspace.Item) error {
	a.Note(console.Count(len(held), "change") + " held back:")
	var t console.Table
	var paths []string
	for i := range held {
		t.Row("  "+held[i].Class.Letter(), held[i].Path, held[i].Held)
		if held[i].Kind != workspace.Special && len(paths) < maxHintPaths && len(held[i].Path) <= console.MaxInline {
			paths = append(paths, held[i].Path)
		}
	}
	if err := t.Write(a.Stderr); err != nil {
		return err
	}
	if len(paths) == 0 {
		return nil
	}
	return a.Hint("to take one, name it: " + withPaths("carboy apply "+shell.Word(name), paths))
}
