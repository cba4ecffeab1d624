package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/bottle"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// agentWord is a command, and how people call the agent.
type agentWord struct{ name, title string }

// agentCommands are those that stand for carboy agent run NAME.
var agentCommands = []agentWord{
	{"claude", "Claude Code"}, {"codex", "Codex"}, {"gemini", "Gemini CLI"}, {"opencode", "opencode"}, {"aider", "aider"},
}

// isAgent reports whether a command is one of those.
func isAgent(name string) bool {
	return slices.ContainsFunc(agentCommands, func(c agentWord) bool { return c.name == name })
}

func (a *app) agentCommand() *cobra.Command {
	cmd := a.nounCommand("agent", "Run coding agents, and look at what is known of them", "carboy agent ls")
	cmd.AddCommand(a.agentLsCommand(), a.agentShowCommand(), a.agentRunCommand(""))
	return setHelp(cmd, docs{
		long: `An agent is a file that says where its program is, which models it reaches and by
which credential, and how its first questions are answered. Files of yours go into the
directory agents of the configuration: NAME.toml there takes the place of one of that name.`,
		examples: []string{"carboy agent ls", "carboy agent show claude", "carboy agent run fake -- --version"},
		exits:    exitDocsPlain[:],
	})
}

// agentJSON is an agent, and what this machine has of it.
type agentJSON struct {
	*provider.Provider
	Installed *provider.Installation `json:"installed,omitempty"`
	Problem   string                 `json:"problem,omitempty"` // why the program that was found can't be used
	Keys      []string               `json:"keys"`              // secrets for it that were found, by name
}

// agents are all that there are, with what this machine has of each, and what is wrong
// with files that are none.
func (a *app) agents(ctx context.Context) (all []agentJSON, bad []error) {
	list, bad := provider.List(a.env.AgentsDir)
	out := a.outside(a.storedSecrets(ctx), nil)
	all = make([]agentJSON, len(list))
	for i, p := range list {
		all[i] = agentOf(p, out)
	}
	return all, bad
}

func agentOf(p *provider.Provider, out *provider.Outside) agentJSON {
	j := agentJSON{Provider: p, Keys: []string{}}
	var err error
	if j.Installed, err = p.FindProgram(out, bottle.Home("")); err != nil {
		j.Problem = err.Error()
	}
	if g, err := p.Grant(out); err == nil {
		j.Keys = append(j.Keys, g.Names()...)
	}
	return j
}

// storedSecrets are the names of the user's secrets where a daemon runs already.
func (a *app) storedSecrets(ctx context.Context) (names []string) {
	svc, err := a.env.Connect(ctx, false, a.Note)
	if err != nil {
		return nil
	}
	list, err := svc.Secrets(ctx)
	if err != nil {
		return nil
	}
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}

