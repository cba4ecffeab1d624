package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/cli/changes"
)

func (a *app) syncCommand() *cobra.Command {
	var o changes.SyncOptions
	cmd := &cobra.Command{
		Use:   "sync [flags] NAME [PATH...]",
		Short: "Bring edits of the directory into a sandbox's view of it",
		Args:  nameThenPaths,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.reviewer().Sync(ctx, o, args[0], changes.Paths(args[1:]))
		}),
		ValidArgsFunction: a.completeName(1),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.Watch, "watch", false, "go on bringing edits as they are made, until Ctrl-C")
	fs.BoolVar(&o.Ignored, "ignored", false, "also what .gitignore ignores")
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `A --workspace DIR is a view of DIR as it was when the sandbox started. sync brings in
what was edited, added or deleted in DIR since, or since the last sync, all or at and
below each PATH. Programs inside that watch files see it happen. What was brought goes
to stdout, and is no change for carboy diff and carboy apply.

A file that changed on both sides is left as it is inside and named, and the exit code
is 125. .git is never brought, and what .gitignore ignores only where --ignored asks for it or
a PATH names it.`,
		examples: []string{
			"carboy sync web",
			"carboy sync --watch web",
			"carboy sync web src .env",
		},
		exits: exitDocsPlain[:],
	})
}
