package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func (a *app) templateLogsCommand() *cobra.Command {
	var build string
	cmd := &cobra.Command{
		Use:   "logs [flags] NAME",
		Short: "Show what a template's build said",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.templateLogs(ctx, svc, args[0], build)
		}),
		ValidArgsFunction: a.completeTemplate(1),
	}
	cmd.Flags().StringVar(&build, "build", "", "`ID` the build of that ID, instead of the newest")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long:     "What a build printed is escaped, and kept up to 4 MiB.",
		examples: []string{"carboy template logs web", "carboy template logs --json web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) templateLogs(ctx context.Context, svc *client.Client, name, build string) error {
	if build == "" {
		t, err := svc.Template(ctx, name)
		if err != nil {
			return err
		}
		if len(t.Builds) == 0 {
			return sandbox.Errorf(sandbox.NotFound, "template %s: it has no build", name).WithHint("carboy template build --name %s DIR", shell.Word(name))
		}
		build = t.Builds[0].BuildID
	}
	all := []api.BuildLog{}
	for {
		st, err := svc.BuildStatus(ctx, api.BuildRef{TemplateID: name, BuildID: build}, len(all))
		if err != nil {
			return err
		}
		if len(st.LogEntries) == 0 {
			break
		}
		all = append(all, st.LogEntries...)
	}
	if a.JSON {
		return a.WriteJSON(all)
	}
	for _, e := range all {
		if err := a.PrintLine(e.Message); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) templateTagCommand() *cobra.Command {
	var remove bool
	cmd := &cobra.Command{
		Use:   "tag [flags] NAME[:TAG] TAG...",
		Short: "Have tags lead to a build",
		Args:  someArgs(2, "NAME", "TAG"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.templateTag(ctx, svc, args[0], args[1:], remove)
		}),
		ValidArgsFunction: a.completeTemplate(1),
	}
	cmd.Flags().BoolVar(&remove, "remove", false, "take the tags away instead")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `The tags lead to the build that NAME:TAG leads to, or NAME with its tag default,
whatever they led to before. The tag default can't be taken away.`,
		examples: []string{"carboy template tag web:v2 default stable", "carboy template tag --remove web v1"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) templateTag(ctx context.Context, svc *client.Client, name string, tags []string, remove bool) error {
	if remove {
		if err := svc.UntagTemplate(ctx, name, tags); err != nil || !a.JSON {
			return err
		}
		return a.WriteJSON(tags)
	}
	got, err := svc.TagTemplate(ctx, name, tags)
	if err != nil || !a.JSON {
		return err
	}
	return a.WriteJSON(got)
}

func (a *app) templatePublishCommand(public bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "publish [flags] NAME...",
		Short: "Let other owners use templates",
		Args:  someArgs(1, "NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, names []string) error {
			return a.templatePublish(ctx, svc, names, public)
		}),
		ValidArgsFunction: a.completeTemplate(-1),
	}
	text := docs{
		long:     "The name by which they do, OWNER/NAME, is printed. They see neither its builds nor their logs.",
		examples: []string{"carboy template publish web"},
		exits:    exitDocsPlain[:],
	}
	if !public {
		cmd.Use, cmd.Short = "unpublish [flags] NAME...", "Keep templates to yourself again"
		text.long, text.examples = "What others made from them meanwhile goes on.", []string{"carboy template unpublish web"}
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, text)
}

func (a *app) templatePublish(ctx context.Context, svc *client.Client, names []string, public bool) error {
	all := []string{}
	for _, name := range names {
		known, err := svc.PublishTemplate(ctx, name, public)
		if err != nil {
			return err
		}
		all = append(all, known...)
	}
	if a.JSON {
		return a.WriteJSON(all)
	}
	if !public {
		return nil
	}
	return a.PrintLine(strings.Join(all, "\n"))
}

func (a *app) templateGCCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:               "gc [flags]",
		Short:             "Drop what is kept for later builds",
		Args:              exactArgs(),
		RunE:              a.asking(func(ctx context.Context, svc *client.Client, _ []string) error { return a.templateGC(ctx, svc, dry) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "drop nothing, and tell what would be")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Steps of earlier builds and the files that were sent for them go: the next build
runs every step. What a template's tag leads to stays. Nothing goes while you have
a build under way.`,
		examples: []string{"carboy template gc --dry-run", "carboy template gc"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) templateGC(ctx context.Context, svc *client.Client, dry bool) error {
	verb, f := "dropped ", svc.CollectTemplates
	if dry {
		verb, f = "to be dropped: ", svc.TemplateCache
	}
	u, err := f(ctx)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(u)
	}
	if dry && u.Droppable != nil { // what templates need is kept
		u = u.Droppable
	}
	return a.PrintLine(verb + console.Count(u.Steps, "step") + ", " + console.Count(u.Snapshots, "snapshot") + " of " + term.FormatSize(u.Size) +
		", " + console.Count(u.Files, "archive") + " of " + term.FormatSize(u.FileSize))
}

// completeTemplate completes a template's name.
func (a *app) completeTemplate(n int) completer {
	return upTo(n, cobra.ShellCompDirectiveNoFileComp, a.templateNames)
}

// templateNames returns the names of the caller's templates.
func (a *app) templateNames(ctx context.Context) (names []string) {
	for _, one := range listed(ctx, a, (*client.Client).Templates) {
		names = append(names, one.Aliases...)
	}
	return names
}
