package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) keyCommand() *cobra.Command {
	cmd := a.nounCommand("key", "Look after the keys of those who come over TCP", "carboy key ls")
	cmd.AddCommand(a.keyAddCommand(), keyListing().command(a), a.keyRmCommand())
	return setHelp(cmd, docs{
		long: `A key is of a team: what is made with one key of a team can be seen with the
others. Those of the file that carboy serve was given are not listed here, and
change with the file.`,
		examples: []string{"carboy key add --team bots ci", "carboy key ls"},
		exits:    exitDocsPlain[:],
	})
}

func addKeyFlags(f *pflag.FlagSet, req *api.KeyRequest) {
	f.StringVar(&req.Team, "team", "", "`TEAM` the team that it is of; needed")
	f.StringSliceVar(&req.Scopes, "scope", nil, "`SCOPE` what it allows: read, manage, exec, approve, keys or admin; more than once (default the first three)")
	f.StringArrayVar(&req.Paths, "path", nil, "`DIR` a directory of this machine that it may name as workspace or mount; more than once")
	f.BoolVar(&req.HostImage, "host-image", false, "allow sandboxes that see this machine's programs")
	f.StringVar(&req.Isolation, "isolation", "", "`WALL` the weakest wall that its sandboxes may have: gvisor or process (default its team's)")
	f.BoolVar(&req.PrivateNetwork, "private-network", false, "allow policies that open what is not public")
}

func (a *app) keyAddCommand() *cobra.Command {
	var req api.KeyRequest
	cmd := &cobra.Command{
		Use:               "add [flags] NAME",
		Short:             "Make a key, and print it once",
		Args:              exactArgs("NAME"),
		RunE:              interruptible(func(ctx context.Context, args []string) error { return a.keyAdd(ctx, args[0], req) }),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	addKeyFlags(cmd.Flags(), &req)
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `It is printed now and never again: only its hash is kept. It is spelt so that
E2B's clients take it.`,
		examples: []string{"carboy key add --team bots --host-image ci", "carboy key add --team bots --scope read dashboard"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) keyAdd(ctx context.Context, name string, req api.KeyRequest) error {
	if req.Team == "" {
		return sandbox.Errorf(sandbox.Invalid, "key add: a key is of a team").WithHint("carboy key add --team TEAM %s", name)
	}
	for i, p := range req.Paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return err
		}
		if fi, err := os.Stat(abs); err != nil || !fi.IsDir() {
			return sandbox.Errorf(sandbox.Invalid, "--path: there is no directory %s", shell.Word(abs)).WithHint("make it first: mkdir -p %s", shell.Word(abs))
		}
		req.Paths[i] = abs
	}
	req.Name = name
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	k, err := svc.MakeKey(ctx, req)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(k)
	}
	a.Note("key " + k.ID + " of team " + k.Team + ": this is the only time that it is shown")
	return a.PrintLine(k.Secret)
}

func keyListing() *listing[api.Key] {
	return &listing[api.Key]{
		noun:    "key",
		short:   "List keys that were made, without the keys themselves",
		long:    "Those of every team are listed.",
		get:     (*client.Client).Keys,
		columns: []string{"ID", "TEAM", "NAME", "KEY", "SCOPES", "CREATED", "USED"},
		row: func(k *api.Key, now time.Time) []string {
			return []string{k.ID, k.Team, k.Name, k.Mask, strings.Join(k.Scopes, ","), console.Ago(k.CreatedAt, now), console.Ago(k.LastUsedAt, now)}
		},
	}
}

func (a *app) keyRmCommand() *cobra.Command {
	return removal{
		noun:     "key",
		arg:      "ID",
		example:  "9f74918e-984e-4be8-933e-ab6de9bcaf53",
		short:    "Delete keys",
		long:     "They open nothing from then on, and what they hold open is ended.",
		remove:   (*client.Client).DeleteKey,
		complete: cobra.NoFileCompletions,
	}.command(a)
}
