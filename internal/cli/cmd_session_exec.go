package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

type sessionExecOptions struct {
	session, profile, cwd, image, network, wall, onTimeout string

	timeout    time.Duration
	quota      int64
	hard       bool
	persistent bool
	env        launch.Env
}

func (a *app) sessionExecCommand() *cobra.Command {
	var o sessionExecOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] --session KEY [--] COMMAND [ARG...]",
		Short: "Run a command in the session of that key, which is made where there is none",
		Args:  someArgs(1, "COMMAND"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			return a.sessionExec(ctx, o, relay.Argv(args))
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.SortFlags = false
	o.add(fs)
	a.addJSON(fs)
	a.completeFlags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("session", a.completeSession()) // it is a flag of cmd
	return setHelp(cmd, docs{
		long: `One argument is text for the sandbox's shell; several are a command and what it is
given. Commands of one session run one after the other, and --timeout counts the
wait. What the flags don't say is the profile's; a session that is there already is
not changed by them: what would differ is an error that names all of it.
Of each stream the first MiB and the last 256 KiB are kept, with a note between them of
how much is left out.`,
		examples: []string{
			"carboy session exec --session person_alice -- pwd",
			"carboy session exec --session room_7 --network on --timeout 90s -- 'pip install rich && python3 app.py'",
		},
		exits: exitDocsCommand[:],
	})
}

func (o *sessionExecOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.session, "session", "", "`KEY` the session's key, such as person_alice; needed")
	fs.StringVar(&o.profile, "profile", "", "`NAME` what the session gets (default the daemon's): default, offline_readonly, network_basic, network_extended")
	fs.Var(durationValue{&o.timeout}, "timeout", "`DURATION` end it and all that it started after that long, such as 90s; at most what the profile allows")
	fs.StringVar(&o.cwd, "cwd", "", "`DIR` run in that directory (default /workspace)")
	addEnv(fs, &o.env)
	fs.Var(choiceValue{&o.network, []string{sandbox.NetworkOff, sandbox.NetworkOn}}, "network", "`NETWORK` off, or on: the public internet")
	fs.StringVar(&o.image, "image", "", "`IMAGE` what the sandbox is made of")
	fs.StringVar(&o.wall, "isolation", "", "`WALL` gvisor, or process where box.allowed_isolation of config.json names it (default the daemon's)")
	fs.Var(sizeValue{&o.quota}, "quota", "`SIZE` how much the workspace may hold, such as 100m; whole MiB")
	fs.BoolVar(&o.hard, "hard-quota", false, "refuse where nothing but looking would hold the quota")
	fs.BoolVar(&o.persistent, "persistent", false, "never end the session for being idle")
	fs.Var(choiceValue{&o.onTimeout, []string{sessions.OnTimeoutKeep, sessions.OnTimeoutReset}}, "on-timeout", "`keep|reset` keep the session, or reset it (default keep)")
}

// payload has what was said of the session and of the command.
func (o *sessionExecOptions) payload(lookup func(string) (string, bool)) (map[string]any, error) {
	p := map[string]any{}
	set := func(name, v string) {
		if v != "" {
			p[name] = v
		}
	}
	set("workdir", o.cwd)
	set("network", o.network)
	set("image", o.image)
	set("isolation", o.wall)
	set("on_timeout", o.onTimeout)
	if o.timeout > 0 {
		if o.timeout%time.Second != 0 {
			return nil, usage.Errorf("--timeout %s: not whole seconds", o.timeout)
		}
		p["timeout_sec"] = int64(o.timeout / time.Second)
	}
	if o.quota > 0 {
		if o.quota%(1<<20) != 0 {
			return nil, usage.Errorf("--quota: not whole MiB").WithHint("100m")
		}
		p["workspace_quota_mb"] = o.quota >> 20
	}
	if o.hard {
		p["quota"] = sessions.QuotaHard
	}
	if o.persistent {
		p["persistent"] = true
	}
	env, err := o.env.Collect(lookup)
	if len(env) > 0 {
		p["env"] = env
	}
	return p, err
}

