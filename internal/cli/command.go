package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/spf13/pflag"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/stall"
)

// killWait bounds the last calls that are made for a command whose user has
// gone, and abandonWait the one to a guest that may have caused it by not
// answering.
const (
	killWait    = 30 * time.Second
	abandonWait = 5 * time.Second
)

// commandFlags are the flags that say how a command runs.
type commandFlags struct {
	stdin, tty, detach bool
	timeout            time.Duration
}

func (f *commandFlags) add(fs *pflag.FlagSet) {
	fs.BoolVarP(&f.stdin, "interactive", "i", false, "pass stdin on")
	fs.BoolVarP(&f.tty, "tty", "t", false, "give it a terminal, whose output is passed on as it is")
	fs.Var(durationValue{&f.timeout}, "timeout", "`DURATION` kill it and all that it started after that long, such as 90s or 2h")
	fs.BoolVarP(&f.detach, "detach", "d", false, "leave it running")
}

// check refuses combinations that can't work. stdin says whether it would be
// passed on.
func (f *commandFlags) check(a *app, stdin bool) error {
	switch {
	case f.detach && (f.stdin || f.tty):
		return usage.Errorf("--detach can't go with -i or -t: nobody would be there")
	case f.tty && stdin && !console.IsTerminal(a.Stdin):
		return usage.Errorf("-t needs a terminal, and stdin is none").WithHint("leave out -t")
	}
	return nil
}

// newCommand returns argv as the guest is to run it.
func newCommand(argv []string, f *commandFlags) (*guestv1.Command, error) {
	for _, arg := range argv {
		if !utf8.ValidString(arg) {
			return nil, usage.Errorf("the argument %q is not valid UTF-8", arg)
		}
	}
	cmd := &guestv1.Command{Argv: argv, TimeoutMs: uint64(f.timeout.Milliseconds())}
	if !f.detach {
		cmd.OrphanGraceMs = uint64(sandbox.OrphanGrace.Milliseconds())
	}
	return cmd, nil
}

// commandArgs returns args without the "--" that may stand before a command
// which follows other arguments.
func commandArgs(args []string) []string {
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

// attach runs cmd in the sandbox id, joined to carboy's own streams.
func (a *app) attach(r *relay, svc *client.Client, id string, cmd *guestv1.Command, f commandFlags) (*guestv1.Exit, error) {
	o := client.ExecOptions{
		ID:      newCommandID(),
		Command: cmd,
		Stdout:  console.Output(a.Stdout),
		Stderr:  console.Output(a.Stderr),
		Signals: r.signals,
		Notice:  a.Note,
	}
	if f.stdin {
		o.Stdin = a.Stdin
	}
	if f.tty {
		o.Stdout, o.Stderr = a.Stdout, a.Stderr
		restore, err := a.openTerminal(r, cmd, f.stdin)
		if err != nil {
			return nil, err
		}
		defer restore()
		o.Resize = r.resize
	}
	r.running.Store(true)
	exit, err := svc.Exec(r.ctx, id, o)
	r.running.Store(false)
	console.Flush(o.Stdout)
	console.Flush(o.Stderr)
	if _, answered := errors.AsType[*sandbox.Error](err); err != nil && !answered {
		a.abandon(r, svc, id, o.ID) // it may run on: it was left by us
	}
	return exit, err
}

// openTerminal gives cmd a terminal like carboy's own, and puts that into raw
// mode where its input is passed on. restore must be called.
func (a *app) openTerminal(r *relay, cmd *guestv1.Command, raw bool) (restore func(), err error) {
	measure := func() console.Size { return console.SizeOf(a.Stdin, a.Stdout, a.Stderr) }
	s := measure()
	cmd.Terminal = &guestv1.Terminal{Cols: s.Cols, Rows: s.Rows}
	if name := a.Getenv("TERM"); name != "" && cmd.GetEnv()["TERM"] == "" && utf8.ValidString(name) {
		if cmd.Env == nil {
			cmd.Env = map[string]string{}
		}
		cmd.Env["TERM"] = name
	}
	var t *rawTerminal
	if f, ok := a.Stdin.(*os.File); ok && raw {
		if t, err = makeRaw(f); err != nil {
			return nil, err
		}
		a.Raw.Store(true)
	}
	r.withTerminal(measure, t.again)
	return func() {
		t.restore()
		a.Raw.Store(false)
	}, nil
}

// abandon kills a command that nobody waits for any more. It would die by
// itself when its grace is over.
func (a *app) abandon(r *relay, svc *client.Client, id, command string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), abandonWait)
	defer cancel()
	_, _ = svc.Commands(id).Signal(ctx, connect.NewRequest(&guestv1.SignalRequest{
		Id: command, Signal: int32(syscall.SIGKILL), All: true, By: "client",
	}))
}

