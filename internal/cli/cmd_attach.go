package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/bottle"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// mainCommand is the tag of the command that a sandbox was made for.
const mainCommand = bottle.Tag

func (a *app) attachCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach [flags] NAME [COMMAND]",
		Short: "Join this terminal to a command that runs in a sandbox, until Ctrl-P Ctrl-Q",
		Args:  rangeArgs(1, "NAME", "COMMAND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			svc, err := a.service(cmd.Context())
			if err != nil {
				return err
			}
			command := ""
			if len(args) == 2 {
				command = args[1]
			}
			return a.attach(cmd.Context(), svc, args[0], command)
		},
		ValidArgsFunction: a.completeName(1),
	}
	return setHelp(cmd, docs{
		long: `COMMAND is the ID that carboy run or exec printed with -d; without it, the command that the
sandbox was made for, or the only one that runs. What its terminal shows is there, keys go to it,
Ctrl-C too, and its terminal takes the size of this one. Ctrl-P and then Ctrl-Q leave it as it is,
and so does a terminal that is closed: attach again, from anywhere. Nobody has to be quick: Ctrl-P
alone goes to the command after half a second, and Ctrl-Q leaves as long as it is the next key.
Several may be attached at once.
A command without a terminal, or an attach without one, has output alone: what is kept of it, and
what comes.`,
		examples: []string{"carboy run -d -t --name web -- top", "carboy attach web"},
		exits: []exitDoc{
			{"N", "the command's own, where it ended"},
			{"0", "detached, and the command goes on"},
			{"125", "carboy failed, or was used wrongly"},
		},
	})
}

// attach joins the terminal to a command of a sandbox, "" is its main one, and says how that
// ended.
func (a *app) attach(ctx context.Context, svc *client.Client, name, command string) error {
	sb, err := svc.Get(ctx, name)
	if err != nil {
		return err
	}
	if sb.State != string(sandbox.StateRunning) {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is %s: no command runs in it", sb.Name, sb.State).
			WithHint("%s", firstOf(resumeOf(sb), fmt.Sprintf("carboy start %s, then carboy exec -d -t %s -- COMMAND", shell.Word(sb.Name), shell.Word(sb.Name))))
	}
	p, err := a.commandOf(ctx, svc, sb, command)
	if err != nil {
		return err
	}
	end, err := a.join(ctx, svc, sb, p, false)
	switch {
	case err != nil:
		return err
	case end == nil:
		a.Note(fmt.Sprintf("detached, and it goes on: carboy attach %s comes back", shell.Word(sb.Name)))
		return nil
	}
	if p.GetExit() != nil {
		a.Note(fmt.Sprintf("%s has ended before (%d)", said(p), end.GetCode()))
	}
	err = relay.Report(a.Console, end, p.GetCommand(), &relay.Limits{Figures: sb.Limits})
	if g := a.agentIn(svc, sb, p); g != nil {
		g.lastLines(ctx, end)
	}
	return err
}

// join is attach to p, and says nothing. It returns how p ended, and nil where it goes on.
func (a *app) join(ctx context.Context, svc *client.Client, sb *api.Sandbox, p *guestv1.Process, begun bool) (*guestv1.Exit, error) {
	r := relay.New(ctx, a.Console)
	defer r.Stop()
	screen := p.GetCommand().GetTerminal() != nil && console.IsTerminal(a.Stdout)
	defer a.watched(ctx, svc, sb.ID, screen)()
	end, err := r.Join(svc, sb.ID, p, begun)
	if err != nil {
		return nil, r.Interrupted(usage.Named(err, sb.ID, sb.Name))
	}
	return end, nil
}

// comeBack has a sandbox run that may have been stopped, and returns its main command, nil
// where that does not run any more.
func (a *app) comeBack(ctx context.Context, svc *client.Client, name string) (*api.Sandbox, *guestv1.Process, error) {
	sb, err := svc.Get(ctx, name)
	if err == nil && sb.State != string(sandbox.StateRunning) {
		sb, err = svc.Start(ctx, name)
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := a.commandOf(ctx, svc, sb, "")
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		return sb, nil, nil
	case err != nil:
		return nil, nil, err
	case p.GetExit() != nil || p.GetCommand().GetTag() != mainCommand:
		return sb, nil, nil
	}
	return sb, p, nil
}

// said is a command as it was typed, cut short, fit for a terminal.
func said(p *guestv1.Process) string { return saidArgv(p.GetCommand().GetArgv()) }

func saidArgv(argv []string) string {
	const most = 60
	line := []rune(term.Escape(strings.Join(argv, " ")))
	if len(line) > most {
		line = append(line[:most], '…')
	}
	return string(line)
}

// commandOf finds a command of a sandbox that runs by its ID, or the main one where that is
// empty: the one that the sandbox was made for, or else the only one with a terminal, or at all.
func (a *app) commandOf(ctx context.Context, svc *client.Client, sb *api.Sandbox, id string) (*guestv1.Process, error) {
	resp, err := svc.Commands(sb.ID).List(ctx, connect.NewRequest(&guestv1.ListRequest{}))
	if err != nil {
		return nil, relay.RPCError(ctx, err)
	}
	all := resp.Msg.GetProcesses()
	if id != "" {
		i := slices.IndexFunc(all, func(p *guestv1.Process) bool { return p.GetId() == id })
		if i < 0 {
			return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: it has no command %s", sb.Name, shell.Word(id)).WithHint("%s", listedCommands(all))
		}
		return all[i], nil
	}
	runs := func(p *guestv1.Process) bool { return p.GetExit() == nil }
	for _, wanted := range []func(p *guestv1.Process) bool{
		func(p *guestv1.Process) bool { return p.GetCommand().GetTag() == mainCommand && runs(p) },
		func(p *guestv1.Process) bool { return p.GetCommand().GetTerminal() != nil && runs(p) },
		runs,
		func(p *guestv1.Process) bool { return p.GetCommand().GetTag() == mainCommand },
	} {
		found := slices.DeleteFunc(slices.Clone(all), func(p *guestv1.Process) bool { return !wanted(p) })
		// Of several that a sandbox was made for, the newest is the one that was resumed.
		slices.SortFunc(found, func(p, q *guestv1.Process) int { return int(int64(q.GetStartedUnixMs()) - int64(p.GetStartedUnixMs())) })
		switch {
		case len(found) == 1 || len(found) > 1 && found[0].GetCommand().GetTag() == mainCommand:
			return found[0], nil
		case len(found) > 1:
			return nil, sandbox.Errorf(sandbox.Invalid, "sandbox %s: %d commands run in it", sb.Name, len(found)).WithHint("name one: %s", listedCommands(found))
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: no command runs in it", sb.Name).
		WithHint("%s", firstOf(resumeOf(sb), "carboy exec -d -t "+shell.Word(sb.Name)+" -- COMMAND"))
}

// listedCommands is those that run by their IDs, and what they are.
func listedCommands(all []*guestv1.Process) string {
	const most = 8
	var words []string
	for _, p := range all {
		if p.GetExit() == nil && len(words) < most {
			words = append(words, term.Escape(p.GetId())+" ("+said(p)+")")
		}
	}
	if len(words) == 0 {
		return "none runs"
	}
	return strings.Join(words, ", ")
}