func (a *app) sessionExec(ctx context.Context, o sessionExecOptions, argv []string) error {
	switch {
	case o.session == "":
		return usage.Errorf("session exec: --session is missing").WithHint("carboy session exec --session person_alice -- pwd")
	case len(argv) == 0:
		return usage.Errorf("session exec: COMMAND is missing").WithHint("carboy session exec --session %s -- pwd", shell.Word(o.session))
	}
	for _, arg := range argv {
		if !utf8.ValidString(arg) {
			return usage.Errorf("the argument %q is not valid UTF-8", arg)
		}
	}
	payload, err := o.payload(a.LookupEnv)
	if err != nil {
		return err
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	res, err := svc.SessionExec(ctx, o.session, sessions.ExecRequest{
		Command: shellText(argv), Payload: payload, Profile: o.profile, OutputLimit: -1,
	})
	if err != nil {
		return inFlags(err, o.session)
	}
	return a.showResult(res)
}

// flagWords has the flags for the names that the runtime's fields have.
var flagWords = strings.NewReplacer(
	"timeout_sec", "--timeout (seconds)", "on_timeout", "--on-timeout", "workspace_quota_mb", "--quota (MiB)",
	"workdir", "--cwd", "unknown box profile", "--profile: unknown profile",
)

// inFlags tells an error of the runtime's in the words of session exec.
func inFlags(err error, session string) error {
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	told := *e
	told.Msg, told.Hint = flagWords.Replace(e.Msg), flagWords.Replace(e.Hint)
	told.Hint = strings.Replace(told.Hint, "carboy session rm", "carboy session rm "+shell.Word(session), 1)
	return &told
}

// shellText is a command for a shell: one argument is one already.
func shellText(argv []string) string {
	if len(argv) == 1 {
		return argv[0]
	}
	return shell.Quote(argv...)
}

// showResult prints what a command wrote, and what is to be said of it, and
// returns the error that carries its exit code.
func (a *app) showResult(res *sessions.ToolResult) error {
	code := exit.TimedOut
	if res.Status != sessions.StatusTimedOut {
		if code = exit.Failed; res.ExitCode != nil {
			code = *res.ExitCode & 0xff
		}
	}
	if a.JSON {
		if err := a.WriteJSON(res); err != nil {
			return err
		}
	} else if err := a.printResult(res); err != nil {
		return err
	}
	if code != exit.OK {
		return &exit.Error{Code: code}
	}
	return nil
}

func (a *app) printResult(res *sessions.ToolResult) error {
	if res.Status == sessions.StatusTimedOut && res.StderrBytes == 0 {
		res.Stderr = "" // the runtime's own words, for who has no others
	}
	for _, s := range []struct {
		to   io.Writer
		text string
		raw  []byte
	}{{a.Stdout, res.Stdout, res.StdoutRaw}, {a.Stderr, res.Stderr, res.StderrRaw}} {
		out := console.Output(s.to)
		b := s.raw
		if b == nil {
			b = []byte(s.text)
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
		console.Flush(out)
	}
	for _, n := range res.Notices {
		a.Note(n)
	}
	for _, d := range res.Adjusted {
		a.Note(flagWords.Replace(fmt.Sprintf("%s is %v and not %v: %s", d.Field, d.Got, d.Asked, d.Reason)))
	}
	for _, l := range res.Limits {
		a.NoteReason(l, limitNote(l))
	}
	if res.StdoutTruncated || res.StderrTruncated {
		a.Note(fmt.Sprintf("of %d bytes of output and %d of errors, the first MiB and the last 256 KiB of each were kept", res.StdoutBytes, res.StderrBytes))
	}
	if res.Status == sessions.StatusTimedOut {
		a.NoteReason("timed_out", fmt.Sprintf("timed out after %.1fs, of which %.1fs waiting: the command was killed",
			float64(res.DurationMS)/1000, float64(res.QueuedMS)/1000))
	}
	return nil
}

func limitNote(limit string) string {
	if limit == "quota" {
		return "the workspace's quota was reached: the command was killed"
	}
	return "the command reached the session's limit of " + limit
}
