package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/changes"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) stopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "stop [flags] NAME...",
		Short:             "End a sandbox's processes and keep its files",
		Args:              someArgs(1, "NAME"),
		RunE:              a.asking(a.stop),
		ValidArgsFunction: a.completeName(-1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `/workspace is kept, and so are changes of the root file system unless a line on
stderr says otherwise. Commands that were left running end, and what they wrote, as carboy
logs NAME ID shows it, is gone: a line on stderr names them. carboy pause keeps both, where
the wall can. Stopping a stopped one is no error.`,
		examples: []string{"carboy stop web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) stop(ctx context.Context, svc *client.Client, names []string) error {
	return each(a, names, func(name string) (*api.Sandbox, error) {
		ended := leftRunning(ctx, svc, name)
		sb, err := svc.Stop(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(ended) > 0 {
			a.NoteReason("ended", lostText(sb.Name, ended))
		}
		// That processes end is what stop is for.
		lost := slices.DeleteFunc(slices.Clone(sb.Lost), func(s string) bool { return s == "processes" })
		if len(lost) > 0 {
			a.NoteReason("lost", sb.Name+": not kept: "+strings.Join(lost, ", "))
		}
		return sb, nil
	}, nil)
}

func (a *app) pauseCommand() *cobra.Command {
	var filesOnly bool
	cmd := &cobra.Command{
		Use:   "pause [flags] NAME...",
		Short: "Stop a sandbox so that its processes can go on",
		Args:  someArgs(1, "NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, names []string) error {
			return a.pause(ctx, svc, names, api.PauseRequest{FilesOnly: filesOnly})
		}),
		ValidArgsFunction: a.completeName(-1),
	}
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "end the processes, as stop does")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `What the processes have in memory is written to disk, where the wall can: gvisor
can, and a line on stderr says so where one can't. carboy start takes it up.
Connections into the sandbox and out of it end.`,
		examples: []string{"carboy pause web", "carboy start web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) pause(ctx context.Context, svc *client.Client, names []string, req api.PauseRequest) error {
	return each(a, names, func(name string) (*api.Sandbox, error) {
		sb, err := svc.Pause(ctx, name, req)
		if err == nil && !sb.Suspended && !req.FilesOnly {
			a.NoteReason("lost", sb.Name+": its files are kept, its processes are not")
		}
		return sb, err
	}, nil)
}

func (a *app) startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "start [flags] NAME...",
		Short:             "Start a stopped sandbox again",
		Args:              someArgs(1, "NAME"),
		RunE:              a.asking(a.start),
		ValidArgsFunction: a.completeName(-1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "Starting one that runs is no error.",
		examples: []string{"carboy start web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) start(ctx context.Context, svc *client.Client, names []string) error {
	return each(a, names, func(name string) (*api.Sandbox, error) {
		sb, err := svc.Start(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, p := range sb.Published {
			if !p.Open {
				a.NoteReason("published", sb.Name+": "+portText(p))
			}
		}
		return sb, nil
	}, nil)
}

func (a *app) rmCommand() *cobra.Command {
	var force, all bool
	cmd := &cobra.Command{
		Use:   "rm [flags] NAME...",
		Short: "Delete a sandbox and all that it holds",
		Args:  namesOrAll(&all),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, names []string) error {
			if all {
				var err error
				if names, err = a.allToRemove(ctx, svc, force); err != nil || len(names) == 0 {
					return err
				}
			}
			return a.rm(ctx, svc, names, force)
		}),
		ValidArgsFunction: a.completeName(-1),
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "one that runs, or has changes that were not taken, too; with --all: without asking")
	cmd.Flags().BoolVar(&all, "all", false, "all of yours, after a list and a question")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `One that runs, or whose --workspace has changes that were not taken, is left as it is
without -f. Changes of what .gitignore ignores are lost with it and no reason to ask.`,
		examples: []string{"carboy rm web", "carboy rm -f web", "carboy rm --all"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) rm(ctx context.Context, svc *client.Client, names []string, force bool) error {
	return each(a, names, func(name string) (*api.Sandbox, error) {
		sb, err := svc.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		if !force {
			if err := a.checkTaken(ctx, svc, sb); err != nil {
				return nil, err
			}
		}
		if err := svc.Remove(ctx, sb.ID, force); err != nil {
			return nil, usage.Named(err, sb.ID, sb.Name)
		}
		a.reviewer().Forget(sb.ID)
		return sb, nil
	}, nil)
}

// checkTaken refuses to remove a sandbox with changes that were not taken.
func (a *app) checkTaken(ctx context.Context, svc *client.Client, sb *api.Sandbox) error {
	name := shell.Word(sb.Name)
	untaken, err := a.reviewer().Untaken(ctx, svc, sb)
	switch {
	case err != nil:
		return sandbox.Errorf(sandbox.KindOf(err), "sandbox %s: whether its changes were taken is not known: %w", name, err).
			WithHint("to remove it all the same: carboy rm -f %s", name)
	case untaken == changes.Commits:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it has commits that were not taken", name).
			WithHint("carboy fetch %[1]s takes them; to remove it all the same: carboy rm -f %[1]s", name)
	case untaken == changes.Submodules:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: whether the commits of its submodules were taken is not known", name).
			WithHint("push them from inside, or carboy cp %[1]s:/workspace/.git/modules .; to remove it all the same: carboy rm -f %[1]s", name)
	case untaken != changes.AllTaken:
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: it has changes that were not taken", name).
			WithHint("carboy diff %[1]s shows them, carboy apply %[1]s takes them; to remove it all the same: carboy rm -f %[1]s", name)
	}
	return nil
}
