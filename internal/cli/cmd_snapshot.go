package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := a.nounCommand("snapshot", "Keep what a sandbox wrote, to start others from", "carboy snapshot ls")
	cmd.AddCommand(a.snapshotCreateCommand(), snapshotListing().command(a), a.snapshotRmCommand())
	return setHelp(cmd, docs{
		long: `A snapshot has the files that a sandbox wrote, over its image; --snapshot of run
and create names one. Sandboxes share it, and none changes it.`,
		examples: []string{"carboy snapshot create web", "carboy run --snapshot ID -- make test"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) snapshotCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create [flags] SANDBOX",
		Short: "Make a snapshot of a sandbox, and print its ID",
		Args:  exactArgs("SANDBOX"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.snapshotCreate(ctx, svc, args[0])
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `The sandbox may be running or stopped. A running one stands still while its files
are copied, and goes on. Memory and processes are no part of a snapshot, nor is
what --mount and --workspace show: of a sandbox with --workspace all else is kept, and a
line on stderr says so.`,
		examples: []string{"carboy snapshot create web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) snapshotCreate(ctx context.Context, svc *client.Client, name string) error {
	s, err := svc.Snapshot(ctx, name)
	if err != nil {
		return err
	}
	for _, n := range s.Notes {
		a.NoteReason("left_out", n)
	}
	return a.Answer(s, s.ID)
}

func snapshotListing() *listing[api.Snapshot] {
	return &listing[api.Snapshot]{
		noun:  "snapshot",
		short: "List snapshots",
		long: `All of yours are listed, but for steps of template builds: carboy template gc --dry-run
counts those. What lies below one is not counted in its size.`,
		get:     madeByHand,
		columns: []string{"ID", "IMAGE", "PARENT", "SIZE", "CREATED"},
		row: func(s *api.Snapshot, now time.Time) []string {
			return []string{s.ID, s.Image, s.Parent, term.FormatSize(s.Size), console.Ago(s.CreatedAt, now)}
		},
	}
}

// madeByHand lists snapshots that no template build made.
func madeByHand(svc *client.Client, ctx context.Context) ([]api.Snapshot, error) {
	list, err := svc.Snapshots(ctx)
	return slices.DeleteFunc(list, api.Snapshot.OfBuild), err
}

func (a *app) snapshotRmCommand() *cobra.Command {
	return removal{
		noun:    "snapshot",
		arg:     "ID",
		example: "ID",
		short:   "Remove snapshots",
		long: `No sandbox starts from it any more. Those that did go on, and its files go with
the last of them.`,
		remove:   (*client.Client).RemoveSnapshot,
		complete: a.completeSnapshot,
	}.command(a)
}

// completeSnapshot completes the ID of a snapshot, none where no daemon runs
// or it takes too long.
func (a *app) completeSnapshot(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, one := range listed(cmd.Context(), a, madeByHand) {
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
