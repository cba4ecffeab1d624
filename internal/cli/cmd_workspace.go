package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (a *app) workspaceCommand() *cobra.Command {
	cmd := a.nounCommand("workspace", "Lock a sandbox's workspace while it runs, and unlock it", "carboy workspace lock NAME")
	cmd.AddCommand(a.workspaceLockCommand(), a.workspaceUnlockCommand())
	return setHelp(cmd, docs{
		long: `A workspace that others share, by --workspace DIR:rw or --volume NAME:/workspace, can be made
read-only for what runs in one sandbox, while it runs: then another can work on it undisturbed.
Directories of it can be, apart.`,
		examples: []string{"carboy workspace lock web", "carboy workspace unlock web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) workspaceLockCommand() *cobra.Command {
	var req api.LockRequest
	cmd := &cobra.Command{
		Use:   "lock [flags] NAME [PATH ...]",
		Short: "Make a sandbox's workspace, or directories of it, read-only for what runs inside",
		Args:  nameThenPaths,
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			req.Paths = args[1:]
			res, err := svc.LockWorkspace(ctx, args[0], req)
			if err != nil {
				return err
			}
			for _, h := range res.Ended {
				a.Note("ended " + sandbox.Writer{PID: h.PID, Program: h.Program, Path: h.Path, How: guest.How(h.How)}.String())
			}
			return a.Answer(res, res.Sandbox.Name)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().BoolVar(&req.EndWriters, "end-writers", false, "end what could go on writing")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `From then on nothing inside can write to /workspace, or to the directories of it that are named, until
carboy workspace unlock; reading goes on. That a write fails is tried before the command returns.
The lock is kept through stops, starts and restarts of the daemon.

What could go on writing is in the way: it is named, nothing is changed, and the exit code is 125.
--end-writers ends it. For all of the workspace that is what has a file of it open for writing, or in its memory. For
a directory it is also what has something there open to read, works or has its root there, or was sent a
descriptor that it has not taken yet; and a file with another name outside of the directory.

A directory that is locked can't be renamed or removed inside until it is unlocked, and nothing can
be moved out of it or into it. Mounts below /workspace stay as they are. Programs of this machine and
other sandboxes are not bound by the lock.`,
		examples: []string{"carboy workspace lock web", "carboy workspace lock web src docs", "carboy workspace lock --end-writers web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) workspaceUnlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlock [flags] NAME [PATH ...]",
		Short: "Let what runs inside write to the workspace, or directories of it, again",
		Args:  nameThenPaths,
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			res, err := svc.UnlockWorkspace(ctx, args[0], api.UnlockRequest{Paths: args[1:]})
			if err != nil {
				return err
			}
			return a.Answer(res, res.Sandbox.Name)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Without a PATH all of it can be written to. A directory of a workspace that is locked can be unlocked by
itself: then nothing inside can write anywhere else there. What is not locked stays as it is.`,
		examples: []string{"carboy workspace unlock web", "carboy workspace unlock web src"},
		exits:    exitDocsPlain[:],
	})
}
