package cli

import (
	"context"
	"errors"
	"fmt"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// run runs the program until it ends or is left, and says what became of it.
func (g *agentRun) run(ctx context.Context) error {
	g.began = g.Now()
	opts := g.terminal()
	if g.o.detach {
		return g.left(ctx)
	}
	if g.runs != nil {
		return g.joined(ctx, g.runs, false)
	}
	if g.sb.Agent == nil {
		return sandbox.Errorf(sandbox.Internal, "the daemon says nothing of the agent that it set up: it is of another version").WithHint("carboy daemon stop")
	}
	cmd, err := relay.NewCommand(g.sb.Agent.Command, &opts)
	if err != nil {
		return err
	}
	cmd.Cwd, cmd.Tag = g.in.Dir, mainCommand
	if opts.TTY {
		return g.onTerminal(ctx, cmd)
	}
	r := relay.New(ctx, g.Console)
	defer r.Stop()
	stop := g.watched(ctx, g.svc, g.sb.ID, false)
	end, err := r.Attach(g.svc, g.sb.ID, cmd, opts)
	stop()
	if err != nil {
		err = r.Interrupted(usage.Named(err, g.sb.ID, g.sb.Name))
		g.lastLines(ctx, nil)
		return err
	}
	return g.ended(ctx, end, cmd)
}

// onTerminal starts the program so that it outlives this terminal, and joins it.
func (g *agentRun) onTerminal(ctx context.Context, cmd *guestv1.Command) error {
	cmd.OrphanGraceMs = 0
	id, err := relay.Detach(ctx, g.Console, g.svc, g.sb.ID, cmd, relay.Options{TTY: true})
	if err != nil {
		return errors.Join(err, g.undo(ctx))
	}
	p, err := g.commandOf(ctx, g.svc, g.sb, id)
	if err != nil {
		g.lastLines(ctx, nil) // it runs, and can be joined by its sandbox's name
		return err
	}
	return g.joined(ctx, p, true)
}

// left says where the program is, which the daemon has started.
func (g *agentRun) left(ctx context.Context) error {
	p := g.runs
	if p == nil {
		var err error
		if p, err = g.commandOf(ctx, g.svc, g.sb, ""); err != nil {
			return err
		}
	}
	return g.Answer(detachedJSON{Name: g.sb.Name, ID: g.sb.ID, Command: p.GetId()}, g.sb.Name)
}

// joined joins the terminal to the program that runs, and was begun for it or before.
func (g *agentRun) joined(ctx context.Context, p *guestv1.Process, begun bool) error {
	end, err := g.join(ctx, g.svc, g.sb, p, begun)
	switch {
	case err != nil:
		g.lastLines(ctx, nil)
		return err
	case end == nil:
		name := shell.Word(g.sb.Name)
		g.NoteReason("detached", g.p.Name+" goes on: carboy attach "+name+" comes back, carboy stop "+name+" ends it")
		return nil
	}
	return g.ended(ctx, end, p.GetCommand())
}

// ended tells how the program ended, and what it did.
func (g *agentRun) ended(ctx context.Context, end *guestv1.Exit, cmd *guestv1.Command) error {
	err := relay.Report(g.Console, end, cmd, &relay.Limits{Figures: g.sb.Limits, FromFlags: true})
	if end.GetReason() == guestv1.Reason_REASON_NOT_STARTED {
		return errors.Join(err, g.undo(ctx))
	}
	g.lastLines(ctx, end)
	return err
}

// undo removes the sandbox, where it was made for a program that did not start, and the
// homes that were made for it: one that was there before stays.
func (g *agentRun) undo(ctx context.Context) error {
	if g.o.resume != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	if err := g.svc.Remove(ctx, g.sb.ID, true); err != nil {
		name := shell.Word(g.sb.Name)
		if ctx.Err() != nil {
			err = fmt.Errorf("it had not ended after %s", undoWait)
		}
		return sandbox.Errorf(sandbox.KindOf(err), "sandbox %s, which was made for it, is left: %w", name, usage.Named(err, g.sb.ID, g.sb.Name)).
			WithHint("carboy rm -f %s, once there is room for what it wrote", name)
	}
	done := map[string]bool{"": true}
	for _, m := range g.sb.Mounts {
		if done[m.Volume] {
			continue
		}
		done[m.Volume] = true
		if err := g.svc.DiscardVolume(ctx, m.Volume); err != nil && sandbox.KindOf(err) != sandbox.Conflict && sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
	}
	return nil
}

// terminal says how the program's streams are: a screen where there is one and it wants one.
func (g *agentRun) terminal() relay.Options {
	o := relay.Options{Said: true}
	here := console.IsTerminal(g.Stdin)
	switch {
	case here && console.IsTerminal(g.Stdout) && !g.JSON && !g.p.NeedsNoTerminal(g.args):
		o.Stdin, o.TTY = true, true
	case !here && g.Stdin != nil:
		o.Stdin = true
	}
	return o
}

// runCommand is what is typed to run an agent with those flags.
func runCommand(name, flags string) string {
	if isAgent(name) {
		return "carboy " + name + flags
	}
	return "carboy agent run" + flags + " " + shell.Word(name)
}
