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
	return each(a, ids, func(id string) (string, error) {
		return id, svc.RemoveSnapshot(ctx, id)
	}, nil)
}

// completeSnapshot completes the ID of a snapshot, none where no daemon runs
// or it takes too long.
func (a *app) completeSnapshot(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, one := range listed(cmd.Context(), a, Service.Snapshots) {
		if strings.HasPrefix(one.ID, word) {
			names = append(names, one.ID)
		}
	}
	return without(names, args), cobra.ShellCompDirectiveNoFileComp
}

// completeSnapshotFlag completes --snapshot.
func (a *app) completeSnapshotFlag(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	return a.completeSnapshot(cmd, nil, word)
}
