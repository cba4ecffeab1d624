package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/near"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// rootCommand makes the tree of commands, of which those that the command line does not
// name are left out. It only allocates: nothing is read or connected to before a command
// runs.
func (a *app) rootCommand() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:           "carboy COMMAND [ARG...]",
		Short:         "Carboy gives an AI agent a machine of its own",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case version && len(args) == 0:
				return interruptible(a.version)(cmd, nil)
			case len(args) == 0:
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	setHelp(root, docs{
		long: `Commands run walled in: no network but what you allow, none of your files but the
workspace that you name, and that as a copy-on-write view. carboy diff shows what changed in
it, and carboy apply takes what you want.`,
		examples: []string{
			`carboy run -- python3 -c 'print("hello")'`,
			`carboy run --workspace . -- make test`,
		},
		exits: exitDocsCommand[:],
	})
	root.Flags().BoolVarP(&version, "version", "v", false, "as carboy version")
	_ = root.Flags().MarkHidden("version") // it was made on the line above
	root.SetFlagErrorFunc(flagError)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	for _, v := range a.wanted() {
		root.AddCommand(v.make(a))
	}
	root.SetHelpCommand(helpCommand())
	hideHelpFlags(root)
	refuseEmpty(root)
	return root
}

// verb is one of carboy's own commands.
type verb struct {
	name string
	make func(*app) *cobra.Command
}

// verbs are all of them.
func verbs() []verb {
	return []verb{
		agentVerb("claude"), agentVerb("codex"), agentVerb("gemini"), agentVerb("opencode"), agentVerb("aider"),
		{"agent", (*app).agentCommand},
		{"up", (*app).upCommand},
		{"init", (*app).initCommand},
		{"run", (*app).runCommand},
		{"create", (*app).createCommand},
		{"exec", (*app).execCommand},
		{"cp", (*app).cpCommand},
		{"forward", (*app).forwardCommand},
		{"open", (*app).openCommand},
		{"offer", (*app).offerCommand},
		{"shell", (*app).shellCommand},
		{"service", (*app).serviceCommand},
		{"ls", (*app).lsCommand},
		{"inspect", (*app).inspectCommand},
		{"logs", (*app).logsCommand},
		{"attach", (*app).attachCommand},
		{"ps", (*app).psCommand},
		{"wait", (*app).waitCommand},
		{"kill", (*app).killCommand},
		{"stats", (*app).statsCommand},
		{"set", (*app).setCommand},
		{"stop", (*app).stopCommand},
		{"pause", (*app).pauseCommand},
		{"start", (*app).startCommand},
		{"rm", (*app).rmCommand},
		{"diff", (*app).diffCommand},
		{"apply", (*app).applyCommand},
		{"fetch", (*app).fetchCommand},
		{"sync", (*app).syncCommand},
		{"image", (*app).imageCommand},
		{"snapshot", (*app).snapshotCommand},
		{"template", (*app).templateCommand},
		{"project", (*app).projectCommand},
		{"manifest", (*app).manifestCommand},
		{"net", (*app).netCommand},
		{"policy", (*app).policyCommand},
		{"approve", (*app).approveCommand},
		{"git", (*app).gitCommand},
		{"secret", (*app).secretCommand},
		{"key", (*app).keyCommand},
		{"volume", (*app).volumeCommand},
		{"workspace", (*app).workspaceCommand},
		{"pod", (*app).podCommand},
		{"disk", (*app).diskCommand},
		{"df", (*app).dfCommand},
		{"prune", (*app).pruneCommand},
		{"session", (*app).sessionCommand},
		{"langbot", (*app).langbotCommand},
		{"serve", (*app).serveCommand},
		{"daemon", (*app).daemonCommand},
		{"doctor", (*app).doctorCommand},
		{"version", (*app).versionCommand},
		{"completion", (*app).completionCommand},
		{"uninstall", (*app).uninstallCommand},
	}
}

func agentVerb(name string) verb {
	return verb{name, func(a *app) *cobra.Command { return a.agentRunCommand(name) }}
}

