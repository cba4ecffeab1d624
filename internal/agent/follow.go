package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/agent/stall"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Way is how a command is found again once its connection broke.
type Way interface {
	// Lost makes an error of one of a call's that is fit to show, and reports whether
	// the connection broke or nobody answered, so that the call may be repeated.
	Lost(err error) (shown error, lost bool)
	// Ended looks whether the sandbox went, and the command with it: it returns how
	// the command ended by that, or an error where that can't be told, and
	// nothing where the sandbox is as it was, or nobody answers. starts is how
	// often the sandbox had been started when the command was; "" is not known.
	Ended(ctx context.Context, starts string) (*guestv1.Exit, error)
	// Redial is called before each attempt to connect again.
	Redial(ctx context.Context)
}

// Commands is the agent's service for commands, reached by c at a URL that is near.
// A message of it may have as many bytes as maxMessage.
func Commands(c *http.Client, url string, maxMessage int) guestv1connect.ExecServiceClient {
	return guestv1connect.NewExecServiceClient(c, url,
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxMessage))
}

// Follow runs a command, or follows one that was started before, and returns how
// it ended. Where the connection breaks it looks for the agent for up to 60
// seconds after the last sign of it, and goes on at the byte at which it was.
// The error is ctx's cause, a writer's, or one that is fit to show.
func Follow(ctx context.Context, rpc guestv1connect.ExecServiceClient, way Way, o FollowOptions) (*guestv1.Exit, error) {
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.InputDone == nil {
		o.InputDone = func() {}
	}
	f := &follower{rpc: rpc, way: way, known: make(chan struct{})}
	if o.Command == nil {
		if !o.Join {
			o.Stdin = nil
		}
		f.markKnown("")
	} else {
		o.Command = proto.CloneOf(o.Command)
		o.Command.Stdin = o.Command.Stdin || o.Stdin != nil
		if o.ID == "" {
			o.ID = strings.ToLower(rand.Text())
		}
	}
	f.o = o
	return f.run(ctx)
}

// FollowOptions say which command is followed, and where its streams go.
type FollowOptions struct {
	// ID is the command's, 1 to 64 of [A-Za-z0-9._-]; a random one where empty.
	ID string
	// Command is started; nil: that of ID was started before.
	Command *guestv1.Command
	// Join: Command is nil, and Stdin goes to the terminal of that of ID behind what it was
	// given before, and what others type. It is not ended with Stdin.
	Join bool
	// Stdin is read to its end; nil leaves the command without input. A Read
	// that blocks when the command has ended is left behind, unless Stdin has
	// a working SetReadDeadline.
	Stdin io.Reader
	// InputDone is called once the command was given Stdin to its end, or takes no more.
	InputDone func()
	// Stdout and Stderr get the command's output, each byte once and in
	// order; nil drops it. A write that fails ends Follow with its error.
	Stdout, Stderr io.Writer
	// Resize and Signals are forwarded until they are closed or Follow returns.
	// Signals go to the foreground process group of a terminal, else to the
	// command's process group. One that the guest has not taken after ten seconds
	// ends Follow.
	Resize  <-chan *guestv1.Terminal
	Signals <-chan int32
	// Dropped is called in the place of Notice for output that is gone, from the byte that
	// was expected to the next that comes.
	Dropped func(s guestv1.Stream, from, to uint64)
	// Notice is called with what the user should be told: that the sandbox
	// was started again, or that output was lost.
	Notice func(string)
}

// follower is one Follow.
type follower struct {
	rpc guestv1connect.ExecServiceClient
	way Way
	o   FollowOptions

	outOffset, errOffset uint64 // what was printed

	stall stall.Watch // over all streams of the command

	known     chan struct{} // closed once the guest knows the command
	knownOnce sync.Once
	starts    string // of the sandbox, when it first answered; "" where not known
}

func (f *follower) markKnown(starts string) {
	if f.starts == "" {
		f.starts = starts
	}
	f.knownOnce.Do(func() { close(f.known) })
}

func (f *follower) isKnown() bool {
	select {
	case <-f.known:
		return true
	default:
		return false
	}
}

