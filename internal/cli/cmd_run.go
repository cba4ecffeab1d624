package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// finishWait bounds the end of a sandbox; a large workspace takes its time to
// be looked through.
const finishWait = 11 * time.Minute

// undoWait bounds the removal of a sandbox whose command could not be started.
const undoWait = 30 * time.Second

type runOptions struct {
	spec       launch.Spec
	command    relay.Options
	entrypoint *string // nil: the image's; "": none
	cwd        string

	// adjust, if any, changes what is asked for, once it was checked; made is told of the
	// sandbox before anything runs in it, and ended when the command has ended.
	repo   *repository.Repository // of the workspace, where it lies elsewhere
	adjust func(*launch.Request) error
	made   func(*client.Client, *api.Sandbox)
	ended  func()
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] [--] [COMMAND] [ARG...]",
		Short: "Run a command in a sandbox of its own",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.fromProject(cmd.Context(), cmd.Flags(), &o.spec); err != nil {
				return err
			}
			if launch.NeedsCommand(o.spec.Image, o.entrypoint) {
				if err := someArgs(1, "COMMAND")(cmd, args); err != nil {
					return err
				}
			}
			noteTerminal(cmd, &o.command)
			return a.run(cmd.Context(), o, args)
		},
		ValidArgsFunction: completeCommand,
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	o.add(fs, addCommand)
	a.addJSON(fs)
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `The sandbox is removed when the command ends. If the command changed files of a
--workspace, they are kept, and one line on stderr says how to see and take them.
Options of carboy's end at the first word that is none, or at --.

In an --image, the command is added to the image's entry point; without one, the
image's own command is run. A reference that is not here is pulled first.

Stdin is passed on when it is not a terminal, or with -i; with -i=false it is empty. Output goes into files
and pipes as it is; onto a terminal it goes with control characters escaped,
unless -t asks for a terminal. On a terminal, a shell alone, such as bash, has
one as with -it; -t=false keeps it without.

There is no network but what --allow, --policy or --network on give. At the end,
a line on stderr says what was refused or asked for in vain, and which flags would
allow it. carboy net log NAME has the records for a day.

The first Ctrl-C interrupts the command; the second kills it and cleans up.
With --detach the name is printed, and the sandbox stays until carboy rm; with -t too, the
command has a terminal, which carboy attach NAME joins. With -i it is given stdin to its
end first; without, input that waits there is an error.`,
		examples: []string{
			"carboy run --workspace . -- make test",
			"carboy run --workspace . --mount ~/go/pkg/mod:/home/user/go/pkg/mod:ro -- go test ./...",
			"carboy run --user root bash",
			"carboy run --image debian:12 -- cat /etc/os-release",
			"carboy run --allow pypi -- pip download requests",
			"carboy run --memory 512m --timeout 30s -- python3 script.py < input",
		},
		exits: exitDocsCommand[:],
	})
}

// add adds the flags that say what is run, and in what; command adds the command's.
func (o *runOptions) add(fs *pflag.FlagSet, command func(*pflag.FlagSet, *relay.Options)) {
	addSpec(fs, &o.spec)
	fs.Var(entrypointValue{&o.entrypoint}, "entrypoint", "`PROGRAM` run that in place of the image's entry point; '' for none")
	command(fs, &o.command)
	addCwd(fs, &o.cwd)
}

