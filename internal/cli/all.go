package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/changes"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// namesOrAll wants names, or none where all is set.
func namesOrAll(all *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if !*all {
			return someArgs(1, "NAME")(cmd, args)
		}
		if len(args) > 0 {
			return usage.Errorf("%s--all can't go with names", where(cmd)).WithHint("leave out one of the two")
		}
		return nil
	}
}

// own lists the sandboxes of the user of this command line: root sees others'
// too. Those that Carboy keeps for itself are not among them.
func own(ctx context.Context, svc *client.Client) ([]api.Sandbox, error) {
	list, err := svc.List(ctx, client.ListOptions{})
	return slices.DeleteFunc(list, func(sb api.Sandbox) bool {
		reserved := func(k string) bool { return strings.HasPrefix(k, sandbox.ReservedLabels) }
		return sb.Owner != me() || slices.ContainsFunc(slices.Collect(maps.Keys(sb.Labels)), reserved)
	}), err
}

// me is how the daemon calls the user of this command line.
func me() string { return fmt.Sprintf("uid:%d", os.Geteuid()) }

// allToRemove lists what rm --all removes, and asks. One that runs, or has changes that
// were not taken, is removed by force alone, which asks nothing.
func (a *app) allToRemove(ctx context.Context, svc *client.Client, force bool) (ids []string, err error) {
	list, err := own(ctx, svc)
	if err != nil {
		return nil, err
	}
	var t console.Table
	t.Row("NAME", "STATE", "WORKSPACE")
	for i := range list {
		sb := &list[i]
		if force {
			ids = append(ids, sb.ID)
			continue
		}
		if why := a.whyKept(ctx, svc, sb); why != "" {
			a.NoteReason("kept", sb.Name+": kept, "+why+": carboy rm --all -f removes it too")
			continue
		}
		ids = append(ids, sb.ID)
		t.Row(sb.Name, stateText(sb), workspaceText(sb.Workspace))
	}
	if force || len(ids) == 0 {
		return ids, nil
	}
	if err := t.Write(a.Stderr); err != nil {
		return nil, err
	}
	return ids, a.confirm(ctx, "rm --all", "carboy rm --all -f", fmt.Sprintf("remove %s and all that they hold?", console.Count(len(ids), "sandbox")))
}

// whyKept is why a sandbox is not removed without force; "" where it is.
func (a *app) whyKept(ctx context.Context, svc *client.Client, sb *api.Sandbox) string {
	if sb.State == string(sandbox.StateRunning) {
		return "it is running"
	}
	untaken, err := a.reviewer().Untaken(ctx, svc, sb)
	switch {
	case err != nil:
		return fmt.Sprintf("whether its changes were taken is not known (%v)", err)
	case untaken != changes.AllTaken:
		return fmt.Sprintf("it has %s that were not taken", untaken)
	}
	return ""
}

// confirm asks for a yes. Without a terminal to ask on it is an error, which names
// the command that does not ask.
func (a *app) confirm(ctx context.Context, what, unasked, question string) error {
	if !a.CanAsk() {
		return usage.Errorf("%s: it asks first, and there is no terminal to ask on", what).WithHint("%s", unasked)
	}
	if yes, err := a.Yes(ctx, question); err != nil || yes {
		return err
	}
	return sandbox.Errorf(sandbox.Denied, "no yes: left without a change")
}
