package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent/stall"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// ErrUnreached is the cause of an error for a guest that no connection could
// be made to: nothing was begun there by this call.
var ErrUnreached = errors.New("the guest could not be reached")

// maxOutput is more than a command can write. A guest that says so is wrong.
const maxOutput = 1 << 50

// inputPiece is how much of a command's input is sent at once.
const inputPiece = 64 << 10

// Keep is how many bytes of each end of a command's outputs are kept.
type Keep struct{ Head, Tail int }

// Outcome is how a command ended.
type Outcome struct {
	Exit           *guestv1.Exit
	Stdout, Stderr excerpt.Excerpt
	// Begun: it ran, or may have. It is said along with an error.
	Begun bool
}

// Exec runs a command to its end and keeps the two ends of each of
// its outputs; of the rest only the number is known, and no more of it than
// one message is held at a time. Where cmd has its input open it is given
// input, and the end of it.
//
// Where ctx ends first, the command and all that it started are killed, and
// the Outcome has what was written until then.
func (g *Guest) Exec(ctx context.Context, cmd *guestv1.Command, input []byte, keep Keep) (o Outcome, err error) {
	out, errs := kept{excerpt.New(keep.Head, keep.Tail)}, kept{excerpt.New(keep.Head, keep.Tail)}
	of := func(s guestv1.Stream) kept {
		if s == guestv1.Stream_STREAM_STDERR {
			return errs
		}
		return out
	}
	err = g.exec(ctx, cmd, input, &o, func(ev *guestv1.Event) {
		switch ev := ev.GetEvent().(type) {
		case *guestv1.Event_Output_:
			of(ev.Output.GetStream()).add(ev.Output.GetOffset(), ev.Output.GetData())
		case *guestv1.Event_Dropped_:
			of(ev.Dropped.GetStream()).add(ev.Dropped.GetTo(), nil)
		}
	})
	o.Stdout, o.Stderr = out.Excerpt(), errs.Excerpt()
	return o, err
}

// Run is Exec for a command without input whose output is handed to out as it
// comes, if out is not nil.
func (g *Guest) Run(ctx context.Context, cmd *guestv1.Command, out func(stderr bool, b []byte)) (*guestv1.Exit, error) {
	var o Outcome
	err := g.exec(ctx, cmd, nil, &o, func(ev *guestv1.Event) { handOn(ev, out) })
	return o.Exit, err
}

// handOn hands an event's output to out, and in the place of what is gone a note of how much.
func handOn(ev *guestv1.Event, out func(stderr bool, b []byte)) {
	if out == nil {
		return
	}
	switch ev := ev.GetEvent().(type) {
	case *guestv1.Event_Output_:
		out(ev.Output.GetStream() == guestv1.Stream_STREAM_STDERR, ev.Output.GetData())
	case *guestv1.Event_Dropped_:
		if d := ev.Dropped; d.GetTo() > d.GetFrom() && d.GetTo() <= maxOutput {
			out(d.GetStream() == guestv1.Stream_STREAM_STDERR, []byte(excerpt.Note(int64(d.GetTo()-d.GetFrom()))))
		}
	}
}

const (
	killTimeout = 5 * time.Second
	killSignal  = 9
)

