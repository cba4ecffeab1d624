package relay

import (
	"context"
	"fmt"
	"io"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/agent/stall"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
)

// Logs prints what the guest has kept of a command's output, with a note in the place of what
// lies between its beginning and its end, and with follow goes on until the command ends.
func Logs(ctx context.Context, c *console.Console, svc *client.Client, name, id string, follow bool) error {
	resp, err := svc.Commands(name).Get(ctx, connect.NewRequest(&guestv1.GetRequest{Id: id}))
	if err != nil {
		return RPCError(ctx, err)
	}
	p := resp.Msg.GetProcess()
	// A log is for reading: it is escaped wherever it goes.
	out, errs := console.Escaped(c.Stdout), console.Escaped(c.Stderr)
	defer console.Flush(out)
	defer console.Flush(errs)
	o := client.ExecOptions{Stdout: out, Stderr: errs, Notice: c.Note, Dropped: func(s guestv1.Stream, from, to uint64) {
		w := out
		if s == guestv1.Stream_STREAM_STDERR {
			w = errs
		}
		_, _ = io.WriteString(w, excerpt.Note(int64(to-from))) // the next write tells what is wrong
	}}
	if follow || p.GetExit() != nil {
		end, err := svc.Follow(ctx, name, id, o)
		if err == nil {
			console.Flush(out)
			console.Flush(errs)
			c.Note(howEnded(end))
		}
		return err
	}
	return outputSoFar(ctx, svc, name, o, p)
}

// howEnded says how a command ended, in a sentence.
func howEnded(e *guestv1.Exit) string {
	text := fmt.Sprintf("the command ended with exit code %d", exit.Of(e))
	switch e.GetReason() {
	case guestv1.Reason_REASON_TIMED_OUT:
		text = "the command's time was up, and it was killed"
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		text = "the command ran out of memory, and was killed"
	case guestv1.Reason_REASON_KILLED:
		text = killedText(e)
	case guestv1.Reason_REASON_NOT_STARTED:
		return "the command could not be started: " + e.GetError()
	}
	return text + ", after " + (time.Duration(e.GetDurationMs()) * time.Millisecond).String()
}

// outputSoFar prints a running command's output up to where p says it is.
func outputSoFar(ctx context.Context, svc *client.Client, name string, o client.ExecOptions, p *guestv1.Process) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream, which would go on
	stream, err := svc.Commands(name).Follow(ctx, connect.NewRequest(&guestv1.FollowRequest{Id: p.GetId()}))
	if err != nil {
		return RPCError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // it is left early
	ends := map[guestv1.Stream]uint64{
		guestv1.Stream_STREAM_STDOUT: p.GetStdoutBytes(),
		guestv1.Stream_STREAM_STDERR: p.GetStderrBytes(),
	}
	writers := map[guestv1.Stream]io.Writer{
		guestv1.Stream_STREAM_STDOUT: o.Stdout,
		guestv1.Stream_STREAM_STDERR: o.Stderr,
	}
	at := map[guestv1.Stream]uint64{}
	behind := func() bool {
		return at[guestv1.Stream_STREAM_STDOUT] < ends[guestv1.Stream_STREAM_STDOUT] ||
			at[guestv1.Stream_STREAM_STDERR] < ends[guestv1.Stream_STREAM_STDERR]
	}
	var watch stall.Watch
	for behind() && stream.Receive() {
		ev := stream.Msg()
		if d := ev.GetDropped(); d != nil && d.GetTo() > at[d.GetStream()] {
			o.Dropped(d.GetStream(), at[d.GetStream()], d.GetTo())
			at[d.GetStream()] = d.GetTo()
		}
		out := ev.GetOutput()
		w, end := writers[out.GetStream()], out.GetOffset()+uint64(len(out.GetData()))
		// It is not output, of a stream of a newer guest, or was there before.
		news := w != nil && out.GetOffset() >= at[out.GetStream()] && end > out.GetOffset()
		if err := watch.Saw(news); err != nil {
			return stalled(err)
		}
		if !news {
			continue
		}
		if _, err := w.Write(out.GetData()); err != nil {
			return err
		}
		at[out.GetStream()] = end
	}
	if err := stream.Err(); err != nil && behind() {
		return RPCError(ctx, err)
	}
	return nil
}
