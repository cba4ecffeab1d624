package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cache"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// completeWait bounds how long a shell waits for names.
const completeWait = 5 * time.Second

func (a *app) completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "completion bash|zsh|fish",
		Short:     "Write a script that completes carboy's command line",
		Args:      exactArgs("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, w := cmd.Root(), a.Stdout
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(w, true)
			case "zsh":
				return root.GenZshCompletion(w)
			case "fish":
				return root.GenFishCompletion(w, true)
			}
			return usage.Errorf("completion: %s is no shell that is known here", shell.Word(args[0])).
				WithHint("carboy completion bash, zsh or fish")
		},
	}
	return setHelp(cmd, docs{
		long: "Names of sandboxes are completed while a daemon runs; none is started for it.",
		examples: []string{
			`source <(carboy completion bash)`,
			`carboy completion zsh > "${fpath[1]}/_carboy"`,
			`carboy completion fish > ~/.config/fish/completions/carboy.fish`,
		},
		exits: exitDocsPlain[:],
	})
}

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// listed returns what list does, and nothing where no daemon runs or it takes
// too long.
func listed[T any](ctx context.Context, a *app, list func(*client.Client, context.Context) ([]T, error)) []T {
	if a.env.Connect == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	svc, err := a.env.Connect(ctx, false, func(string) {})
	if err != nil {
		return nil
	}
	all, err := list(svc, ctx)
	if err != nil {
		return nil
	}
	return all
}

// names returns the names of the caller's sandboxes.
func (a *app) names(ctx context.Context) (names []string) {
	for _, sb := range listed(ctx, a, func(svc *client.Client, ctx context.Context) ([]api.Sandbox, error) {
		return svc.List(ctx, client.ListOptions{})
	}) {
		names = append(names, sb.Name)
	}
	return names
}

// upTo completes one of names as each of the first n arguments, and of any number
// where n is negative. rest is how the shell completes later ones.
func upTo(n int, rest cobra.ShellCompDirective, names func(context.Context) []string) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, rest
		}
		return without(names(cmd.Context()), args), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeName completes a sandbox's name. Later arguments are files.
func (a *app) completeName(n int) completer { return upTo(n, cobra.ShellCompDirectiveDefault, a.names) }

// without returns the names that are not among args.
func without(names, args []string) []string {
	return slices.DeleteFunc(names, func(s string) bool { return slices.Contains(args, s) })
}

// completeCopy completes a file, or a sandbox's name with a colon.
func (a *app) completeCopy(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if strings.ContainsAny(word, "/:.") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var out []string
	for _, name := range a.names(cmd.Context()) {
		if strings.HasPrefix(name, word) {
			out = append(out, name+":")
		}
	}
	if len(out) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return out, cobra.ShellCompDirectiveNoSpace
}

// completeCommand leaves a command's words to the shell.
func completeCommand(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completeFlags says how the values of cmd's flags are completed. A flag whose
// values are free has nothing to complete, least of all files.
func (a *app) completeFlags(cmd *cobra.Command) {
	fixed := func(words ...string) completer {
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return words, cobra.ShellCompDirectiveNoFileComp
		}
	}
	dirs := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" {
			return
		}
		c := fixed()
		switch f.Name {
		case "workspace", "mount":
			c = dirs
		case "env-file", "api-key-file", "policy", "from-file":
			c = completeCommand
		case "user":
			c = fixed("user", "root")
		case "isolation":
			c = fixed(sandbox.DefaultIsolation, "process")
		case "image":
			c = a.completeImageFlag
		case "snapshot":
			c = a.completeSnapshotFlag
		case "pull":
			c = fixed(launch.PullMissing, launch.PullAlways, launch.PullNever)
		case "network":
			c = fixed(sandbox.NetworkOff, sandbox.NetworkOn)
		case "cache":
			c = fixed(cache.Names()...)
		case "allow":
			c = completePreset
		case "secret":
			c = a.completeSecret(-1)
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, c) // fails for a flag that is not there
	})
}

// plainUsages leaves what flags do in their usages, which shells show.
func plainUsages(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = valueOf(f) })
	for _, c := range cmd.Commands() {
		plainUsages(c)
	}
}