// detach starts cmd and leaves it running. It returns the command's ID.
func (a *app) detach(ctx context.Context, svc *client.Client, id string, cmd *guestv1.Command) (string, error) {
	command := newCommandID()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream alone
	stream, err := svc.Commands(id).Start(ctx, connect.NewRequest(&guestv1.StartRequest{Id: command, Command: cmd}))
	if err != nil {
		return "", rpcError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // nothing more is wanted of it
	var w stall.Watch
	for stream.Receive() {
		if err := w.None(); err != nil {
			return "", stalled(err)
		}
		switch ev := stream.Msg(); {
		case ev.GetStarted() != nil:
			return command, nil
		case ev.GetExit().GetReason() == guestv1.Reason_REASON_NOT_STARTED:
			return "", a.reportEnd(ev.GetExit(), cmd, nil)
		case ev.GetExit() != nil:
			return command, nil
		}
	}
	if err := stream.Err(); err != nil {
		return "", rpcError(ctx, err)
	}
	return "", sandbox.Errorf(sandbox.Unavailable, "the guest did not say whether the command started")
}

// stalled is what a user is told of a guest that sends nothing, for ever.
func stalled(err error) error {
	return sandbox.Errorf(sandbox.Internal, "the sandbox's agent makes no sense: %w", err).
		WithHint("it is not to be trusted any more: carboy rm -f")
}

// rpcError is what a user is told of an error of the guest's service.
func rpcError(ctx context.Context, err error) error {
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

// interrupted turns the error of a command that was left into an exit code.
func (a *app) interrupted(r *relay, err error) error {
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &exitError{128 + int(syscall.SIGPIPE)}
	case context.Cause(r.ctx) == errInterrupted:
		a.Note("interrupted: the command was killed")
		return &exitError{exitKilled}
	}
	return err
}

// reportEnd tells how a command ended where its exit code alone would not, and
// returns the error that carries carboy's own exit code. sb may be nil.
func (a *app) reportEnd(e *guestv1.Exit, cmd *guestv1.Command, limits *limitText) error {
	for _, l := range e.GetLimits() {
		a.NoteReason(l, limits.of(l))
	}
	switch e.GetReason() {
	case guestv1.Reason_REASON_EXITED, guestv1.Reason_REASON_SIGNALLED:
		if text := e.GetError(); text != "" {
			a.Note(text)
		}
	case guestv1.Reason_REASON_TIMED_OUT:
		after := time.Duration(cmd.GetTimeoutMs()) * time.Millisecond
		a.NoteReason("timed_out", "timed out after "+after.String()+": the command was killed")
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		a.NoteReason("out_of_memory", orText(e.GetError(), "the command ran out of memory")+limits.memory())
	case guestv1.Reason_REASON_KILLED:
		a.NoteReason("killed", killedText(e))
	case guestv1.Reason_REASON_NOT_STARTED:
		kind := sandbox.Invalid
		if e.GetCode() == exitNoCommand {
			kind = sandbox.NotFound
		}
		text := orText(e.GetError(), "the command could not be started")
		a.PrintError(sandbox.Errorf(kind, "%s", text))
	}
	if code := exitOf(e); code != exitOK {
		return &exitError{code}
	}
	return nil
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return strings.TrimSpace(s)
}

func killedText(e *guestv1.Exit) string {
	text := "the command was killed"
	if by := e.GetKilledBy(); by != "" && e.GetError() == "" {
		text += " by " + by
	}
	if e.GetError() != "" {
		text += ": " + e.GetError()
	}
	return text
}
