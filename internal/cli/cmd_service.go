package cli

import (
	"context"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	actions "github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

func (a *app) serviceCommand() *cobra.Command {
	cmd := a.nounCommand("service", "Keep programs running in a sandbox, and know when they are ready", "carboy service start web app -- ./serve")
	cmd.AddCommand(a.serviceStartCommand(), a.serviceLsCommand(), a.serviceStatusCommand(), a.serviceLogsCommand(), a.serviceStopCommand())
	return setHelp(cmd, docs{
		long: `A service goes on without anybody who waits for it, outlives the daemon, and is started
again where --restart says so. It ends with its sandbox, and with all that it started.`,
		examples: []string{
			"carboy service start web app --ready-tcp 8080 -- python3 -m http.server 8080",
			"carboy service logs web app --tail 20",
		},
		exits: exitDocsPlain[:],
	})
}

type serviceStartOptions struct {
	cwd                      string
	env                      launch.Env
	file, tcp, http, command string
	timeout, interval        time.Duration
	restart                  string
}

func (a *app) serviceStartCommand() *cobra.Command {
	var o serviceStartOptions
	cmd := &cobra.Command{
		Use:   "start [flags] NAME SERVICE [--] COMMAND [ARG...]",
		Short: "Start a service, and wait until it is ready",
		Args:  someArgs(3, "NAME", "SERVICE", "COMMAND"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.serviceStart(ctx, svc, o, args[0], args[1], relay.Argv(args[2:]))
		}),
		ValidArgsFunction: a.completeName(1),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.add(fs)
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `COMMAND alone is a line for the shell inside; with arguments it is run as it is. The
service is ready once what its --ready- flag names is there, and without one as soon as it was
started. Where it is not ready in time, it is ended, and the exit code is 125. Flags of COMMAND
stand behind --.`,
		examples: []string{
			"carboy service start web app --ready-tcp 8080 -- python3 -m http.server 8080",
			"carboy service start web db --ready-command 'pg_isready -q' --restart on-failure -- ./postgres.sh",
		},
		exits: exitDocsPlain[:],
	})
}

func (o *serviceStartOptions) add(fs *pflag.FlagSet) {
	addCwd(fs, &o.cwd)
	addEnv(fs, &o.env)
	fs.StringVar(&o.file, "ready-file", "", "`PATH` it is ready once that is there")
	fs.StringVar(&o.tcp, "ready-tcp", "", "`[HOST:]PORT` it is ready once that accepts a connection inside")
	fs.StringVar(&o.http, "ready-http", "", "`URL` it is ready once that answers inside, with a status from 200 to 399")
	fs.StringVar(&o.command, "ready-command", "", "`LINE` it is ready once that line ends with 0, in the shell inside")
	fs.Var(durationValue{&o.timeout}, "ready-timeout", "`DURATION` how long that may take; whole seconds (default 30s)")
	fs.Var(durationValue{&o.interval}, "ready-interval", "`DURATION` how often that is looked at (default 500ms)")
	fs.Var(choiceValue{&o.restart, []string{"never", "on-failure", "always"}}, "restart", "`WHEN` start it again where it ends: never, on-failure or always (default never)")
}

// lineOf is a command as a line for a shell: one argument is one already.
func lineOf(argv []string) string {
	if len(argv) == 1 {
		return argv[0]
	}
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = shell.Word(w)
	}
	return strings.Join(words, " ")
}

// request is what was asked for of a service.
func (o *serviceStartOptions) request(name string, argv []string, lookup func(string) (string, bool)) (req actions.StartServiceRequest, err error) {
	req = actions.StartServiceRequest{ServiceName: name, Command: lineOf(argv), CWD: o.cwd, Restart: o.restart}
	for _, r := range []struct {
		said string
		is   actions.Readiness
	}{
		{o.file, actions.Readiness{Type: "file", Path: o.file}},
		{o.tcp, actions.Readiness{Type: "tcp", Address: o.tcp}},
		{o.http, actions.Readiness{Type: "http", URL: o.http}},
		{o.command, actions.Readiness{Type: "command", Command: o.command}},
	} {
		switch {
		case r.said == "":
		case req.Readiness != nil:
			return req, usage.Errorf("service start: --ready-%s can't go with --ready-%s", req.Readiness.Type, r.is.Type).WithHint("leave out one of the two")
		default:
			req.Readiness = &r.is
		}
	}
	if (o.timeout > 0 || o.interval > 0) && req.Readiness == nil {
		return req, usage.Errorf("service start: nothing says when it is ready").WithHint("--ready-tcp 8080, --ready-file, --ready-http or --ready-command")
	}
	if o.timeout%time.Second != 0 || o.timeout > math.MaxInt32*time.Second {
		return req, usage.Errorf("service start: --ready-timeout %s: not whole seconds", o.timeout)
	}
	req.ReadyTimeoutSeconds, req.ReadyIntervalMS = int(o.timeout/time.Second), int(min(o.interval.Milliseconds(), math.MaxInt32))
	req.Env, err = o.env.Collect(lookup)
	return req, err
}

