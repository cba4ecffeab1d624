package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (a *app) lsCommand() *cobra.Command {
	var labels []string
	var quiet bool
	cmd := &cobra.Command{
		Use:               "ls [flags]",
		Short:             "List sandboxes, the stopped ones too",
		Args:              exactArgs(),
		RunE:              interruptible(func(ctx context.Context, _ []string) error { return a.ls(ctx, labels, quiet) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringArrayVar(&labels, "label", nil, "`KEY=VALUE` only those with that label")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "names alone, one a line")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "All of yours are listed, oldest first, with the state that each is in.",
		examples: []string{"carboy ls", "carboy stop $(carboy ls -q --label task=42)", "carboy ls --json --label task=42"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) ls(ctx context.Context, labels []string, quiet bool) error {
	if quiet && a.JSON {
		return usage.Errorf("ls: --quiet can't go with --json")
	}
	want, err := launch.ParseLabels(labels)
	if err != nil {
		return err
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	list, err := svc.List(ctx, client.ListOptions{Labels: want})
	if err != nil {
		return err
	}
	if quiet {
		for _, sb := range list {
			if err := a.PrintLine(sb.Name); err != nil {
				return err
			}
		}
		return nil
	}
	return sandboxListing(slices.ContainsFunc(list, func(sb api.Sandbox) bool { return sb.Agent != nil })).show(a, list)
}

// sandboxListing shows sandboxes, with their agents where any has one.
func sandboxListing(agents bool) *listing[api.Sandbox] {
	with := func(columns []string, agent string) []string {
		if agents {
			return slices.Insert(columns, 2, agent)
		}
		return columns
	}
	return &listing[api.Sandbox]{
		columns: with([]string{"NAME", "STATE", "ISOLATION", "IMAGE", "WORKSPACE", "CREATED", "EXPIRES"}, "AGENT"),
		row: func(sb *api.Sandbox, now time.Time) []string {
			return with([]string{
				sb.Name, stateText(sb), sb.Isolation, sb.Image, workspaceText(sb.Workspace),
				console.Ago(sb.CreatedAt, now), console.In(sb.ExpiresAt, now),
			}, agentText(sb.Agent))
		},
	}
}

// agentText is the agent that a sandbox was made for.
func agentText(g *api.Agent) string {
	switch {
	case g == nil:
		return ""
	case g.Name != "":
		return g.Name
	}
	return g.Provider
}

// stateText is a state and, where it says more, how it came about.
func stateText(sb *api.Sandbox) string {
	if sb.Suspended {
		return "paused"
	}
	if sb.DiskBroken != "" {
		return sb.State + " (disk broken)"
	}
	if sb.Held != nil {
		return sb.State + " (held: disk full)"
	}
	if sb.Ended == "" || sb.Ended == string(sandbox.EndStopped) || sb.State == string(sandbox.StateRunning) {
		return sb.State
	}
	return sb.State + " (" + strings.ReplaceAll(sb.Ended, "_", " ") + ")"
}

// workspaceText is a workspace as --workspace takes it.
func workspaceText(w api.Workspace) string {
	switch w.Mode {
	case string(sandbox.WorkspaceReadOnly), string(sandbox.WorkspaceWritable):
		return w.Source + ":" + w.Mode
	case string(sandbox.WorkspaceVolume):
		return "volume " + w.Volume
	}
	return w.Source
}