// exec hands the events of a new command to each, up to its end, which it notes
// in o. A command that can't be followed to its end is killed.
func (g *Guest) exec(ctx context.Context, cmd *guestv1.Command, input []byte, o *Outcome, each func(*guestv1.Event)) error {
	id := "x" + rand.Text()
	err := g.follow(ctx, id, cmd, input, o, each)
	if err == nil {
		return nil
	}
	if o.Begun {
		kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
		defer cancel()
		_ = g.Signal(kill, id, killSignal, true, "")
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (g *Guest) follow(ctx context.Context, id string, cmd *guestv1.Command, input []byte, o *Outcome, each func(*guestv1.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	fed := make(chan struct{})
	close(fed)
	defer func() { cancel(); <-fed }()
	stream, err := g.rpc.Start(ctx, connect.NewRequest(&guestv1.StartRequest{Id: id, Command: cmd}))
	if err == nil {
		defer stream.Close()
		o.Exit, err = receive(stream, new(stall.Watch), func(ev *guestv1.Event) (bool, error) {
			if !o.Begun && cmd.GetStdin() {
				fed = make(chan struct{})
				go func() { defer close(fed); g.feed(ctx, id, input) }()
			}
			o.Begun = true
			each(ev)
			return len(ev.GetOutput().GetData()) > 0, nil
		})
	}
	if err == nil {
		finish(stream, cancel)
		return nil
	}
	err = refused(err)
	if _, refusal := errors.AsType[*Refusal](err); !refusal && !errors.Is(err, ErrUnreached) {
		o.Begun = true
	}
	return err
}

// receive hands the events of a command to each, which reports whether there was
// anything new in one, up to the exit, which it returns. A stream that ends
// before, or that goes on without saying anything, is an error.
func receive(
	stream *connect.ServerStreamForClient[guestv1.Event], w *stall.Watch, each func(*guestv1.Event) (news bool, err error),
) (*guestv1.Exit, error) {
	for stream.Receive() {
		news, err := each(stream.Msg())
		if err != nil {
			return nil, err
		}
		if exit := stream.Msg().GetExit(); exit != nil {
			return exit, nil
		}
		if err := w.Saw(news); err != nil {
			return nil, err
		}
	}
	return nil, cmp.Or(stream.Err(), errCutShort)
}

// errCutShort is the error of a stream that ends as if it were whole.
var errCutShort = errors.New("the stream ended before the command did")

// finishTimeout is how long a guest may take to end what it has nothing to add
// to.
const finishTimeout = time.Second

// finish reads a stream's end, after which its connection can be used again. A
// guest that has more to say loses it.
func finish(stream *connect.ServerStreamForClient[guestv1.Event], cancel func()) {
	defer time.AfterFunc(finishTimeout, cancel).Stop()
	conn, err := stream.Conn()
	if err != nil {
		return
	}
	for range 2 { // the message that says so, and the end itself
		if conn.Receive(new(guestv1.Event)) == nil {
			return
		}
	}
}

// kept is what is kept of one output.
type kept struct{ *excerpt.Keeper }

// add takes what was written at an offset. A guest that says less than it said
// before, or more than can be, is not believed.
func (k kept) add(offset uint64, b []byte) {
	at := uint64(k.All())
	if offset > maxOutput-uint64(len(b)) {
		return
	}
	if offset < at {
		b = b[min(uint64(len(b)), at-offset):]
	}
	k.Skip(int64(max(offset, at) - at))
	_, _ = k.Write(b) // never fails
}

// feed writes a command's input and ends it. A command that reads no more, or
// is gone, gets no more.
func (g *Guest) feed(ctx context.Context, id string, input []byte) {
	for at := 0; ; {
		end := min(at+inputPiece, len(input))
		last := end == len(input)
		_, err := g.rpc.WriteInput(ctx, connect.NewRequest(&guestv1.WriteInputRequest{
			Id: id, Offset: uint64(at), Data: input[at:end], Eof: last,
		}))
		if err != nil || last {
			return
		}
		at = end
	}
}

// maxScript is the longest command that becomes an argument: the kernel takes
// 128 KiB of one.
const maxScript = 64 << 10

// Script returns a command that a login shell runs in the directory dir, which
// is made, as its user, where it is missing; input is what Exec is to give
// it. It is one shell: to start another costs more than all else here. What
// precedes text is on its first line, so that lines are numbered as in text. A
// long text goes by the input, and is then the command's alone to read.
func Script(text, dir string, env map[string]string) (cmd *guestv1.Command, input []byte) {
	at := shell.Quote(dir)
	line := "[ -d " + at + " ] || mkdir -p -- " + at + " || exit; cd -- " + at + " || exit; "
	cmd = &guestv1.Command{Env: env, Cwd: "/"}
	if p, ok := env["PATH"]; ok { // which a login shell sets anew
		cmd.Env = maps.Clone(env)
		cmd.Env[keptPath] = p
		line += "PATH=$" + keptPath + "; unset " + keptPath + "; "
	}
	if len(text) > maxScript {
		cmd.Stdin, input = true, []byte(text)
		text = `eval "$(cat)"`
	}
	cmd.Argv = []string{"/bin/sh", "-l", "-c", line + text}
	return cmd, input
}

// keptPath has a command's PATH for it while a login shell sets its own: no
// value of a variable is in an argument, which others may read.
const keptPath = "_CARBOY_PATH"

// Tagged lists the IDs of the commands with a tag that have not ended.
func (g *Guest) Tagged(ctx context.Context, tag string) ([]string, error) {
	all, err := g.Commands(ctx, tag)
	var ids []string
	for _, p := range all {
		if p.GetExit() == nil {
			ids = append(ids, p.GetId())
		}
	}
	return ids, err
}

// Commands lists the commands with a tag that the agent knows, those that have ended too.
func (g *Guest) Commands(ctx context.Context, tag string) (out []*guestv1.Process, err error) {
	res, err := g.rpc.List(ctx, connect.NewRequest(&guestv1.ListRequest{}))
	if err != nil {
		return nil, refused(err)
	}
	for _, p := range res.Msg.GetProcesses() {
		if p.GetCommand().GetTag() == tag {
			out = append(out, p)
		}
	}
	return out, nil
}