func (a *app) run(ctx context.Context, o runOptions, args []string) error {
	o.command.TakeStdin(a.Console)
	if err := o.command.Check(a.Console); err != nil {
		return err
	}
	cmd, err := relay.NewCommand(args, &o.command)
	if err != nil {
		return err
	}
	cmd.Cwd, cmd.Tag = o.cwd, mainCommand
	o.repo = a.elsewhere(ctx, &o.spec)
	req, err := o.spec.Request(a.LookupEnv, a.Note)
	if err != nil {
		return err
	}
	req.Ephemeral = !o.command.Detach
	if o.adjust != nil {
		if err := o.adjust(req); err != nil {
			return err
		}
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	if o.command.Detach {
		return a.runDetached(ctx, svc, req, cmd, o)
	}
	return a.runAttached(ctx, svc, req, cmd, o)
}

// runAttached runs cmd in a sandbox made by req and ends both.
func (a *app) runAttached(ctx context.Context, svc *client.Client, req *launch.Request, cmd *guestv1.Command, o runOptions) (err error) {
	r := relay.New(ctx, a.Console)
	defer r.Stop()
	sb, err := a.makeWith(r.Ctx, svc, req, o.repo)
	if err != nil {
		if context.Cause(r.Ctx) == relay.ErrInterrupted {
			return relay.ErrInterrupted
		}
		return err
	}
	if o.made != nil {
		o.made(svc, sb)
	}
	release := hold(ctx, svc, sb.ID)
	defer func() {
		ferr := a.finish(ctx, svc, sb)
		release()
		if err == nil {
			err = ferr
		} else if ferr != nil {
			a.PrintError(ferr)
		}
	}()
	a.giveRepository(r.Ctx, svc, sb, o.repo)
	if cmd.Argv, err = launch.Argv(sb, o.entrypoint, cmd.GetArgv()); err != nil {
		return err
	}
	o.command.TakeTerminal(a.Console, cmd.GetArgv())
	if o.ended != nil {
		defer o.ended() // before the sandbox ends
	}
	stop := a.watched(ctx, svc, sb.ID, o.command.TTY)
	end, err := r.Attach(svc, sb.ID, cmd, o.command)
	stop()
	// Before the sandbox ends; all that it did was for this command.
	defer a.tellRefused(ctx, svc, sb.ID, time.Time{}, false)
	if err != nil {
		return r.Interrupted(usage.Named(err, sb.ID, sb.Name))
	}
	return relay.Report(a.Console, end, cmd, &relay.Limits{Figures: sb.Limits, FromFlags: true})
}

// hold keeps an ephemeral sandbox until release is called. What ends it before
// is told by the command that ran in it.
func hold(ctx context.Context, svc *client.Client, id string) (release func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = svc.Hold(ctx, id)
	}()
	return func() {
		cancel()
		<-done
	}
}

// finish ends the sandbox of a run, and tells of changes that it keeps.
func (a *app) finish(ctx context.Context, svc *client.Client, sb *api.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWait)
	defer cancel()
	err := svc.Finish(ctx, sb.ID)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end sandbox %s: %w", sb.Name, err)
	}
	if sb.Workspace.Mode != string(sandbox.WorkspaceCOW) {
		return nil
	}
	kept, err := svc.Get(ctx, sb.ID)
	if err != nil {
		if sandbox.KindOf(err) == sandbox.NotFound {
			return nil
		}
		return fmt.Errorf("look for changes of sandbox %s: %w", sb.Name, err)
	}
	what := "changes"
	if n, ignored, err := a.reviewer().Count(ctx, svc, kept); err == nil {
		what = console.Count(n, "changed file")
		if ignored > 0 {
			what += ", " + console.Count(ignored, "ignored one")
		}
	}
	a.NoteReason("changes", fmt.Sprintf("%s: %s; carboy diff %s shows, carboy apply %s takes", kept.Name, what, kept.Name, kept.Name))
	return nil
}

// runDetached starts cmd in a sandbox made by req and leaves both.
func (a *app) runDetached(ctx context.Context, svc *client.Client, req *launch.Request, cmd *guestv1.Command, o runOptions) error {
	ctx, stop := relay.UntilSignal(ctx)
	defer stop()
	sb, err := a.makeWith(ctx, svc, req, o.repo)
	if err != nil {
		return err
	}
	a.giveRepository(ctx, svc, sb, o.repo)
	var command string
	if cmd.Argv, err = launch.Argv(sb, o.entrypoint, cmd.GetArgv()); err == nil {
		command, err = relay.Detach(ctx, a.Console, svc, sb.ID, cmd, o.command)
	}
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
		defer cancel()
		return errors.Join(usage.Named(err, sb.ID, sb.Name), usage.Named(svc.Remove(undo, sb.ID, true), sb.ID, sb.Name))
	}
	return a.Answer(detachedJSON{Name: sb.Name, ID: sb.ID, Command: command}, sb.Name)
}

// detachedJSON names a command that was left running.
type detachedJSON struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Command string `json:"command"`
}
