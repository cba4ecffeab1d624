package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

type execOptions struct {
	command   relay.Options
	env       launch.Env
	user, cwd string
}

func (a *app) execCommand() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] NAME [[--] COMMAND [ARG...]]",
		Short: "Run a command in a sandbox that is there",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil // a shell, on a terminal
			}
			return someArgs(2, "NAME", "COMMAND")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			noteTerminal(cmd, &o.command)
			return a.exec(cmd.Context(), o, args[0], args[1:])
		},
		ValidArgsFunction: a.completeName(1),
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.SortFlags = false
	addCommand(fs, &o.command)
	fs.StringVar(&o.user, "user", "", "`USER` run as that user (default the sandbox's)")
	addCwd(fs, &o.cwd)
	addEnv(fs, &o.env)
	a.addJSON(fs)
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `A sandbox that ended by itself, such as for want of memory, is started again; one
that was stopped is not.

Stdin is passed on when it is not a terminal, or with -i. In a loop that reads its own
stdin, such as while read, -i=false leaves it to the loop. Output goes into files and
pipes as it is; onto a terminal it goes with control characters escaped, unless -t
asks for a terminal. With -it, keys such as Ctrl-C go to the command; else the first
Ctrl-C interrupts it, and the second kills it.

A shell alone, such as bash, has a terminal on one, as with -it; -t=false keeps it
without. NAME alone, on a terminal, is bash, or sh where there is none.

With --detach the command's ID is printed; carboy logs NAME ID shows its output until the
sandbox stops, which ends the command, too, and
with -t too, carboy attach NAME ID joins its terminal. With -i it is given stdin to its
end first; without, input that waits there is an error.

At the end, a line on stderr says which hosts were refused meanwhile, and what to
type to allow them.`,
		examples: []string{
			"carboy exec web -- sh -c 'cd /workspace && ls'",
			"carboy exec web bash",
			"carboy exec web -- tar x < src.tar",
		},
		exits: exitDocsCommand[:],
	})
}

// anyShell is the best shell that there is.
var anyShell = []string{"sh", "-c", `command -v bash >/dev/null && exec bash; exec "$0"`}

func (a *app) exec(ctx context.Context, o execOptions, name string, rest []string) error {
	argv := relay.Argv(rest)
	if len(rest) == 0 && o.command.TakeShell(a.Console) {
		argv, rest = anyShell, anyShell
	}
	switch {
	case len(argv) == 0:
		return usage.Errorf("exec: COMMAND is missing").WithHint("carboy exec %s bash", shell.Word(name))
	case rest[0] != "--" && strings.HasPrefix(rest[0], "-"):
		return usage.Errorf("exec: the flag %s stands after NAME", shell.Word(rest[0])).
			WithHint("put flags before %s", shell.Word(name))
	}
	o.command.TakeStdin(a.Console)
	if err := o.command.Check(a.Console); err != nil {
		return err
	}
	o.command.TakeTerminal(a.Console, argv)
	cmd, err := relay.NewCommand(argv, &o.command)
	if err != nil {
		return err
	}
	cmd.User, cmd.Cwd = o.user, o.cwd
	if cmd.Env, err = o.env.Collect(a.LookupEnv); err != nil {
		return err
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	r := relay.New(ctx, a.Console)
	defer r.Stop()
	if o.command.Detach {
		command, err := relay.Detach(r.Ctx, a.Console, svc, name, cmd, o.command)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.WriteJSON(map[string]string{"command": command})
		}
		return a.PrintLine(command)
	}
	began := time.Now()
	stop := a.watched(ctx, svc, name, o.command.TTY)
	end, err := r.Attach(svc, name, cmd, o.command)
	stop()
	defer a.tellRefused(ctx, svc, name, began, true)
	if err != nil {
		return r.Interrupted(err)
	}
	return relay.Report(a.Console, end, cmd, a.limitsOf(ctx, svc, name, end))
}

// limitsOf returns the limits of a sandbox where a command ran into one.
func (a *app) limitsOf(ctx context.Context, svc *client.Client, name string, end *guestv1.Exit) *relay.Limits {
	if len(end.GetLimits()) == 0 {
		return nil
	}
	sb, err := svc.Get(ctx, name)
	if err != nil {
		return nil // it's gone; the message does without the figure
	}
	return &relay.Limits{Figures: sb.Limits}
}
