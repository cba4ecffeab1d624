package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/cli/commits"
	"github.com/carboy-sandbox/carboy/internal/quarantine"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func (a *app) fetchCommand() *cobra.Command {
	var o commits.Options
	cmd := &cobra.Command{
		Use:   "fetch [flags] NAME [BRANCH...]",
		Short: "Take a sandbox's commits into the repository, as refs/carboy/NAME/...",
		Args:  someArgs(1, "NAME"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			t := &commits.Taker{Console: a.Console, Connect: a.service, StateDir: a.env.StateDir}
			return t.Fetch(ctx, o, args[0], args[1:])
		}),
		ValidArgsFunction: a.completeName(1),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.Prune, "prune", false, "remove refs of branches and tags that are gone inside")
	fs.Var(sizeValue{&o.MaxSize}, "max-size", "`SIZE` how much may come, packed"+isDefault(term.FormatSize(quarantine.DefaultBytes)))
	fs.Var(sizeValue{&o.MaxObject}, "max-object", "`SIZE` how large a file may be"+isDefault(term.FormatSize(quarantine.DefaultObject)))
	fs.Var(durationValue{&o.Timeout}, "timeout", "`DURATION` give up after that long"+isDefault("10m"))
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `Commits that were made in /workspace come into the repository that it is a view of: each
branch with commits of its own, or each BRANCH (or tag), as refs/carboy/NAME/BRANCH, and tags as
refs/carboy/NAME/tags/TAG. Nothing else of the repository changes: no branch, index, work tree,
configuration or reflog. What came goes to stdout, and what to type to look at it, to
merge it or to pick of it to stderr.

The objects are read by this machine's git behind walls of its own, which refuses what is
not as git makes it, and what is too large or not whole. Then nothing is changed at all. A
branch that was rewritten inside is rewritten here, with a word of what it was.

carboy rm leaves these refs. To remove them:
  git for-each-ref --format='delete %(refname)' refs/carboy/NAME | git update-ref --stdin`,
		examples: []string{
			"carboy fetch brave-otter-4f2a",
			"carboy fetch brave-otter-4f2a fix",
			"carboy fetch --prune brave-otter-4f2a",
		},
		exits: exitDocsPlain[:],
	})
}
