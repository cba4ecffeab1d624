package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/changes"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
	"github.com/carboy-sandbox/carboy/internal/uninstall"
)

type uninstallFlags struct {
	yes, dryRun, config, stop bool
}

// uninstallJSON is the answer of uninstall --json.
type uninstallJSON struct {
	uninstall.Survey
	Untaken []untaken `json:"untaken"` // changes that go with their sandboxes
	Removed bool      `json:"removed"` // false: it was a dry run
}

// untaken is a sandbox that changed its view of a directory.
type untaken struct {
	Name      string `json:"name"`
	Workspace string `json:"workspace"`
}

func (a *app) uninstallCommand() *cobra.Command {
	var f uninstallFlags
	cmd := &cobra.Command{
		Use:   "uninstall [flags]",
		Short: "Remove all that carboy keeps for you",
		Args:  exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			return a.uninstall(ctx, f)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&f.yes, "yes", "f", false, "do not ask")
	fs.BoolVarP(&f.dryRun, "dry-run", "n", false, "say what would be removed, and remove nothing")
	fs.BoolVar(&f.config, "config", false, "remove config.json, too")
	fs.BoolVar(&f.stop, "stop", false, "end sandboxes and the daemon, and remove nothing")
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `It says what there is and asks, on a terminal, before it ends your sandboxes and
the daemon and removes them with volumes, images, snapshots, templates, secrets and their
key, keys, records and the cache. Files in carboy's directories that are not carboy's stay.
The program itself goes as it came: apt-get remove carboy, or make uninstall.`,
		examples: []string{"carboy uninstall --dry-run", "carboy uninstall --yes --config"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) uninstall(ctx context.Context, f uninstallFlags) error {
	switch {
	case f.stop && (f.dryRun || f.config):
		return usage.Errorf("uninstall: --stop removes nothing: it goes with neither --dry-run nor --config")
	case a.env.Survey == nil || a.env.Uninstall == nil:
		return sandbox.Errorf(sandbox.Unsupported, "uninstall: this program has no home")
	case f.stop:
		return a.endAll(ctx, UninstallOptions{StopOnly: true})
	}
	s, err := a.env.Survey(ctx, f.config)
	out := uninstallJSON{Survey: s, Untaken: []untaken{}}
	if err == nil && s.Sandboxes > 0 {
		out.Untaken, err = a.untaken(ctx)
	}
	if err != nil {
		return err
	}
	if !a.JSON {
		if err := a.writeSurvey(out); err != nil {
			return err
		}
	}
	if !f.dryRun && !s.Empty() {
		if !f.yes {
			if err := a.confirm(ctx, "uninstall", "carboy uninstall --yes, or --dry-run to look", "remove all of this?"); err != nil {
				return err
			}
		}
		if err := a.endAll(ctx, UninstallOptions{Config: f.config}); err != nil {
			return err
		}
		out.Removed = true
	}
	if a.JSON {
		return a.WriteJSON(out)
	}
	if out.Removed {
		return a.PrintLine("removed")
	}
	return nil
}

// endAll has the daemon leave, and what it kept be ended or removed.
func (a *app) endAll(ctx context.Context, o UninstallOptions) error {
	a.Note("ending sandboxes and the daemon")
	if err := a.daemonStop(ctx, nil); err != nil {
		return err
	}
	return a.env.Uninstall(ctx, o)
}

// untaken asks which sandboxes have changes of a directory. Where it can't be told, a
// note says so: what can't be asked can be removed all the same.
func (a *app) untaken(ctx context.Context) ([]untaken, error) {
	found := []untaken{}
	svc, err := a.service(ctx)
	var list []api.Sandbox
	if err == nil {
		list, err = svc.List(ctx, client.ListOptions{})
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		a.Note("which sandboxes have changes that were not taken can't be told: " + err.Error())
		return found, nil
	}
	for _, sb := range list {
		switch what, err := a.reviewer().Untaken(ctx, svc, &sb); {
		case err != nil:
			a.Note("whether the changes of " + sb.Name + " were taken is not known: " + err.Error())
		case what != changes.AllTaken:
			found = append(found, untaken{sb.Name, sb.Workspace.Source})
		}
	}
	return found, nil
}

func (a *app) writeSurvey(s uninstallJSON) error {
	if s.Empty() {
		if err := a.PrintLine("there is nothing to remove"); err != nil {
			return err
		}
	} else if err := a.PrintLine("to be removed: " + strings.Join(holdings(s.Survey), ", ")); err != nil {
		return err
	}
	var t console.Table
	for _, p := range s.Places {
		size := term.FormatSize(p.Bytes)
		if p.Unseen {
			size = "at least " + size
		}
		t.Row("  "+p.Path, size)
	}
	if err := t.Write(a.Stdout); err != nil {
		return err
	}
	for _, u := range s.Untaken {
		if err := a.PrintLine("not taken: changes of " + u.Workspace + " in " + u.Name); err != nil {
			return err
		}
	}
	for _, path := range s.Left {
		if err := a.PrintLine("stays, as it is not carboy's or not state: " + path); err != nil {
			return err
		}
	}
	return nil
}

// holdings says what a home has, in words.
func holdings(s uninstall.Survey) []string {
	var out []string
	for _, c := range []struct {
		n    int
		noun string
	}{{s.Sandboxes, "sandbox"}, {s.Volumes, "volume"}, {s.Images, "image"}, {s.Snapshots, "snapshot"}} {
		if c.n > 0 {
			out = append(out, console.Count(c.n, c.noun))
		}
	}
	if s.Secrets {
		out = append(out, "secrets")
	}
	return append(out, "records and cache")
}
