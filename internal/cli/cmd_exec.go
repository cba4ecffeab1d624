package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/shell"
)

type execOptions struct {
	command   commandFlags
	env       launch.Env
	user, cwd string
}

func (a *app) execCommand() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] NAME [--] COMMAND [ARG...]",
		Short: "Run a command in a sandbox that is there",
		Args:  someArgs(2, "NAME", "COMMAND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.exec(cmd.Context(), o, args[0], args[1:])
		},
		ValidArgsFunction: a.completeName(1),
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.SortFlags = false
	o.command.add(fs)
	fs.StringVar(&o.user, "user", "", "`USER` run as that user (default the sandbox's)")
	fs.StringVar(&o.cwd, "cwd", "", "`DIR` run in that directory (default /workspace where there is one, else home)")
	addEnv(fs, &o.env)
	a.addJSON(fs)
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `A sandbox that ended by itself, such as for want of memory, is started again; one
that was stopped is not. Without -i the command's stdin is empty.
Output goes into files and pipes as it is; onto a terminal it goes with control
characters escaped, unless -t asks for a terminal. With -it, keys such as Ctrl-C
go to the command; else the first Ctrl-C interrupts it, and the second kills it.
With --detach the command's ID is printed; carboy logs NAME ID shows its output.`,
		examples: []string{
			"carboy exec web -- sh -c 'cd /workspace && ls'",
			"carboy exec -it web -- bash",
			"carboy exec -i web -- tar x < src.tar",
		},
		exits: exitDocsCommand[:],
	})
}

func (a *app) exec(ctx context.Context, o execOptions, name string, rest []string) error {
	argv := commandArgs(rest)
	switch {
	case len(argv) == 0:
		return usage.Errorf("exec: COMMAND is missing").WithHint("carboy exec %s -- sh", shell.Word(name))
	case rest[0] != "--" && strings.HasPrefix(rest[0], "-"):
		return usage.Errorf("exec: the flag %s stands after NAME", shell.Word(rest[0])).
			WithHint("put flags before %s", shell.Word(name))
	}
	if err := o.command.check(a, o.command.stdin); err != nil {
		return err
	}
	cmd, err := newCommand(argv, &o.command)
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
	r := newRelay(ctx)
	defer r.stop()
	if o.command.detach {
		command, err := a.detach(r.ctx, svc, name, cmd)
		if err != nil {
			return err
		}
		if a.JSON {
			return a.WriteJSON(map[string]string{"command": command})
		}
		return a.PrintLine(command)
	}
	exit, err := a.attach(r, svc, name, cmd, o.command)
	if err != nil {
		return a.interrupted(r, err)
	}
	return a.reportEnd(exit, cmd, a.limitsOf(ctx, svc, name, exit))
}

// limitsOf returns the limits of a sandbox where the exit is about one.
func (a *app) limitsOf(ctx context.Context, svc *client.Client, name string, exit interface{ GetLimits() []string }) *limitText {
	if len(exit.GetLimits()) == 0 {
		return nil
	}
	sb, err := svc.Get(ctx, name)
	if err != nil {
		return nil // it's gone; the message does without the figure
	}
	return &limitText{limits: sb.Limits}
}
