package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := a.nounCommand("snapshot", "Keep what a sandbox wrote, to start others from", "carboy snapshot ls")
	cmd.AddCommand(a.snapshotCreateCommand(), a.snapshotLsCommand(), a.snapshotRmCommand())
	return setHelp(cmd, docs{
		long: `A snapshot has the files that a sandbox wrote, over its image; --snapshot of run
and create names one. Sandboxes share it, and none changes it.`,
		examples: []string{"carboy snapshot create web", "carboy run --snapshot ID -- make test"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) snapshotCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "create [flags] SANDBOX",
		Short:             "Make a snapshot of a sandbox, and print its ID",
		Args:              exactArgs("SANDBOX"),
		RunE:              interruptible(func(ctx context.Context, args []string) error { return a.snapshotCreate(ctx, args[0]) }),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `The sandbox may be running or stopped. A running one stands still while its files
are copied, and goes on. Memory and processes are no part of a snapshot, nor is
what --mount shows. A sandbox with --workspace can't be saved: that is not its own.`,
		examples: []string{"carboy snapshot create web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) snapshotCreate(ctx context.Context, name string) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	s, err := svc.Snapshot(ctx, name)
	if err != nil {
		return err
	}
	for _, n := range s.Notes {
		a.noteReason("left_out", n)
	}
	if a.json {
		return writeJSON(a.env.Stdout, s)
	}
	return a.printLine(s.ID)
}

func (a *app) snapshotLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "ls [flags]",
		Short:             "List snapshots",
		Args:              exactArgs(),
		RunE:              interruptible(func(ctx context.Context, _ []string) error { return a.snapshotLs(ctx) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "All of yours are listed. What lies below one is not counted in its size.",
		examples: []string{"carboy snapshot ls", "carboy snapshot ls --json"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) snapshotLs(ctx context.Context) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	list, err := svc.Snapshots(ctx)
	if err != nil {
		return err
	}
	if a.json {
		if list == nil {
			list = []api.Snapshot{}
		}
		return writeJSON(a.env.Stdout, list)
	}
	now := a.env.Now()
	var t table
	t.row("ID", "IMAGE", "PARENT", "SIZE", "CREATED")
	for _, s := range list {
		parent := s.Parent
		if parent == "" {
			parent = "-"
		}
		t.row(s.ID, s.Image, parent, formatSize(s.Size), ago(s.CreatedAt, now))
	}
	return t.write(a.env.Stdout)
}

func (a *app) snapshotRmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "rm [flags] ID...",
		Short:             "Remove snapshots",
		Args:              someArgs(1, "ID"),
		RunE:              interruptible(a.snapshotRm),
		ValidArgsFunction: a.completeSnapshot,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `No sandbox starts from it any more. Those that did go on, and its files go with
the last of them.`,
		examples: []string{"carboy snapshot rm ID"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) snapshotRm(ctx context.Context, ids []string) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	gone := make([]string, 0, len(ids))
	var failed error
	for _, id := range ids {
		if err := svc.RemoveSnapshot(ctx, id); err != nil {
			if failed != nil {
				printError(a.env.Stderr, failed, a.json)
			}
			failed = err // Main prints the last one
			continue
		}
		gone = append(gone, id)
	}
	if a.json {
		if err := writeJSON(a.env.Stdout, gone); err != nil {
			return err
		}
	}
	return failed
}

// completeSnapshot completes the ID of a snapshot, none where no daemon runs
// or it takes too long.
func (a *app) completeSnapshot(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if a.env.Connect == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
	defer cancel()
	svc, err := a.env.Connect(ctx, false, func(string) {})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := svc.Snapshots(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, s := range list {
		if strings.HasPrefix(s.ID, word) {
			ids = append(ids, s.ID)
		}
	}
	return without(ids, args), cobra.ShellCompDirectiveNoFileComp
}

// completeSnapshotFlag completes --snapshot.
func (a *app) completeSnapshotFlag(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.completeSnapshot(cmd, nil, word)
}