func (a *app) agentLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List agents, their programs and their keys",
		Args:  exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			all, bad := a.agents(ctx)
			show := a.tableAgents
			if a.JSON {
				show = func(all []agentJSON) error { return a.WriteJSON(all) }
			}
			if err := show(all); err != nil {
				return err
			}
			for i, err := range bad {
				if i == len(bad)-1 {
					return err // Main prints it
				}
				a.PrintError(err)
			}
			return nil
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Where its program is on this machine, and which of its keys were found. Values are never
shown. A file of yours with a mistake is told of on stderr, with its line: the others are
listed, and run, all the same, and the exit code is 125.`,
		examples: []string{"carboy agent ls", "carboy agent ls --json"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) tableAgents(all []agentJSON) error {
	var t console.Table
	t.Row("NAME", "PROGRAM", "KEY", "FILE")
	for i := range all {
		j := &all[i]
		program := "what is typed"
		switch {
		case j.Installed != nil:
			program = j.Installed.Path
		case j.Problem != "":
			program = "not to be used: " + j.Problem
		case len(j.Package.Steps) > 0:
			program = "none here: built from its package"
		case j.Program != "":
			program = "none here"
		}
		key := strings.Join(j.Keys, ", ")
		if key == "" && len(j.Access.Ways) > 0 {
			key = "none"
		}
		file := j.From
		if file == "" {
			file = "built in"
		}
		t.Row(j.Name, program, key, file)
	}
	return t.Write(a.Stdout)
}

func (a *app) agentShowCommand() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "show [flags] NAME",
		Short: "Show what is known of an agent",
		Args:  exactArgs("NAME"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			p, err := provider.Find(a.env.AgentsDir, args[0])
			if err != nil {
				return err
			}
			if raw {
				b, err := provider.Text(p)
				if err == nil {
					_, err = console.Output(a.Stdout).Write(b)
				}
				return err
			}
			j := agentOf(p, a.outside(a.storedSecrets(ctx), nil))
			if a.JSON {
				return a.WriteJSON(j)
			}
			return a.showAgent(&j)
		}),
		ValidArgsFunction: a.completeAgent,
	}
	cmd.Flags().BoolVar(&raw, "toml", false, "write its file, to begin one of your own with")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "What is shown of this machine to its sandboxes, what they reach, and where its key comes from.",
		examples: []string{"carboy agent show claude", "carboy agent show claude --toml > ~/.config/carboy/agents/mine.toml"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) showAgent(j *agentJSON) error {
	var t console.Table
	t.Row("agent", j.Name+": "+j.About)
	file := j.From
	if file == "" {
		file = "built in"
	}
	t.Row("file", file)
	if in := j.Installed; in != nil {
		t.Row("program", strings.TrimSpace(in.Path+" "+in.Version))
		for _, s := range in.Shown {
			t.Row("shown", s.Source+" at "+s.Target+", read-only")
		}
		for _, c := range in.Copied {
			t.Row("copied", c.Source+" to "+c.Target)
		}
	} else if j.Program != "" {
		t.Row("program", j.Program+": none here")
	}
	if j.Problem != "" {
		t.Row("problem", j.Problem)
	}
	if len(j.Package.Steps) > 0 {
		t.Row("package", firstOf(j.Install.NPM, j.Install.PyPI)+" "+j.Package.Version)
	}
	for i := range j.Access.Ways {
		w := &j.Access.Ways[i]
		for k := range w.Secrets {
			s := &w.Secrets[k]
			t.Row("key", w.Name+": "+s.Name+" goes to "+strings.TrimSpace(s.Header+" "+s.Scheme))
		}
		rules, err := w.Policy()
		if err != nil {
			return err
		}
		for r := range rules {
			t.Row("reaches", policy.Describe(&rules[r]))
		}
	}
	t.Row("reaches", strings.Join(j.Plain.Presets, ", "))
	t.Row("found", firstOf(strings.Join(j.Keys, ", "), "no key"))
	return t.Write(a.Stdout)
}

// firstOf is the first that is not empty.
func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func (a *app) completeAgent(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	list, _ := provider.List(a.env.AgentsDir) // a file with a mistake is no name to complete
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// ofAgent marks commands that run an agent, whose own flags are easily typed as ours.
const ofAgent = "agent"

// agentRunCommand runs the agent name; "": the one that its first argument names.
func (a *app) agentRunCommand(name string) *cobra.Command {
	var o agentOptions
	use, short := "run [flags] NAME [--] [ARG...]", "Run an agent in a repository, walled in"
	for _, c := range agentCommands {
		if c.name == name {
			use, short = name+" [flags] [--] [ARG...]", "Run "+c.title+" in a repository, walled in"
		}
	}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			which := name
			if which == "" {
				if len(args) == 0 || args[0] == "--" {
					return usage.Errorf("agent run: NAME is missing").WithHint("carboy agent ls")
				}
				which, args = args[0], args[1:]
				if len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "--" {
					return usage.Errorf("agent run: the flag %s stands after NAME", shell.Word(args[0])).
						WithHint("put carboy's flags before %s, and the agent's after --", shell.Word(which))
				}
				if len(args) > 0 && args[0] == "--" {
					args = args[1:]
				}
			}
			return a.runAgent(cmd.Context(), cmd.Flags(), which, o, args)
		},
		Annotations:       map[string]string{ofAgent: name},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	if name == "" {
		cmd.ValidArgsFunction = a.completeAgent
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	addSpec(fs, &o.spec)
	fs.Lookup("memory").Usage = "`SIZE` how much memory, such as 512m or 1g" + isDefault("half of the machine's, at most 8 GiB")
	fs.Lookup("network").Usage = "`NETWORK` off, or on: the public internet" + isDefault("what the agent needs, and --allow and --policy say")
	fs.Lookup("workspace").Usage = "`DIR[:rw|:ro]` work on DIR's repository, not on the current directory's; :rw the tree itself"
	fs.StringVar(&o.resume, "resume", "", "`NAME` go on in that sandbox, with its last conversation")
	fs.BoolVar(&o.ask, "ask", false, "let the agent ask before it acts; otherwise the wall alone is what holds it")
	fs.StringVar(&o.prompt, "prompt-file", "", "`FILE` give it that text besides its own prompt, or as its first task")
	fs.BoolVar(&o.remote, "remote-control", false, "start it so that it can be led from elsewhere, where it can be")
	fs.StringVar(&o.version, "package-version", "", "`VERSION` build that version of its package, whatever is on this machine")
	a.addJSON(fs)
	a.completeFlags(cmd)
	return setHelp(cmd, agentRunDocs(name))
}

func agentRunDocs(name string) docs {
	self, again := "carboy "+name, "carboy "+name+" --resume otter"
	if name == "" {
		self, again = "carboy agent run claude", "carboy agent run --resume otter claude"
	}
	return docs{
		long: `It works on a copy of the repository of the current directory, at /workspace, and
reaches its models and the registries of npm, PyPI and Go; --allow and --policy add to that.
Its program is this machine's, shown read-only; where there is none, a template is built from
its package, once. Its key stays outside: a placeholder stands for it inside.

The sandbox stays. The last lines say what the agent did, and how to see it, take it and
go on. It has half of the machine's memory and at most 8 GiB, unless --memory says so.
ARGs are the agent's own; carboy's flags stand before them. The exit code is the agent's.`,
		examples: []string{self, self + " -- -p 'fix the tests'", again},
		exits:    exitDocsCommand[:],
	}
}
