package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	stopWait = 30 * time.Second      // for a daemon that was asked to leave
	stopPoll = 20 * time.Millisecond // between looks whether it did
	stopLook = time.Second           // before one that does not answer is asked again
)

func (a *app) serveCommand() *cobra.Command {
	var o ServeOptions
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "Run the daemon in the foreground",
		Args:  exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			return a.serve(ctx, o)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.Listen, "listen", "", "`HOST:PORT` serve the API on that TCP address, too")
	fs.StringVar(&o.APIKeyFile, "api-key-file", "", "`FILE` accept the keys in FILE there; it holds hashes and scopes")
	a.completeFlags(cmd)
	return setHelp(cmd, docs{
		long: `Other commands start a daemon by themselves, which leaves when it is idle; one
that serve runs stays until a signal. Sandboxes outlive it. Over TCP every caller
has a key: carboy key add makes one, and FILE has more.`,
		examples: []string{
			"carboy serve",
			"carboy serve --listen 127.0.0.1:3000",
		},
		exits: exitDocsPlain[:],
	})
}

func (a *app) serve(ctx context.Context, o ServeOptions) error {
	if o.Listen == "" && o.APIKeyFile != "" {
		return usage.Errorf("--api-key-file needs --listen: the unix socket asks for no key")
	}
	return a.env.Serve(ctx, o)
}

func (a *app) daemonCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "daemon COMMAND",
		Short: "Look after the daemon",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage.Errorf("daemon: COMMAND is missing").WithHint("carboy daemon status")
			}
			return unknownCommand(cmd, args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.AddCommand(a.daemonStatusCommand(), a.daemonStopCommand(), a.daemonRunCommand())
	return setHelp(cmd, docs{
		long:  "Commands that need a daemon start one where none runs.",
		exits: exitDocsPlain[:],
	})
}

func (a *app) daemonStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "status [flags]",
		Short:             "Show the daemon, or fail where none runs",
		Args:              exactArgs(),
		RunE:              interruptible(a.daemonStatus),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{long: "It starts none.", exits: exitDocsPlain[:]})
}

func (a *app) daemonStatus(ctx context.Context, _ []string) error {
	svc, err := a.env.Connect(ctx, false, a.Note)
	if err != nil {
		return noDaemon(err)
	}
	st, err := svc.Status(ctx)
	if err != nil {
		return noDaemon(err)
	}
	if a.JSON {
		return a.WriteJSON(st)
	}
	var t console.Table
	t.Row("version", st.Version)
	t.Row("pid", strconv.Itoa(st.PID))
	t.Row("home", st.Home)
	t.Row("socket", st.Socket)
	if len(st.Listen) > 0 {
		t.Row("listens", strings.Join(st.Listen, ", "))
	}
	t.Row("started", when(st.StartedAt, a.Now()))
	if st.Auto {
		t.Row("leaves", "when it is idle")
	} else {
		t.Row("leaves", "when it is told to")
	}
	t.Row("walls", strings.Join(st.Backends, ", "))
	t.Row("sandboxes", fmt.Sprintf("%d, of which %d run", st.Sandboxes, st.Running))
	return t.Write(a.Stdout)
}

// noDaemon says of an error that nobody answered what that means.
func noDaemon(err error) error {
	if sandbox.KindOf(err) != sandbox.Unavailable {
		return err
	}
	return sandbox.Errorf(sandbox.Unavailable, "no daemon runs").
		WithHint("carboy serve runs one; carboy ls and the like start one")
}

func (a *app) daemonStopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "stop [flags]",
		Short:             "Make the daemon leave; sandboxes run on",
		Args:              exactArgs(),
		RunE:              interruptible(a.daemonStop),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:  "It returns when the daemon has left. Where none runs, that is no error.",
		exits: exitDocsPlain[:],
	})
}

// daemonStop returns once the process of the daemon that was told to leave has ended:
// until then its home is taken, and the next one would be refused. One that does not
// answer may be about to leave, or about to begin. The next one, which another command
// may have started meanwhile, is left alone.
func (a *app) daemonStop(ctx context.Context, _ []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, stopWait,
		sandbox.Errorf(sandbox.Unavailable, "the daemon was told to leave, and is still there after %v", stopWait).
			WithHint("carboy daemon status says what it does; its log is daemon.log of the state directory"))
	defer cancel()
	for {
		err := a.askToLeave(ctx)
		if err == nil || sandbox.KindOf(err) != sandbox.Unavailable {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if a.env.Gone == nil {
			return nil
		}
		look, stop := context.WithTimeout(ctx, stopLook)
		err = a.env.Gone(look)
		late := look.Err() != nil && ctx.Err() == nil
		stop()
		if !late {
			return err
		}
	}
}

// askToLeave tells the daemon to leave and waits for that; it fails with
// Unavailable where none answers.
func (a *app) askToLeave(ctx context.Context) error {
	svc, err := a.env.Connect(ctx, false, a.Note)
	if err != nil {
		return err
	}
	st, err := svc.Status(ctx)
	if err != nil {
		return err
	}
	process, err := procid.Of(st.PID)
	seen := err == nil // not where it has another pid namespace, or is gone
	if err := svc.Shutdown(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	for {
		if seen && !procid.Alive(process) || !seen && replaced(ctx, svc, st) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// replaced reports whether the daemon of a status answers no more: nobody does, or
// another.
func replaced(ctx context.Context, svc *client.Client, st *api.Status) bool {
	now, err := svc.Status(ctx)
	if err != nil {
		return sandbox.KindOf(err) == sandbox.Unavailable && ctx.Err() == nil
	}
	return now.PID != st.PID || !now.StartedAt.Equal(st.StartedAt)
}

// daemonRunCommand is what carboy starts itself as, in the background.
func (a *app) daemonRunCommand() *cobra.Command {
	return setHelp(&cobra.Command{
		Use:    "run",
		Short:  "Run a daemon that leaves when it is idle",
		Hidden: true,
		Args:   exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			return a.env.Serve(ctx, ServeOptions{Background: true})
		}),
	}, docs{exits: exitDocsPlain[:]})
}