// wanted are the commands that this command line is about: one, where its first word
// names it. To make them all takes longer than most calls.
func (a *app) wanted() []verb {
	all := verbs()
	if len(a.typed) == 0 {
		return all
	}
	i := slices.IndexFunc(all, func(v verb) bool { return v.name == a.typed[0] })
	if i < 0 || all[i].name == "completion" { // which is about all others
		return all
	}
	return all[i : i+1]
}

// hideHelpFlags gives every command its --help now, hidden: it would only
// repeat itself in each list of flags.
func hideHelpFlags(cmd *cobra.Command) {
	cmd.Flags().BoolP("help", "h", false, "show this help")
	_ = cmd.Flags().MarkHidden("help") // it was made on the line above
	for _, c := range cmd.Commands() {
		hideHelpFlags(c)
	}
}

func helpCommand() *cobra.Command {
	return setHelp(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 || target == cmd.Root() && len(args) > 0 {
				return unknownCommand(cmd.Root(), args[0])
			}
			return target.Help()
		},
	}, docs{})
}

// unknownCommand says that parent has no command name, and which it may be.
func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	err := usage.Errorf("%sunknown command %s", where(parent), shell.Word(name))
	n := commandWord(name)
	if !slices.Contains(names, n) {
		n = near.Of(name, slices.DeleteFunc(names, func(n string) bool { return ends(n) && !strings.HasPrefix(name, n[:1]) }))
		if other := near.Of(name, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" || ends(n) })); ends(n) && other != "" {
			n = other // as near or not quite, and nothing is lost by it
		}
	}
	if n != "" {
		return err.WithHint("did you mean %s %s?", parent.CommandPath(), n)
	}
	return err.WithHint("%s --help", parent.CommandPath())
}

// ends reports whether a command of that name ends or removes something: it is suggested for
// nothing but what begins as it does.
func ends(name string) bool {
	return slices.Contains([]string{"stop", "rm", "kill", "prune", "uninstall", "close", "gc", "scrub"}, name)
}

// action is the body of a command that a signal may end.
type action func(ctx context.Context, args []string) error

// interruptible runs f under a context that the first signal ends.
func interruptible(f action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := relay.UntilSignal(cmd.Context())
		defer stop()
		err := f(ctx, args)
		if err != nil && context.Cause(ctx) == relay.ErrInterrupted {
			return relay.ErrInterrupted
		}
		return err
	}
}

// asking is interruptible for f that asks the daemon first of all; one is started
// where none runs.
func (a *app) asking(f func(ctx context.Context, svc *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return interruptible(func(ctx context.Context, args []string) error {
		svc, err := a.service(ctx)
		if err != nil {
			return err
		}
		return f(ctx, svc, args)
	})
}

// exactArgs refuses any other number of arguments than the names given.
func exactArgs(names ...string) cobra.PositionalArgs { return rangeArgs(len(names), names...) }

// rangeArgs refuses fewer than least arguments and more than there are names.
func rangeArgs(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usage.Errorf("%s%s is missing", where(cmd), names[len(args)]).
				WithHint("usage: %s", cmd.UseLine())
		case len(args) > len(names):
			return usage.Errorf("%sunexpected argument %s", where(cmd), shell.Word(args[len(names)])).
				WithHint("usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// someArgs refuses less than least arguments; names say what is missing.
func someArgs(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return rangeArgs(least, names...)(cmd, args)
		}
		return nil
	}
}

// nameThenPaths wants a sandbox's name, and refuses a path in its place: for . people
// leave out the name.
func nameThenPaths(cmd *cobra.Command, args []string) error {
	if err := someArgs(1, "NAME")(cmd, args); err != nil {
		return err
	}
	if name := args[0]; name == "." || name == ".." || strings.Contains(name, "/") {
		return usage.Errorf("sandbox %.64q: not a name", name).WithHint("%s NAME [PATH...]; carboy ls shows names", cmd.CommandPath())
	}
	return nil
}

// takesCommand reports whether cmd's arguments are a command to run.
func takesCommand(cmd *cobra.Command) bool {
	return cmd.Name() == "run" || cmd.Name() == "exec" || isAgent(cmd.Name())
}
