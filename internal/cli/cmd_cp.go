package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/cli/archive"
)

func (a *app) cpCommand() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "cp [flags] SRC NAME:DST | NAME:SRC DST",
		Short: "Copy files into or out of a sandbox",
		Args:  exactArgs("SRC", "DST"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return (&archive.Copier{Console: a.Console, Connect: a.service, User: user, Waits: a.tellHeld}).Copy(ctx, args[0], args[1])
		}),
		ValidArgsFunction: a.completeCopy,
	}
	cmd.Flags().StringVar(&user, "user", "", "`USER` use that user's rights inside (default the sandbox's)")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `A file goes to DST, or into it where it is a directory. A directory becomes DST
where there is none, and goes into it where there is one; with SRC/. just what is
in it does. With - in the place of SRC or DST a tar archive is read from stdin and
unpacked in DST, or written to stdout.

What comes out of a sandbox is made by you, now, with the modes that it has there
but for set-id bits. Devices, and links that lead out of the copy, are left out.
On this machine no link is followed on the way to SRC or DST, for a sandbox may
have made it, except those of the system's own, such as /tmp. A relative path
inside starts where commands do. Write a local name that looks like NAME:PATH as
./NAME:PATH.`,
		examples: []string{
			"carboy cp ./src web:/workspace/src",
			"carboy cp web:/workspace/out ./out",
			"git archive HEAD | carboy cp - web:/workspace",
		},
		exits: exitDocsPlain[:],
	})
}
