package cli

import (
	"context"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (a *app) openCommand() *cobra.Command {
	var browser bool
	cmd := &cobra.Command{
		Use:   "open [flags] NAME PORT",
		Short: "Print a link by which a browser reaches a port, once",
		Args:  exactArgs("NAME", "PORT"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.open(ctx, svc, args, browser)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().BoolVar(&browser, "browser", false, "have xdg-open open it, too")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `The link works in one browser of yours on this machine, once, within five minutes.
That browser is then let in for twelve hours, or until the sandbox is gone. Each port of
each sandbox has a name of its own, and pages of other origins are refused: for what a
browser shows, this is safer than a port of 127.0.0.1, which shares its cookies with all
that is served there. WebSockets pass.`,
		examples: []string{"carboy open web 5173", "carboy open --browser web 5173"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) open(ctx context.Context, svc *client.Client, args []string, browser bool) error {
	p, err := launch.ParsePublish(args[1])
	if err != nil || p.HostPort != 0 {
		return usage.Errorf("open: %q is not a port", args[1]).WithHint("carboy open NAME 3000")
	}
	link, err := svc.OpenPort(ctx, args[0], p.Port)
	if err != nil {
		return err
	}
	if err := a.Answer(link, link.URL); err != nil || !browser {
		return err
	}
	if err := exec.CommandContext(ctx, "xdg-open", link.URL).Run(); err != nil {
		e := sandbox.Errorf(sandbox.Unsupported, "no browser could be opened: xdg-open failed, or was not found").WithHint("open the link above")
		e.Err = err
		return e
	}
	return nil
}
