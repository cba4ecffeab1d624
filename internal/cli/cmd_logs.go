package cli

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [flags] NAME [ID]",
		Short: "Show what happened to a sandbox, or a command's output",
		Args:  rangeArgs(1, "NAME", "ID"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			if len(args) == 2 {
				return a.commandLogs(ctx, args[0], args[1], follow)
			}
			return a.logs(ctx, args[0], follow)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as more happens, until Ctrl-C or the end")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `With NAME alone, the events of the sandbox, and while it runs below them the output of the
command that carboy run --detach made it for. With the ID of a command that
carboy exec --detach started, what is kept of its stdout and stderr, with control
characters escaped, and on stderr how it ended. Of each the first 64 KiB and the last MiB
are kept, with a note between them of how much is left out; of a terminal the last MiB.
--json writes an array of events; with -f, one event a line.`,
		examples: []string{"carboy logs web", "carboy logs -f web 3f0c9a4471d2e86b"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) logs(ctx context.Context, name string, follow bool) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	var main *guestv1.Process
	if !a.JSON {
		main = a.madeFor(ctx, svc, name)
	}
	if err := a.events(ctx, svc, name, follow && main == nil); err != nil || main == nil {
		return err
	}
	if err := a.PrintLine("output of " + main.GetId() + ": " + said(main)); err != nil {
		return err
	}
	return lostCommand(name, relay.Logs(ctx, a.Console, svc, name, main.GetId(), follow))
}

// madeFor is the command that a sandbox which runs was made for and that was left running,
// unless it has a terminal, whose output is for one; nil where there is none, or where the guest does not say.
func (a *app) madeFor(ctx context.Context, svc *client.Client, name string) *guestv1.Process {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	sb, err := svc.Get(ctx, name)
	if err != nil || sb.State != string(sandbox.StateRunning) {
		return nil // to ask for its commands may start it
	}
	resp, err := svc.Commands(sb.ID).List(ctx, connect.NewRequest(&guestv1.ListRequest{}))
	if err != nil {
		a.Note(sb.Name + ": its commands are not known: " + relay.RPCError(ctx, err).Error())
		return nil
	}
	var main *guestv1.Process
	for _, p := range resp.Msg.GetProcesses() {
		c := p.GetCommand()
		if c.GetTag() == mainCommand && c.GetOrphanGraceMs() == 0 && c.GetTerminal() == nil &&
			(main == nil || p.GetStartedUnixMs() > main.GetStartedUnixMs()) {
			main = p
		}
	}
	return main
}

// events prints what happened to a sandbox.
func (a *app) events(ctx context.Context, svc *client.Client, name string, follow bool) error {
	all := []api.Event{}
	var err error
	for ev, failed := range svc.Events(ctx, name, follow) {
		if failed != nil {
			return failed
		}
		switch {
		case a.JSON && follow:
			err = console.WriteJSONLine(a.Stdout, ev)
		case a.JSON:
			all = append(all, ev)
		default:
			err = a.PrintLine(fmt.Sprintf("%s  %-9s  %s", ev.Time.Local().Format(time.DateTime), ev.Type, ev.Message))
		}
		if err != nil {
			return err
		}
	}
	if a.JSON && !follow {
		return a.WriteJSON(all)
	}
	return nil
}

func (a *app) commandLogs(ctx context.Context, name, id string, follow bool) error {
	if a.JSON {
		return usage.Errorf("logs: --json can't go with ID: output is bytes")
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	return lostCommand(name, relay.Logs(ctx, a.Console, svc, name, id, follow))
}
