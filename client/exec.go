package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/stall"
)

// ExecOptions say what Exec runs and where its streams go. Only Command is
// needed.
type ExecOptions struct {
	// ID is the command's, 1 to 64 of [A-Za-z0-9._-]; a random one where empty.
	ID      string
	Command *guestv1.Command
	// Stdin is read to its end; nil leaves the command without input. A Read
	// that blocks when the command has ended is left behind, unless Stdin has
	// a working SetReadDeadline.
	Stdin io.Reader
	// Stdout and Stderr get the command's output, each byte once and in
	// order; nil drops it. A write that fails ends Exec with its error.
	Stdout, Stderr io.Writer
	// Resize and Signals are forwarded until they are closed or Exec returns.
	// Signals go to the foreground process group of a terminal, else to the
	// command's process group. One that the guest has not taken after ten seconds
	// ends Exec.
	Resize  <-chan *guestv1.Terminal
	Signals <-chan int32
	// Notice is called with what the user should be told: that the sandbox
	// was started again, or that output was lost.
	Notice func(string)
}

// Exec runs a command in a sandbox and returns how it ended. A sandbox that
// is stopped is started. Where the connection breaks, as when the daemon is
// killed, Exec finds the daemon again for up to 60 seconds after the last sign
// of it, and goes on where it was: nothing is printed twice or left out.
//
// A sandbox that ends takes its commands along: the Exit says so. The error is
// ctx's cause, a writer's, or an *Error.
func (c *Client) Exec(ctx context.Context, id string, o ExecOptions) (*guestv1.Exit, error) {
	if len(o.Command.GetArgv()) == 0 {
		return nil, &Error{Kind: Invalid, Msg: "exec: no command was given"}
	}
	o.Command = proto.CloneOf(o.Command)
	o.Command.Stdin = o.Command.Stdin || o.Stdin != nil
	if o.ID == "" {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails
		o.ID = hex.EncodeToString(b[:])
	}
	return c.newExecution(id, o).run(ctx)
}

// Follow attaches to a command that was started before and returns how it
// ended. It prints the output from its start, as far as the guest still has
// it. Command and Stdin of o are not used.
func (c *Client) Follow(ctx context.Context, id, command string, o ExecOptions) (*guestv1.Exit, error) {
	o.ID, o.Command, o.Stdin = command, nil, nil
	x := c.newExecution(id, o)
	x.markKnown("")
	return x.run(ctx)
}

// Commands returns the guest's own service for commands: to start one without
// following it, to list or to signal them. Its errors are Connect's.
func (c *Client) Commands(id string) guestv1connect.ExecServiceClient {
	return guestv1connect.NewExecServiceClient(c.guest, c.base+path(id, "/guest"),
		connect.WithAcceptCompression("gzip", nil, nil), // the socket is near
		connect.WithReadMaxBytes(maxAnswer))
}

// execution is one Exec.
type execution struct {
	c       *Client
	sandbox string
	o       ExecOptions
	rpc     guestv1connect.ExecServiceClient

	outOffset, errOffset uint64 // what was printed

	stall stall.Watch // over all streams of the command

	known     chan struct{} // closed once the guest knows the command
	knownOnce sync.Once
	starts    string // of the sandbox, when it first answered; "" where not known
}

func (c *Client) newExecution(id string, o ExecOptions) *execution {
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	return &execution{c: c, sandbox: id, o: o, rpc: c.Commands(id), known: make(chan struct{})}
}

func (x *execution) markKnown(starts string) {
	if x.starts == "" {
		x.starts = starts
	}
	x.knownOnce.Do(func() { close(x.known) })
}

func (x *execution) isKnown() bool {
	select {
	case <-x.known:
		return true
	default:
		return false
	}
}

// run prints the command's output until it ends, with the senders beside it.
func (x *execution) run(ctx context.Context) (*guestv1.Exit, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	side, stop := context.WithCancel(ctx)
	var senders sync.WaitGroup
	defer senders.Wait()
	defer stop()
	senders.Go(func() { x.sendInput(side) })
	senders.Go(func() { x.sendSizes(side) })
	senders.Go(func() { x.sendSignals(side, giveUp) })

	var b backoff
	for {
		exit, progress, err := x.attempt(ctx)
		if exit != nil || ctx.Err() != nil {
			return exit, ctxOr(ctx, exit, err)
		}
		if progress {
			b.reset()
		}
		if we, ok := errors.AsType[*writeError](err); ok {
			return nil, we.err
		}
		e, lost := x.c.rpcError(err)
		if exit, err := x.sandboxEnded(ctx); exit != nil || err != nil {
			return exit, err
		}
		if !lost {
			return nil, e
		}
		if !b.wait(ctx) {
			return nil, ctxOr(ctx, nil, e)
		}
		x.c.dialAgain(ctx)
	}
}

