package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// abandonWait bounds the last call for a command whose user has gone, to a guest
// that may have caused it by not answering.
const abandonWait = 5 * time.Second

// Options are the flags that say how a command runs.
type Options struct {
	Stdin   bool          // pass it on
	TTY     bool          // give it a terminal
	Detach  bool          // leave it running
	Timeout time.Duration // after which it is killed; 0: never
	Said    bool          // Stdin or TTY were given, as true or as false
	Closed  bool          // Stdin was given, as false
}

// shells are programs that are of no use to somebody at a terminal without one.
var shells = []string{"ash", "bash", "dash", "fish", "ksh", "sh", "zsh"}

// TakeTerminal is -it for a shell alone, where carboy's own input and output are
// terminals and neither flag was given, as ssh does it without a command.
func (f *Options) TakeTerminal(c *console.Console, argv []string) {
	if isShell(argv) {
		f.TakeShell(c)
	}
}

// TakeShell does that for a shell, and reports whether it has a terminal.
func (f *Options) TakeShell(c *console.Console) bool {
	if !f.Said && !f.Detach && !c.JSON && console.IsTerminal(c.Stdin) && console.IsTerminal(c.Stdout) {
		f.Stdin, f.TTY = true, true
	}
	return f.Stdin && f.TTY
}

// TakeStdin is -i where carboy's own input is a pipe or a file, as ssh does it: what somebody
// pipes in is not lost. A command that is left running gets it with -i alone: whose stdin is
// a pipe that stays open, as ssh's, would wait for its end.
func (f *Options) TakeStdin(c *console.Console) {
	if !f.Closed && !f.Detach && c.Stdin != nil && !console.IsTerminal(c.Stdin) {
		f.Stdin = true
	}
}

// isShell reports whether argv is a shell that would read what is typed: it has
// no script, and no command.
func isShell(argv []string) bool {
	if len(argv) == 0 || !slices.Contains(shells, path.Base(argv[0])) {
		return false
	}
	for _, arg := range argv[1:] {
		if !slices.Contains([]string{"-i", "-l", "-il", "-li", "--login"}, arg) {
			return false
		}
	}
	return true
}

// Check refuses combinations that can't work.
func (f *Options) Check(c *console.Console) error {
	switch {
	case f.Detach && f.Stdin && !f.TTY && console.IsTerminal(c.Stdin):
		return usage.Errorf("--detach can't go with -i alone on a terminal: nobody would be there").WithHint("with -t it has a terminal, which carboy attach joins")
	case f.Detach && !f.Closed && (!f.Stdin || f.TTY):
		return checkUnread(c)
	case f.Detach:
	case f.TTY && f.Stdin && !console.IsTerminal(c.Stdin):
		return usage.Errorf("-t needs a terminal, and stdin is none").WithHint("leave out -t")
	}
	return nil
}

// NewCommand returns argv as the guest is to run it.
func NewCommand(argv []string, f *Options) (*guestv1.Command, error) {
	for _, arg := range argv {
		if !utf8.ValidString(arg) {
			return nil, usage.Errorf("the argument %q is not valid UTF-8", arg)
		}
	}
	cmd := &guestv1.Command{Argv: argv, TimeoutMs: uint64(f.Timeout.Milliseconds())}
	if !f.Detach {
		cmd.OrphanGraceMs = uint64(sandbox.OrphanGrace.Milliseconds())
	}
	return cmd, nil
}

// Argv returns args without the "--" that may stand before a command
// which follows other arguments.
func Argv(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}

