package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent/stall"
)

// Causes of errors about one command.
var (
	// ErrUnknown says that the guest has no command with the ID.
	ErrUnknown = errors.New("the guest knows no such command")
	// ErrEnded says that the command has ended, or reads no more input.
	ErrEnded = errors.New("the command has ended, or its input is closed")
	// ErrOld says that the agent in the sandbox is of a version that can't.
	ErrOld = errors.New("the sandbox's agent is too old for this")
)

// slack is how much longer than a Read waits its answer may take.
const slack = 10 * time.Second

// Read is what to read of a command's output.
type Read struct {
	Stderr  bool
	Offset  int64
	Release int64 // nothing before is asked for again
	Max     int   // bytes; the agent returns at most 1 MiB
	Wait    time.Duration
}

// Output is a piece of a command's output.
type Output struct {
	Offset int64 // of Data; more than was asked for: what is between is gone
	Data   []byte
	Ended  bool          // nothing of the command's own comes after Data
	Exit   *guestv1.Exit // nil while it runs
}

// Launch starts a command, whose output is for Read alone: none of it is sent
// before. A start that was sent twice starts one command. The exit is that of
// a command that could not be started.
func (g *Guest) Launch(ctx context.Context, id string, cmd *guestv1.Command) (*guestv1.Exit, error) {
	stream, err := g.rpc.Start(ctx, connect.NewRequest(&guestv1.StartRequest{Id: id, Command: cmd, Detached: true}))
	if err != nil {
		return nil, about(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		return nil, about(errors.Join(stream.Err(), io.ErrUnexpectedEOF))
	}
	return stream.Msg().GetExit(), nil
}

// Read returns a piece of a command's output, and waits for it.
func (g *Guest) Read(ctx context.Context, id string, r Read) (Output, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Wait+slack)
	defer cancel()
	stream := guestv1.Stream_STREAM_STDOUT
	if r.Stderr {
		stream = guestv1.Stream_STREAM_STDERR
	}
	res, err := g.rpc.Read(ctx, connect.NewRequest(&guestv1.ReadRequest{
		Id: id, Stream: stream, Offset: uint64(r.Offset), Release: uint64(r.Release),
		MaxBytes: uint32(r.Max), WaitMs: uint32(r.Wait.Milliseconds()),
	}))
	if err != nil {
		return Output{}, about(err)
	}
	o := Output{
		Offset: int64(res.Msg.GetOffset()), Data: res.Msg.GetData(),
		Ended: res.Msg.GetEnded(), Exit: res.Msg.GetExit(),
	}
	if o.Offset < r.Offset || len(o.Data) > r.Max || o.Offset+int64(len(o.Data)) < o.Offset {
		return Output{}, fmt.Errorf("%w: it answers what it was not asked for", ErrBroken)
	}
	return o, nil
}

// Input appends to a command's input at an offset, and waits until it has room
// for all of it; what it has already is not written again. It returns how many
// bytes the command was given so far.
func (g *Guest) Input(ctx context.Context, id string, offset int64, data []byte, eof bool) (acked int64, err error) {
	res, err := g.rpc.WriteInput(ctx, connect.NewRequest(&guestv1.WriteInputRequest{
		Id: id, Offset: uint64(offset), Data: data, Eof: eof,
	}))
	if err != nil {
		return 0, about(err)
	}
	return int64(res.Msg.GetAcked()), nil
}

// Signal sends a signal to a command, or to it and all that it started; a kill
// of all returns once nothing of it is left.
func (g *Guest) Signal(ctx context.Context, id string, sig int, all bool, by string) error {
	_, err := g.rpc.Signal(ctx, connect.NewRequest(&guestv1.SignalRequest{Id: id, Signal: int32(sig), All: all, By: by}))
	return about(err)
}

// Look tells how a command is.
func (g *Guest) Look(ctx context.Context, id string) (*guestv1.Process, error) {
	res, err := g.rpc.Get(ctx, connect.NewRequest(&guestv1.GetRequest{Id: id}))
	if err != nil {
		return nil, about(err)
	}
	return res.Msg.GetProcess(), nil
}

// Begin starts a command, and returns once it runs; the command goes on by
// itself under that ID. One that could not be started, or that ended at once,
// is no error: Ended says so.
func (g *Guest) Begin(ctx context.Context, id string, cmd *guestv1.Command) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream alone
	stream, err := g.rpc.Start(ctx, connect.NewRequest(&guestv1.StartRequest{Id: id, Command: cmd}))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	defer stream.Close()
	if !stream.Receive() {
		return fmt.Errorf("%w: %w", ErrBroken, errors.Join(stream.Err(), io.ErrUnexpectedEOF))
	}
	return nil
}

// Ended returns how a command ended, and nil for one that runs.
func (g *Guest) Ended(ctx context.Context, id string) (*guestv1.Exit, error) {
	res, err := g.rpc.Get(ctx, connect.NewRequest(&guestv1.GetRequest{Id: id}))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return res.Msg.GetProcess().GetExit(), nil
}

// Output hands what the guest still has of a command's output to out, for at
// most limit.
func (g *Guest) Output(ctx context.Context, id string, limit time.Duration, out func(stderr bool, b []byte)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stream, err := g.rpc.Follow(ctx, connect.NewRequest(&guestv1.FollowRequest{Id: id}))
	if err != nil {
		return
	}
	defer stream.Close()
	_, _ = receive(stream, new(stall.Watch), func(ev *guestv1.Event) (bool, error) {
		handOn(ev, out)
		return len(ev.GetOutput().GetData()) > 0, nil
	})
}

// Shell returns a command that a login shell runs: bash where the image has
// it, else sh.
func Shell(text, user, cwd string, env map[string]string) *guestv1.Command {
	const pick = `[ -x /bin/bash ] && exec /bin/bash -l -c "$1"; exec /bin/sh -l -c "$1"`
	return &guestv1.Command{Argv: []string{"/bin/sh", "-c", pick, "sh", text}, User: user, Cwd: cwd, Env: env}
}

// Status says in words how a command ended.
func Status(exit *guestv1.Exit) string {
	switch exit.GetReason() {
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		return "its memory used up"
	case guestv1.Reason_REASON_SIGNALLED, guestv1.Reason_REASON_KILLED:
		return fmt.Sprintf("signal %d", exit.GetSignal())
	case guestv1.Reason_REASON_TIMED_OUT:
		return "its time used up"
	case guestv1.Reason_REASON_NOT_STARTED:
		return fmt.Sprintf("status %d: it could not be started", exit.GetCode())
	}
	return fmt.Sprintf("status %d", exit.GetCode())
}

// about tells what is wrong with a command from a guest that broke off.
func about(err error) error {
	if err == nil {
		return nil
	}
	switch connect.CodeOf(err) {
	case connect.CodeNotFound:
		return ErrUnknown
	case connect.CodeFailedPrecondition:
		return ErrEnded
	case connect.CodeUnimplemented:
		return ErrOld
	}
	return refused(err)
}