// ctxOr returns ctx's cause where it ended before the command did, else err.
func ctxOr(ctx context.Context, exit *guestv1.Exit, err error) error {
	if exit == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// attempt starts or follows the command once. progress says that it learned
// anything new, if only that the command still runs.
func (x *execution) attempt(ctx context.Context) (exit *guestv1.Exit, progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream where it is left early
	stream, err := x.open(ctx)
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	answered := false
	for stream.Receive() {
		if !answered {
			answered = true
			x.answered(stream.ResponseHeader())
		}
		if e := stream.Msg().GetExit(); e != nil {
			return e, true, nil
		}
		progress = progress || stream.Msg().GetStarted() == nil
		news, err := x.take(stream.Msg())
		if err != nil {
			return nil, true, err
		}
		if err := x.stall.Saw(news); err != nil {
			return nil, false, stalled(err)
		}
	}
	if err := stream.Err(); err != nil {
		return nil, progress, err
	}
	return nil, progress, errors.New("the stream ended before the command did")
}

// answered notes what the daemon says beside the guest's first event.
func (x *execution) answered(h http.Header) {
	x.markKnown(h.Get(api.HeaderStarts))
	if n := h.Get(api.HeaderNotice); n != "" {
		x.o.Notice(n)
	}
}

func (x *execution) open(ctx context.Context) (*connect.ServerStreamForClient[guestv1.Event], error) {
	if !x.isKnown() {
		return x.rpc.Start(ctx, connect.NewRequest(&guestv1.StartRequest{Id: x.o.ID, Command: x.o.Command}))
	}
	return x.rpc.Follow(ctx, connect.NewRequest(&guestv1.FollowRequest{
		Id: x.o.ID, StdoutOffset: x.outOffset, StderrOffset: x.errOffset,
	}))
}

// writeError is an error of the caller's own writer.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// stalled is the error of a guest that sends nothing, for ever.
func stalled(err error) *Error {
	return &Error{
		Kind: Internal, Msg: fmt.Sprintf("the sandbox's agent makes no sense: %v", err),
		Hint: "it is not to be trusted any more: carboy rm -f", Err: err,
	}
}

// take prints what is new in ev, and reports whether anything was. After a
// Start that was sent again the output comes from offset 0, so what was printed
// is left out.
func (x *execution) take(ev *guestv1.Event) (news bool, _ error) {
	if d := ev.GetDropped(); d != nil {
		offset, _, name := x.stream(d.GetStream())
		if offset != nil && d.GetTo() > *offset {
			x.lost(name, d.GetTo()-*offset)
			*offset = d.GetTo()
		}
		return false, nil // output comes after it, or it is said again and again
	}
	out := ev.GetOutput()
	if len(out.GetData()) == 0 {
		return false, nil
	}
	offset, w, name := x.stream(out.GetStream())
	if offset == nil {
		return false, nil
	}
	data := out.GetData()
	switch at := out.GetOffset(); {
	case at > *offset:
		x.lost(name, at-*offset)
		*offset = at
	case *offset-at >= uint64(len(data)):
		return false, nil
	default:
		data = data[*offset-at:]
	}
	n, err := w.Write(data)
	*offset += uint64(max(n, 0))
	if err != nil {
		return true, &writeError{err}
	}
	return true, nil
}

func (x *execution) stream(s guestv1.Stream) (offset *uint64, w io.Writer, name string) {
	switch s {
	case guestv1.Stream_STREAM_STDOUT:
		return &x.outOffset, x.o.Stdout, "stdout"
	case guestv1.Stream_STREAM_STDERR:
		return &x.errOffset, x.o.Stderr, "stderr"
	default:
		return nil, nil, ""
	}
}

func (x *execution) lost(name string, n uint64) {
	x.o.Notice(fmt.Sprintf("%d bytes of %s were dropped before they could be read", n, name))
}

// sandboxEnded looks whether the sandbox went, and the command with it: it
// returns how the command ended by that, or an error where that can't be told.
// It returns nothing where the sandbox is as it was, or nobody answers.
func (x *execution) sandboxEnded(ctx context.Context) (*guestv1.Exit, error) {
	if !x.isKnown() {
		return nil, nil
	}
	sb, err := x.c.Get(ctx, x.sandbox)
	if err != nil {
		if KindOf(err) == NotFound {
			return endedBy("removed"), nil
		}
		return nil, ctxOr(ctx, nil, nil)
	}
	if sb.State == "stopped" || sb.State == "removing" {
		return endedBy(sb.Ended), nil
	}
	if x.starts != "" && x.starts != strconv.Itoa(sb.Starts) {
		return endedBy("restarted"), nil
	}
	return nil, nil
}

// endedBy is the end of a command whose sandbox ended for a reason.
func endedBy(reason string) *guestv1.Exit {
	e := &guestv1.Exit{Code: 128 + 9, Signal: 9, Reason: guestv1.Reason_REASON_KILLED, KilledBy: "sandbox"}
	switch reason {
	case "out_of_memory":
		e.Reason, e.KilledBy, e.Error = guestv1.Reason_REASON_OUT_OF_MEMORY, "", "the sandbox ran out of memory"
	case "expired":
		e.Error = "the sandbox's time ran out"
	case "stopped", "removed", "restarted":
		e.Error = "the sandbox was " + reason
	case "":
		e.Error = "the sandbox ended"
	default:
		e.Error = "the sandbox ended: " + reason
	}
	return e
}
