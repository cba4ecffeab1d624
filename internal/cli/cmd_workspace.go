package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
)

func (a *app) workspaceCommand() *cobra.Command {
	cmd := a.nounCommand("workspace", "Lock a sandbox's workspace while it runs, and unlock it", "carboy workspace lock NAME")
	cmd.AddCommand(a.workspaceLockCommand(), a.workspaceUnlockCommand())
	return setHelp(cmd, docs{
		long: `A workspace that others share, by --workspace DIR:rw or --volume NAME:/workspace, can be made
read-only for what runs in one sandbox, while it runs: then another can work on it undisturbed.`,
		examples: []string{"carboy workspace lock web", "carboy workspace unlock web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) workspaceLockCommand() *cobra.Command {
	var req api.LockRequest
	cmd := &cobra.Command{
		Use:   "lock [flags] NAME",
		Short: "Make a sandbox's workspace read-only for what runs inside",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			res, err := svc.LockWorkspace(ctx, args[0], req)
			if err != nil {
				return err
			}
			for _, w := range res.Ended {
				a.Note(endedWriter(w))
			}
			return a.Answer(res, res.Sandbox.Name)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().BoolVar(&req.EndWriters, "end-writers", false, "end what has a file of it open for writing")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `From then on nothing inside can write to /workspace, until carboy workspace unlock; reading goes
on. That a write fails is tried before the command returns. The lock is kept through stops,
starts and restarts of the daemon.

What has a file of it open for writing, or in its memory, is in the way: it is named, nothing is
changed, and the exit code is 125. --end-writers ends it.

Mounts below /workspace stay as they are. Programs of this machine and other sandboxes are not
bound by the lock.`,
		examples: []string{"carboy workspace lock web", "carboy workspace lock --end-writers web"},
		exits:    exitDocsPlain[:],
	})
}

// endedWriter says what was ended.
func endedWriter(w api.Writer) string {
	return fmt.Sprintf("ended %s (pid %d), which had %s open for writing", w.Program, w.PID, w.Path)
}

func (a *app) workspaceUnlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlock [flags] NAME",
		Short: "Let what runs inside write to the workspace again",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			res, err := svc.UnlockWorkspace(ctx, args[0])
			if err != nil {
				return err
			}
			return a.Answer(res, res.Sandbox.Name)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "One that is not locked stays as it is.",
		examples: []string{"carboy workspace unlock web"},
		exits:    exitDocsPlain[:],
	})
}
