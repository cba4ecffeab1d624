package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
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
stderr says otherwise. Stopping a stopped one is no error.`,
		examples: []string{"carboy stop web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) stop(ctx context.Context, svc *client.Client, names []string) error {
	return each(a, names, func(name string) (*api.Sandbox, error) {
		sb, err := svc.Stop(ctx, name)
		if err != nil {
			return nil, err
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
	return each(a, names, func(name string) (*api.Sandbox, error) { return svc.Start(ctx, name) }, nil)
}

func (a *app) rmCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm [flags] NAME...",
		Short: "Delete a sandbox and all that it holds",
		Args:  someArgs(1, "NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, names []string) error {
			return a.rm(ctx, svc, names, force)
		}),
		ValidArgsFunction: a.completeName(-1),
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "one that runs, too")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "Changes that were not applied are lost.",
		examples: []string{"carboy rm web", "carboy rm -f web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) rm(ctx context.Context, svc *client.Client, names []string, force bool) error {
	return each(a, names, func(name string) (*api.Sandbox, error) {
		sb, err := svc.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := svc.Remove(ctx, sb.ID, force); err != nil {
			return nil, err
		}
		a.reviewer().Forget(sb.ID)
		return sb, nil
	}, nil)
}
