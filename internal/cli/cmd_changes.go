package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/internal/cli/changes"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

func (a *app) diffCommand() *cobra.Command {
	var o changes.DiffOptions
	cmd := &cobra.Command{
		Use:   "diff [flags] NAME [PATH...]",
		Short: "Show what a sandbox changed in its workspace",
		Args:  nameThenPaths,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.reviewer().Diff(ctx, o, args[0], changes.Paths(args[1:]))
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addDiffFlags(cmd.Flags(), &o)
	return setHelp(cmd, docs{
		long: `The changes are compared with the directory as it is now; what is the same on
both sides is left out. Without flags they are shown as a unified patch. Each
PATH is relative to the workspace, and stands for what is below it, too.

What the directory's own .gitignore files and repositories ignore is counted in one
line on stderr, and not shown, unless --ignored asks for it, or a PATH is ignored
itself. What git tracks there is never ignored. A GLOB is a pattern as in a .gitignore.
A terminal gets the first MiB of a patch.

A digest of all that was shown goes to stderr: carboy apply --digest takes that, and
nothing that came after.`,
		examples: []string{
			"carboy diff brave-otter-4f2a",
			"carboy diff --names brave-otter-4f2a src",
			"carboy diff --only '*.ts' --exclude 'dist/' brave-otter-4f2a",
			"carboy diff --raw brave-otter-4f2a | git apply --check",
		},
		exits: exitDocsPlain[:],
	})
}

func (a *app) addDiffFlags(fs *pflag.FlagSet, o *changes.DiffOptions) {
	fs.SortFlags = false
	fs.BoolVar(&o.Names, "names", false, "one line for each file: A added, M modified, D deleted, R renamed, X mode, T type")
	fs.BoolVar(&o.Stat, "stat", false, "how many lines changed in each file")
	fs.BoolVar(&o.Raw, "raw", false, "a patch for programs: control characters are not escaped")
	addFilter(fs, &o.Filter)
	a.addJSON(fs)
}

func (a *app) addApplyFlags(fs *pflag.FlagSet, o *changes.ApplyOptions) {
	fs.SortFlags = false
	fs.BoolVarP(&o.Ask, "interactive", "i", false, "ask about each change, on the terminal")
	fs.BoolVar(&o.Force, "force", false, "also overwrite what changed in the directory since; needs PATH, and . is all")
	fs.BoolVar(&o.DryRun, "dry-run", false, "change nothing, and say what would be done")
	addFilter(fs, &o.Filter)
	fs.Var(digestValue{&o.Digest}, "digest", "`VALUE` take the changes only if carboy diff printed this of them")
	a.addJSON(fs)
}

// addFilter adds the flags that leave changes out.
func addFilter(fs *pflag.FlagSet, o *changes.FilterOptions) {
	fs.BoolVar(&o.Ignored, "ignored", false, "also what .gitignore ignores")
	fs.StringArrayVar(&o.Exclude, "exclude", nil, "`GLOB` leave out what it matches; may be repeated")
	fs.StringArrayVar(&o.Only, "only", nil, "`GLOB` leave out what it does not match; may be repeated")
}

// digestValue is the digest of a diff, as a flag.
type digestValue struct{ *workspace.Digest }

// Set reads what carboy diff printed.
func (d digestValue) Set(s string) error {
	if err := d.UnmarshalText([]byte(s)); err != nil || d.IsZero() {
		return errors.New("not a digest: carboy diff prints it, 64 hexadecimal digits")
	}
	return nil
}

// Type names the value in help.
func (d digestValue) Type() string { return "digest" }

// String is empty for none, so that help shows no default.
func (d digestValue) String() string {
	if d.Digest == nil || d.IsZero() {
		return ""
	}
	return d.Digest.String()
}

func (a *app) applyCommand() *cobra.Command {
	var o changes.ApplyOptions
	cmd := &cobra.Command{
		Use:   "apply [flags] NAME [PATH...]",
		Short: "Take a sandbox's changes into the directory",
		Args:  nameThenPaths,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.reviewer().Apply(ctx, o, args[0], changes.Paths(args[1:]))
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addApplyFlags(cmd.Flags(), &o)
	return setHelp(cmd, docs{
		long: `All changes are taken, or those at and below each PATH, which is relative to the
workspace. What was taken goes to stdout. Where a file changed in the directory,
too, since the sandbox got its view of it, nothing is taken at all: name other
paths, or use --force.

What the directory's own .gitignore files and repositories ignore is counted and left
alone, as carboy diff says, unless --ignored asks for it or a PATH is ignored itself.

What the host would execute or follow is held back and listed on stderr: git
hooks and configuration, repositories in the tree, settings of editors, CI and
agents, links that lead out. To take such a file, name it as PATH.

A sandbox that runs may change its files between carboy diff and carboy apply.
With --digest nothing is taken but what that diff showed, of the same PATHs and with the
same --ignored, --exclude and --only. Without,
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

// volumeReviewer shows and takes changes of volumes.
func (a *app) volumeReviewer() *changes.Reviewer {
	r := a.reviewer()
	r.Volumes = true
	return r
}

// reviewer shows and takes changes as the user of this command line.
func (a *app) reviewer() *changes.Reviewer {
	return &changes.Reviewer{Console: a.Console, Connect: a.service, StateDir: a.env.StateDir}
}