func (a *app) serviceStart(ctx context.Context, svc *client.Client, o serviceStartOptions, name, service string, argv []string) error {
	if len(argv) == 0 {
		return usage.Errorf("service start: COMMAND is missing").WithHint("carboy service start %s %s -- ./serve", shell.Word(name), shell.Word(service))
	}
	req, err := o.request(service, argv, a.LookupEnv)
	if err != nil {
		return err
	}
	st, err := svc.StartService(ctx, name, req)
	if err != nil {
		return err
	}
	return a.Answer(st, service+" is "+serviceState(st))
}

// serviceState is how a service stands, in words.
func serviceState(s *actions.Service) string {
	if s.State == actions.Running && s.Ready {
		return "running, and ready"
	}
	return endedText(s.State, s.ExitCode)
}

// reasonText is what follows the state of a service that does not run.
func reasonText(s *actions.Service) string {
	if s.StopReason == nil || *s.StopReason == "" {
		return ""
	}
	return ": " + *s.StopReason
}

func (a *app) serviceLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [flags] NAME",
		Short: "List the services of a sandbox, those that have ended too",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			list, err := svc.Services(ctx, args[0])
			if err != nil {
				return err
			}
			return serviceListing().show(a, list)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{examples: []string{"carboy service ls web", "carboy service ls web --json"}, exits: exitDocsPlain[:]})
}

func serviceListing() *listing[actions.Service] {
	return &listing[actions.Service]{
		columns: []string{"SERVICE", "STATE", "RESTARTS", "STARTED", "COMMAND"},
		row: func(s *actions.Service, now time.Time) []string {
			return []string{s.ServiceName, serviceState(s), strconv.Itoa(s.Restarts), console.Ago(unixTime(s.StartedAt), now), s.Command}
		},
	}
}

// ofService wants a sandbox and a service.
func (a *app) ofService(use, short string, run func(ctx context.Context, svc *client.Client, args []string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: exactArgs("NAME", "SERVICE"),
		RunE:              a.asking(run),
		ValidArgsFunction: completePart(a, (*client.Client).Services, func(s *actions.Service) string { return s.ServiceName }),
	}
	cmd.Flags().SortFlags = false
	return cmd
}

func (a *app) serviceStatusCommand() *cobra.Command {
	cmd := a.ofService("status [flags] NAME SERVICE", "Show how a service stands", func(ctx context.Context, svc *client.Client, args []string) error {
		st, err := svc.Service(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return a.showService(st)
	})
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{examples: []string{"carboy service status web app", "carboy service status web app --json"}, exits: exitDocsPlain[:]})
}

func (a *app) showService(st *actions.Service) error {
	if a.JSON {
		return a.WriteJSON(st)
	}
	now := a.Now()
	var t console.Table
	t.Row("service", st.ServiceName)
	t.Row("state", serviceState(st)+reasonText(st))
	t.Row("command", st.Command)
	t.Row("directory", st.CWD)
	t.Row("started", when(unixTime(st.StartedAt), now))
	if st.EndedAt != nil {
		t.Row("ended", when(unixTime(*st.EndedAt), now))
	}
	t.Row("restarts", strconv.Itoa(st.Restarts))
	return t.Write(a.Stdout)
}

func (a *app) serviceLogsCommand() *cobra.Command {
	var tail int64
	cmd := a.ofService("logs [flags] NAME SERVICE", "Show what a service wrote", func(ctx context.Context, svc *client.Client, args []string) error {
		return a.serviceLogs(ctx, svc, args[0], args[1], bounded(tail))
	})
	fs := cmd.Flags()
	fs.Var(countValue{&tail}, "tail", "`N` the last N lines of each stream (default all that is kept)")
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long:     "What it wrote to stdout goes to stdout, and the rest to stderr, with control characters escaped.",
		examples: []string{"carboy service logs web app --tail 20"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) serviceLogs(ctx context.Context, svc *client.Client, name, service string, tail int) error {
	logs, err := svc.ServiceLogs(ctx, name, service, tail)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(logs)
	}
	for _, s := range []struct {
		to   io.Writer
		text string
	}{{a.Stdout, logs.Stdout}, {a.Stderr, logs.Stderr}} {
		out := console.Escaped(s.to)
		if _, err := io.WriteString(out, s.text); err != nil {
			return err
		}
		console.Flush(out)
	}
	if logs.Truncated && tail == 0 {
		a.Note("of a stream that is longer its beginning and its end are kept")
	}
	return nil
}

func (a *app) serviceStopCommand() *cobra.Command {
	cmd := a.ofService("stop [flags] NAME SERVICE", "End a service, and all that it started", func(ctx context.Context, svc *client.Client, args []string) error {
		st, err := svc.StopService(ctx, args[0], args[1])
		if err != nil || !a.JSON {
			return err
		}
		return a.WriteJSON(st)
	})
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{long: "One that does not run is no error.", examples: []string{"carboy service stop web app"}, exits: exitDocsPlain[:]})
}
