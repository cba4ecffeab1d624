package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// sourceValue is where a secret's value is kept by the daemon itself.
const sourceValue = "value"

func (a *app) secretCommand() *cobra.Command {
	cmd := a.nounCommand("secret", "Look after secrets that sandboxes may use and never see", "carboy secret ls")
	cmd.AddCommand(a.secretAddCommand(), secretListing().command(a), a.secretRmCommand(), a.secretRotateCommand())
	return setHelp(cmd, docs{
		long: `A secret is used by --secret of run and create, where a rule of the sandbox's
policy says in which field of which requests it goes. What runs inside holds a
placeholder. Values are kept encrypted, and no command shows one.`,
		examples: []string{"carboy secret add GITHUB_TOKEN", "carboy run --secret GITHUB_TOKEN --allow github -- git ls-remote https://github.com/me/private"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) secretAddCommand() *cobra.Command {
	var from secretSource
	cmd := &cobra.Command{
		Use:   "add [flags] NAME [-]",
		Short: "Keep a secret",
		Args:  rangeArgs(1, "NAME", "-"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.secretAdd(ctx, args[0], args[1:], &from)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	from.add(cmd.Flags())
	cmd.Flags().BoolVar(&from.key, "key", false, "it is a private key, of many lines, for remotes of git's alone")
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `The value is asked for on the terminal, unless a flag says where it is; - reads it
from stdin. It is never an argument: others could see it there. One newline at the
end is left out.

A file is read at each use, and a command run, by the daemon and with your rights;
what the command prints is used for --ttl, or once where there is none.`,
		examples: []string{
			"carboy secret add GITHUB_TOKEN",
			"carboy secret add GITHUB_TOKEN --command 'gh auth token' --ttl 15m",
			"pass show token | carboy secret add TOKEN -",
			"carboy secret add DEPLOY_KEY --key - <~/.ssh/deploy",
		},
		exits: exitDocsPlain[:],
	})
}

func (a *app) secretAdd(ctx context.Context, name string, rest []string, from *secretSource) error {
	if err := checkSecretName(name); err != nil {
		return err
	}
	if err := from.check("secret add", rest); err != nil {
		return err
	}
	req, err := a.readSecret(ctx, "secret add", name, from)
	if err != nil {
		return err
	}
	req.Name, req.Key = name, from.key
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	s, err := svc.AddSecret(ctx, *req)
	if err != nil {
		return err
	}
	if !s.RotatedAt.IsZero() {
		a.Note("secret " + s.Name + ": it was there already, and has the new value now")
	}
	return a.tellSecret(s)
}

// tellSecret prints the name of a secret, or with --json all that is known.
func (a *app) tellSecret(s *api.Secret) error {
	for _, n := range s.Notes {
		a.Note("secret " + s.Name + ": " + n)
	}
	return a.Answer(s, s.Name)
}

func (a *app) secretRotateCommand() *cobra.Command {
	var from secretSource
	cmd := &cobra.Command{
		Use:   "rotate [flags] NAME [-]",
		Short: "Give a secret a new value",
		Args:  rangeArgs(1, "NAME", "-"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.secretRotate(ctx, args[0], args[1:], &from)
		}),
		ValidArgsFunction: a.completeSecret(1),
	}
	from.add(cmd.Flags())
	a.addJSON(cmd.Flags())
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `Sandboxes that use it go on with the new value. Without a flag, a secret that comes
from a file or a command is taken from there again, and any other is asked for.`,
		examples: []string{"carboy secret rotate GITHUB_TOKEN", "carboy secret rotate GITHUB_TOKEN --from-env NEW_TOKEN"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) secretRotate(ctx context.Context, name string, rest []string, from *secretSource) error {
	if err := checkSecretName(name); err != nil {
		return err
	}
	if err := from.check("secret rotate", rest); err != nil {
		return err
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	req := &api.SecretRequest{}
	if from.none() {
		old, err := findSecret(ctx, svc, name)
		if err != nil {
			return err
		}
		if old.Source != sourceValue {
			s, err := svc.RotateSecret(ctx, name, *req)
			if err != nil {
				return err
			}
			return a.tellSecret(s)
		}
	}
	if req, err = a.readSecret(ctx, "secret rotate", name, from); err != nil {
		return err
	}
	s, err := svc.RotateSecret(ctx, name, *req)
	if err != nil {
		return err
	}
	return a.tellSecret(s)
}

func findSecret(ctx context.Context, svc *client.Client, name string) (*api.Secret, error) {
	list, err := svc.Secrets(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Name == name {
			return &list[i], nil
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "secret %s: not found", name).WithHint("carboy secret add %s", name)
}

func secretListing() *listing[api.Secret] {
	return &listing[api.Secret]{
		noun:    "secret",
		short:   "List secrets, without their values",
		long:    "All of yours are listed, with where the values come from.",
		get:     (*client.Client).Secrets,
		columns: []string{"NAME", "SOURCE", "CREATED", "ROTATED", "USED"},
		row: func(s *api.Secret, now time.Time) []string {
			return []string{s.Name, sourceText(s), console.Ago(s.CreatedAt, now), console.Ago(s.RotatedAt, now), console.Ago(s.LastUsedAt, now)}
		},
	}
}

// sourceText says where a secret comes from.
func sourceText(s *api.Secret) string {
	text := s.Source
	if s.Key {
		text = "key, " + text
	}
	switch {
	case s.Damaged:
		return "(damaged: carboy secret add " + s.Name + ")"
	case s.File != "":
		text += " " + shell.Word(s.File)
	case len(s.Command) > 0:
		words := make([]string, len(s.Command))
		for i, w := range s.Command {
			words[i] = shell.Word(w)
		}
		text += " " + strings.Join(words, " ")
	}
	if s.TTLMillis > 0 {
		text += " every " + (time.Duration(s.TTLMillis) * time.Millisecond).String()
	}
	return text
}

func (a *app) secretRmCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "rm [flags] NAME...",
		Short: "Forget secrets",
		Args:  someArgs(1, "NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.secretRm(ctx, svc, args, force)
		}),
		ValidArgsFunction: a.completeSecret(-1),
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "those that sandboxes use, too")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `One that sandboxes use stays, unless --force is given: what they send, and would
need it, is refused from then on.`,
		examples: []string{"carboy secret rm GITHUB_TOKEN"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) secretRm(ctx context.Context, svc *client.Client, names []string, force bool) error {
	return each(a, names, func(name string) (string, error) {
		if err := checkSecretName(name); err != nil {
			return "", err
		}
		return name, svc.RemoveSecret(ctx, name, force)
	}, nil)
}

// completeSecret completes a secret's name.
func (a *app) completeSecret(n int) completer {
	return upTo(n, cobra.ShellCompDirectiveNoFileComp, a.secretNames)
}

// secretNames returns the names of the caller's secrets.
func (a *app) secretNames(ctx context.Context) (names []string) {
	for _, one := range listed(ctx, a, (*client.Client).Secrets) {
		names = append(names, one.Name)
	}
	return names
}
