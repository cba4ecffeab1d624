package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/uninstall"
)

// Env is what the process gives the command line. Streams that are *os.File
// are asked whether they are terminals; others never are one.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// LookupEnv is os.LookupEnv; where nil, every variable is unset.
	LookupEnv func(string) (string, bool)
	// Now is time.Now where nil.
	Now func() time.Time
	// ConfigDir is the user's configuration, with bottles and agents; "" for none.
	ConfigDir string
	// AgentsDir is the directory of a user's own agents; "" for none.
	AgentsDir string
	// StateDir is where apply remembers what it wrote; "" for nowhere. It is
	// the caller's own directory, and made when it is needed.
	StateDir string
	// Version is this binary's own.
	Version string
	// Connect returns a client of the daemon. With start it starts one where
	// none runs, and says so by notice; without, it fails with Unavailable.
	Connect func(ctx context.Context, start bool, notice func(string)) (*client.Client, error)
	// Gone returns once the process of the daemon has ended, which may have stopped
	// to answer before, or the cause of ctx. Nil: it can't be seen.
	Gone func(ctx context.Context) error
	// Serve runs the daemon until ctx ends, or becomes it.
	Serve func(ctx context.Context, o ServeOptions) error
	// Why looks in the daemon's log for the last failure since a moment with that
	// message: the log's path, "" where there is none, and the cause, "" where it
	// does not say. Where nil, nothing is known.
	Why func(message string, since time.Time) (path, cause string)
	// Doctor tries what this machine can enforce; where nil, nobody can.
	Doctor func(ctx context.Context) (doctor.Report, error)
	// Login asks the user's own Docker configuration about an image's registry; where nil,
	// nothing is asked.
	Login func(ctx context.Context, ref string) (order.Login, error)
	// Survey says what the caller's home holds, and with config of which
	// configuration; it changes nothing. Uninstall ends all sandboxes of a home whose
	// daemon has left, and removes it. Where nil, nobody can.
	Survey    func(ctx context.Context, config bool) (uninstall.Survey, error)
	Uninstall func(ctx context.Context, o UninstallOptions) error
}

// UninstallOptions are how much Env.Uninstall does.
type UninstallOptions = order.Uninstall

// ServeOptions are the flags of serve, and LangBotOptions those of langbot serve.
type (
	ServeOptions   = order.Serve
	LangBotOptions = order.LangBot
)

// Main runs one command line, args without the program's name, and returns
// the process's exit code. It is main without os.Exit. A signal that arrives
// while it runs is its own to handle, so ctx should not end by one.
func Main(ctx context.Context, args []string, env Env) int {
	a := newApp(env)
	a.typed = args
	root := a.rootCommand()
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		plainUsages(root)
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exit.OK
	}
	if _, quiet := errors.AsType[*exit.Error](err); !quiet {
		a.JSON = a.JSON || a.jsonAnyway(root, args)
		a.PrintError(a.because(err))
	}
	return exit.Code(err)
}

// because adds to an error of the daemon's own what its log says of it: the log is
// the caller's, or else it can't be read. Other users of an API see no log.
func (a *app) because(err error) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind != sandbox.Internal || e.Hint != sandbox.LogHint || a.env.Why == nil {
		return err
	}
	path, cause := a.env.Why(e.Msg, a.started)
	if path == "" || cause == "" {
		return e.WithHint("%s: what carboy serve printed, or its service's journal", e.Hint)
	}
	return e.WithHint("%s (%s)", cause, path)
}

// app is one run of the command line.
type app struct {
	*console.Console
	env     Env
	svc     *client.Client
	started time.Time
	typed   []string // the command line, without the program's name
}

func newApp(env Env) *app {
	if env.LookupEnv == nil {
		env.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	return &app{env: env, started: env.Now(), Console: &console.Console{
		Stdin: env.Stdin, Stdout: env.Stdout, Stderr: env.Stderr, LookupEnv: env.LookupEnv, Now: env.Now,
	}}
}

// jsonAnyway reports whether --json stands on a command line that could not
// be parsed up to there. What belongs to a command to run is not looked at.
func (a *app) jsonAnyway(root *cobra.Command, args []string) bool {
	cmd, rest, err := root.Find(args)
	if err != nil || takesCommand(cmd) || cmd.Flags().Lookup("json") == nil {
		return false
	}
	if i := slices.Index(rest, "--"); i >= 0 {
		rest = rest[:i]
	}
	return slices.Contains(rest, "--json")
}

// service returns the client, connected; it starts a daemon where none runs.
func (a *app) service(ctx context.Context) (*client.Client, error) {
	if a.svc != nil {
		return a.svc, nil
	}
	svc, err := a.env.Connect(ctx, true, a.Note)
	if err != nil {
		return nil, err
	}
	a.svc = svc
	return svc, nil
}