// newCommandID returns a name for a command that no other one has.
func newCommandID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Attach runs cmd in the sandbox id, joined to carboy's own streams.
func (r *Relay) Attach(svc *client.Client, id string, cmd *guestv1.Command, f Options) (*guestv1.Exit, error) {
	o := client.ExecOptions{
		ID:      newCommandID(),
		Command: cmd,
		Stdout:  console.Output(r.Stdout),
		Stderr:  console.Output(r.Stderr),
		Signals: r.signals,
		Notice:  r.Note,
	}
	if f.Stdin {
		o.Stdin = r.Stdin
	}
	if f.TTY {
		o.Stdout, o.Stderr = r.Stdout, r.Stderr
		restore, err := r.openTerminal(cmd, f.Stdin)
		if err != nil {
			return nil, err
		}
		defer restore()
		o.Resize = r.resize
	}
	r.running.Store(true)
	end, err := svc.Exec(r.Ctx, id, o)
	r.running.Store(false)
	console.Flush(o.Stdout)
	console.Flush(o.Stderr)
	abandon(r.Ctx, svc, id, o.ID, err)
	return end, err
}

// openTerminal gives cmd a terminal like carboy's own, and puts that into raw
// mode where its input is passed on. restore must be called.
func (r *Relay) openTerminal(cmd *guestv1.Command, raw bool) (restore func(), err error) {
	measure := func() console.Size { return console.SizeOf(r.Stdin, r.Stdout, r.Stderr) }
	giveTerminal(r.Console, cmd, measure())
	var t *rawTerminal
	if f, ok := r.Stdin.(*os.File); ok && raw {
		if t, err = makeRaw(f); err != nil {
			return nil, err
		}
		r.Raw.Store(true)
	}
	r.withTerminal(measure, t.again)
	return func() {
		t.restore()
		r.Raw.Store(false)
	}, nil
}

// giveTerminal has cmd run on a terminal like carboy's own.
func giveTerminal(c *console.Console, cmd *guestv1.Command, s console.Size) {
	cmd.Terminal = &guestv1.Terminal{Cols: s.Cols, Rows: s.Rows}
	for _, name := range []string{"TERM", "COLORTERM"} {
		value := c.Getenv(name)
		if value == "" || cmd.GetEnv()[name] != "" || !utf8.ValidString(value) {
			continue
		}
		if cmd.Env == nil {
			cmd.Env = map[string]string{}
		}
		cmd.Env[name] = value
	}
}

// abandon kills a command that was left with err, and that nobody waits for any more: it
// may run on. Where the daemon answered with err, there is none.
func abandon(ctx context.Context, svc *client.Client, id, command string, err error) {
	if _, answered := errors.AsType[*sandbox.Error](err); err == nil || answered {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonWait)
	defer cancel()
	_, _ = svc.Commands(id).Signal(ctx, connect.NewRequest(&guestv1.SignalRequest{
		Id: command, Signal: int32(syscall.SIGKILL), All: true, By: "client",
	}))
}

// stalled is what a user is told of a guest that sends nothing, for ever.
func stalled(err error) error {
	return sandbox.Errorf(sandbox.Internal, "the sandbox's agent makes no sense: %w", err).
		WithHint("it is not to be trusted any more: carboy rm -f")
}

// RPCError is what a user is told of an error of the guest's service.
func RPCError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		kind := sandbox.Internal
		switch e.Code() {
		case connect.CodeInvalidArgument:
			kind = sandbox.Invalid
		case connect.CodeNotFound:
			kind = sandbox.NotFound
		case connect.CodeResourceExhausted:
			kind = sandbox.Exhausted
		case connect.CodeUnavailable:
			kind = sandbox.Unavailable
		}
		return &sandbox.Error{Kind: kind, Msg: e.Message(), Err: err}
	}
	return err
}

// Interrupted turns the error of a command that was left into an exit code.
func (r *Relay) Interrupted(err error) error {
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &exit.Error{Code: 128 + int(syscall.SIGPIPE)}
	case context.Cause(r.Ctx) == ErrInterrupted:
		r.Note("interrupted: the command was killed")
		return &exit.Error{Code: exit.Killed}
	}
	return err
}

