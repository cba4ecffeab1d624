package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/manifest"
	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (a *app) manifestCommand() *cobra.Command {
	cmd := a.nounCommand("manifest", "Look at bottles, and at the agents that run in them", "carboy manifest ls")
	cmd.AddCommand(a.manifestLsCommand(), a.manifestShowCommand(), a.manifestCheckCommand(), a.manifestSchemaCommand())
	return setHelp(cmd, docs{
		long: `A bottle says of what a sandbox is made and what may be reached from it, and an agent
who works in one. Both are files in the directories bottles and agents of the configuration;
a repository may have agents in .carboy/agents, which run in bottles of yours.`,
		examples: []string{"carboy manifest check", "carboy manifest show demo"},
		exits:    exitDocsPlain[:],
	})
}

// loadManifest reads the user's files, and with repo those of the repository that the
// working directory is in. The index is there with an error too, which has the mistakes in files.
func (a *app) loadManifest(ctx context.Context, repo bool, files ...string) (*manifest.Index, error) {
	s := manifest.Sources{Config: a.env.ConfigDir, Files: files}
	if repo {
		r, err := repository.Find(ctx, ".")
		if err != nil {
			return &manifest.Index{}, sandbox.Errorf(sandbox.Invalid, "the repository of the current directory: %w", err)
		}
		if r.Is() {
			s.Repository = r.Top
		}
	}
	x, err := manifest.Load(s)
	for _, n := range x.Notes {
		a.NoteReason("manifest", n)
	}
	return x, err
}

func (a *app) manifestLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List bottles and agents, and where they are said",
		Args:  exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			return a.manifestLs(ctx)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Those of the repository that the current directory is in are listed, too. One with a mistake
can't be used, and its line says why; the others can.`,
		examples: []string{"carboy manifest ls", "carboy manifest ls --json"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) manifestLs(ctx context.Context) error {
	x, err := a.loadManifest(ctx, true)
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err // of the repository, and not of a file
	}
	show := a.tableManifest
	if a.JSON {
		show = func(l manifest.Listing) error { return a.WriteJSON(l) }
	}
	if err := show(x.List()); err != nil {
		return err
	}
	return manifest.Told(x.Lost()) // of names that can't be listed
}

func (a *app) tableManifest(l manifest.Listing) error {
	var t console.Table
	t.Row("NAME", "KIND", "SAYS", "FILE")
	for _, b := range l.Bottles {
		says := ""
		if len(b.Extends) > 0 {
			says = "extends " + strings.Join(b.Extends, ", ")
		}
		if b.Error != "" {
			says = "a mistake: " + b.Error
		}
		t.Row(b.Name, "bottle", says, b.At.File)
	}
	for _, g := range l.Agents {
		says := g.Provider + " in " + g.Bottle
		if g.Origin != "user" {
			says += ", of the " + g.Origin
		}
		if g.Error != "" {
			says = "a mistake: " + g.Error
		}
		t.Row(g.Name, "agent", says, g.At.File)
	}
	return t.Write(a.Stdout)
}

func (a *app) manifestShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "show [flags] AGENT",
		Short:             "Show what would be done for an agent, and why",
		Args:              exactArgs("AGENT"),
		RunE:              interruptible(func(ctx context.Context, args []string) error { return a.manifestShow(ctx, args[0]) }),
		ValidArgsFunction: a.completeBottled,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `All of it is decided: the wall, what may be reached, which secrets by their names, which
remotes, whose commits. Each line ends with who says so, and where. Nothing is run. An agent
of yours is taken before one of that name in the repository of the current directory.`,
		examples: []string{"carboy manifest show demo", "carboy manifest show --json demo"},
		exits:    exitDocsPlain[:],
	})
}

// manifestShow looks at what a repository ships only where the agent is none of the user's.
func (a *app) manifestShow(ctx context.Context, agent string) error {
	m, err := a.agentNamed(ctx, agent)
	if err != nil {
		return err
	}
	return a.showPlan(m, agent+"-"+anyone) // what is drawn for a sandbox says nothing here
}

func (a *app) manifestCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [flags] [FILE...]",
		Short: "Look for mistakes in bottles and agents",
		Args:  cobra.ArbitraryArgs,
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.manifestCheck(ctx, args)
		}),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `All files are looked at, those of the repository of the current directory too, and each
agent is held against its bottle. Mistakes are told with file, line and column. A FILE is
looked at beside them, and takes the place of what has its name: it is a bottle's or an
agent's by the directory that it lies in, or else by whether it names a bottle.`,
		examples: []string{"carboy manifest check", "carboy manifest check .carboy/agents/*.md"},
		exits:    exitDocsPlain[:],
	})
}

// checkedJSON is what check --json writes where there is no mistake.
type checkedJSON struct {
	Bottles int `json:"bottles"`
	Agents  int `json:"agents"`
}

func (a *app) manifestCheck(ctx context.Context, files []string) error {
	x, err := a.loadManifest(ctx, true, files...)
	list := manifest.Problems(err)
	if len(list) > 1 {
		for _, e := range list {
			a.NoteReason("mistake", e.Error())
		}
		return sandbox.Errorf(sandbox.Invalid, "manifest check: %d mistakes", len(list))
	}
	if err != nil {
		return manifest.Told(err)
	}
	c := checkedJSON{len(x.Bottles()), len(x.Agents())}
	return a.Answer(c, fmt.Sprintf("%s, %s: no mistakes", console.Count(c.Bottles, "bottle"), console.Count(c.Agents, "agent")))
}

func (a *app) manifestSchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print a JSON schema of bottles and agents, for editors",
		Args:  exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			_, err := console.Output(a.Stdout).Write(manifest.Schema())
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	return setHelp(cmd, docs{
		long: `It is of an object with bottles and agents, as manifest.json has it. $defs has bottle and
agent by themselves, which the front matter of one file is.`,
		examples: []string{"carboy manifest schema > bottles.schema.json"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) completeBottled(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	x, _ := manifest.Load(manifest.Sources{Config: a.env.ConfigDir}) // a file with a mistake is no name to complete
	return x.Agents(), cobra.ShellCompDirectiveNoFileComp
}