// run prints the command's output until it ends, with the senders beside it.
func (f *follower) run(ctx context.Context) (*guestv1.Exit, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	side, stop := context.WithCancel(ctx)
	var senders sync.WaitGroup
	defer senders.Wait()
	defer stop()
	senders.Go(func() { f.sendInput(side) })
	senders.Go(func() { f.sendSizes(side) })
	senders.Go(func() { f.sendSignals(side, giveUp) })

	var b Backoff
	for {
		exit, progress, err := f.attempt(ctx)
		if exit != nil || ctx.Err() != nil {
			return f.explained(ctx, exit), ctxOr(ctx, exit, err)
		}
		if progress {
			b.Reset()
		}
		if we, ok := errors.AsType[*writeError](err); ok {
			return nil, we.err
		}
		e, lost := f.way.Lost(err)
		if exit, err := f.ended(ctx); exit != nil || err != nil {
			return exit, err
		}
		if !lost {
			return nil, e
		}
		if !b.Wait(ctx) {
			return nil, ctxOr(ctx, nil, e)
		}
		f.way.Redial(ctx)
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
func (f *follower) attempt(ctx context.Context) (exit *guestv1.Exit, progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream where it is left early
	stream, err := f.open(ctx)
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	answered := false
	exit, err = receive(stream, &f.stall, func(ev *guestv1.Event) (bool, error) {
		if !answered {
			answered = true
			f.answered(stream.ResponseHeader())
		}
		progress = progress || ev.GetStarted() == nil
		return f.take(ev)
	})
	if errors.Is(err, stall.Err) {
		return nil, false, stalled(err)
	}
	return exit, progress, err
}

// answered notes what the daemon says beside the guest's first event.
func (f *follower) answered(h http.Header) {
	f.markKnown(h.Get(api.HeaderStarts))
	if n := h.Get(api.HeaderNotice); n != "" {
		f.o.Notice(n)
	}
}

func (f *follower) open(ctx context.Context) (*connect.ServerStreamForClient[guestv1.Event], error) {
	if !f.isKnown() {
		return f.rpc.Start(ctx, connect.NewRequest(&guestv1.StartRequest{Id: f.o.ID, Command: f.o.Command}))
	}
	return f.rpc.Follow(ctx, connect.NewRequest(&guestv1.FollowRequest{
		Id: f.o.ID, StdoutOffset: f.outOffset, StderrOffset: f.errOffset,
	}))
}

// writeError is an error of the caller's own writer.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// ended asks whether the sandbox went, once there was a command to go with it.
func (f *follower) ended(ctx context.Context) (*guestv1.Exit, error) {
	if !f.isKnown() {
		return nil, nil
	}
	return f.way.Ended(ctx, f.starts)
}

// An end by SIGKILL is looked behind so often, and after so long a time.
const (
	killedLooks = 6
	killedLook  = 50 * time.Millisecond
)

// explained is how a command ended. One that was killed, and the agent does not know by whom,
// may have been the first to go of a sandbox that went: that is known a moment later.
func (f *follower) explained(ctx context.Context, exit *guestv1.Exit) *guestv1.Exit {
	if exit.GetReason() != guestv1.Reason_REASON_SIGNALLED || exit.GetSignal() != killSignal || exit.GetError() != "" {
		return exit
	}
	for range killedLooks {
		if why, err := f.ended(ctx); why != nil && err == nil {
			return why
		}
		select {
		case <-time.After(killedLook):
		case <-ctx.Done():
			return exit
		}
	}
	return exit
}

// stalled is the error of a guest that sends nothing, for ever.
func stalled(err error) *sandbox.Error {
	return &sandbox.Error{
		Kind: sandbox.Internal, Msg: fmt.Sprintf("the sandbox's agent makes no sense: %v", err),
		Hint: "it is not to be trusted any more: carboy rm -f", Err: err,
	}
}

// take prints what is new in ev, and reports whether anything was. After a
// Start that was sent again the output comes from offset 0, so what was printed
// is left out.
func (f *follower) take(ev *guestv1.Event) (news bool, _ error) {
	if d := ev.GetDropped(); d != nil {
		offset, _, name := f.stream(d.GetStream())
		if offset != nil && d.GetTo() > *offset {
			f.lost(d.GetStream(), name, *offset, d.GetTo())
			*offset = d.GetTo()
		}
		return false, nil // output comes after it, or it is said again and again
	}
	out := ev.GetOutput()
	if len(out.GetData()) == 0 {
		return false, nil
	}
	offset, w, name := f.stream(out.GetStream())
	if offset == nil {
		return false, nil
	}
	data := out.GetData()
	switch at := out.GetOffset(); {
	case at > *offset:
		f.lost(out.GetStream(), name, *offset, at)
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

func (f *follower) stream(s guestv1.Stream) (offset *uint64, w io.Writer, name string) {
	switch s {
	case guestv1.Stream_STREAM_STDOUT:
		return &f.outOffset, f.o.Stdout, "stdout"
	case guestv1.Stream_STREAM_STDERR:
		return &f.errOffset, f.o.Stderr, "stderr"
	default:
		return nil, nil, ""
	}
}

func (f *follower) lost(s guestv1.Stream, name string, from, to uint64) {
	if f.o.Dropped != nil {
		f.o.Dropped(s, from, to)
		return
	}
	f.o.Notice(fmt.Sprintf("%d bytes of %s were dropped before they could be read", to-from, name))
}