// Report tells how a command ended where its exit code alone would not, and
// returns the error that carries carboy's own exit code. limits may be nil.
func Report(c *console.Console, e *guestv1.Exit, cmd *guestv1.Command, limits *Limits) error {
	for _, l := range e.GetLimits() {
		c.NoteReason(l, limits.of(l))
	}
	switch e.GetReason() {
	case guestv1.Reason_REASON_EXITED, guestv1.Reason_REASON_SIGNALLED:
		if text := e.GetError(); text != "" {
			c.Note(text)
		}
	case guestv1.Reason_REASON_TIMED_OUT:
		after := time.Duration(cmd.GetTimeoutMs()) * time.Millisecond
		c.NoteReason("timed_out", "timed out after "+after.String()+": the command was killed")
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		c.NoteReason("out_of_memory", cmp.Or(strings.TrimSpace(e.GetError()), "the command ran out of memory")+limits.memory())
	case guestv1.Reason_REASON_KILLED:
		c.NoteReason("killed", killedText(e))
	case guestv1.Reason_REASON_NOT_STARTED:
		kind := sandbox.Invalid
		if e.GetCode() == exit.NoCommand {
			kind = sandbox.NotFound
		}
		text := cmp.Or(strings.TrimSpace(e.GetError()), "the command could not be started")
		err := sandbox.Errorf(kind, "%s", text)
		if hint := notStartedHint(e, cmd.GetArgv()); hint != "" {
			err = err.WithHint("%s", hint)
		}
		c.PrintError(err)
	}
	if code := exit.Of(e); code != exit.OK {
		return &exit.Error{Code: code}
	}
	return nil
}

// builtins are words of a shell's own that people type as if they were programs.
var builtins = []string{".", "alias", "cd", "eval", "exit", "export", "set", "source", "ulimit", "umask", "unset"}

// notStartedHint says what to type in the place of a command that could not be
// started, or "".
func notStartedHint(e *guestv1.Exit, argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	line := shell.Word(strings.Join(argv, " "))
	switch {
	case e.GetCode() == exit.NoCommand && slices.Contains(builtins, argv[0]):
		return argv[0] + " is a shell's own: sh -c " + line
	case e.GetCode() == exit.NoCommand && len(argv) == 1 && strings.ContainsAny(argv[0], " |&;<>"):
		return "a command line is a shell's: sh -c " + line
	case e.GetCode() == exit.NoExec && strings.HasPrefix(argv[0], "/") && strings.HasSuffix(e.GetError(), "permission denied"):
		return "it may be a directory, or a file without chmod +x"
	}
	return ""
}

func killedText(e *guestv1.Exit) string {
	if e.GetKilledBy() == "client" && e.GetCode()&0xff == exit.Interrupted {
		return "interrupted: the command was ended"
	}
	text := "the command was killed"
	if by := e.GetKilledBy(); by != "" && e.GetError() == "" {
		text += " by " + by
	}
	if e.GetError() != "" {
		text += ": " + e.GetError()
	}
	return text
}

// Limits tells of the limits of a sandbox. A nil one knows no figures.
type Limits struct {
	Figures   api.Limits
	FromFlags bool // the user set them with flags of this command line
}

// of says that the command ran into the limit name.
func (t *Limits) of(name string) string {
	switch name {
	case "pids":
		return "the command ran into the limit of processes" + t.figure("pids", func(l api.Limits) string { return strconv.FormatInt(l.PIDs, 10) })
	case "memory":
		return "a process of the command was killed because memory ran out" + t.memory()
	case "disk":
		return "the command ran into the limit of disk space" + t.figure("disk", func(l api.Limits) string { return term.FormatSize(l.Disk) })
	case "inodes":
		return "the command ran into the limit of files" + t.figure("", func(l api.Limits) string { return strconv.FormatInt(l.Inodes, 10) })
	}
	return "the command ran into a limit: " + name
}

// memory is what follows a message that memory ran out.
func (t *Limits) memory() string {
	return t.figure("memory", func(l api.Limits) string { return term.FormatSize(l.Memory) })
}

func (t *Limits) figure(flag string, of func(api.Limits) string) string {
	switch {
	case t == nil:
		return ""
	case t.FromFlags && flag != "":
		return fmt.Sprintf(" (%s; --%s raises it)", of(t.Figures), flag)
	}
	return fmt.Sprintf(" (%s)", of(t.Figures))
}
