package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/stall"
)

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [flags] NAME [ID]",
		Short: "Show what happened to a sandbox, or a command's output",
		Args:  rangeArgs(1, "NAME", "ID"),
		RunE: interruptible(func(ctx context.Context, args []string) error {
			if len(args) == 2 {
				return a.commandLogs(ctx, args[0], args[1], follow)
			}
			return a.logs(ctx, args[0], follow)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as more happens, until Ctrl-C or the end")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `With NAME alone, the events of the sandbox. With the ID of a command that
carboy exec --detach started, what is kept of its stdout and stderr, with control
characters escaped.
--json writes an array of events; with -f, one event a line.`,
		examples: []string{"carboy logs web", "carboy logs -f web 3f0c9a4471d2e86b"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) logs(ctx context.Context, name string, follow bool) error {
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	all := []api.Event{}
	for ev, err := range svc.Events(ctx, name, follow) {
		if err != nil {
			return err
		}
		switch {
		case a.JSON && follow:
			err = console.WriteJSONLine(a.Stdout, ev)
		case a.JSON:
			all = append(all, ev)
		default:
			err = a.PrintLine(ev.Time.Local().Format(time.DateTime) + "  " + padded(ev.Type) + ev.Message)
		}
		if err != nil {
			return err
		}
	}
	if a.JSON && !follow {
		return a.WriteJSON(all)
	}
	return nil
}

// padded makes the common types of events one column.
func padded(s string) string {
	const width = 9
	for len(s) < width {
		s += " "
	}
	return s + "  "
}

// commandLogs prints what the guest has kept of a command's output, and with
// follow goes on until the command ends.
func (a *app) commandLogs(ctx context.Context, name, id string, follow bool) error {
	if a.JSON {
		return usage.Errorf("logs: --json can't go with ID: output is bytes")
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	resp, err := svc.Commands(name).Get(ctx, connect.NewRequest(&guestv1.GetRequest{Id: id}))
	if err != nil {
		return rpcError(ctx, err)
	}
	p := resp.Msg.GetProcess()
	// A log is for reading: it is escaped wherever it goes.
	out, errs := console.Escaped(a.Stdout), console.Escaped(a.Stderr)
	defer console.Flush(out)
	defer console.Flush(errs)
	o := client.ExecOptions{Stdout: out, Stderr: errs, Notice: a.Note}
	if follow || p.GetExit() != nil {
		_, err = svc.Follow(ctx, name, id, o)
		return err
	}
	return a.outputSoFar(ctx, svc, name, o, p)
}

// outputSoFar prints a running command's output up to where p says it is.
func (a *app) outputSoFar(ctx context.Context, svc *client.Client, name string, o client.ExecOptions, p *guestv1.Process) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream, which would go on
	stream, err := svc.Commands(name).Follow(ctx, connect.NewRequest(&guestv1.FollowRequest{Id: p.GetId()}))
	if err != nil {
		return rpcError(ctx, err)
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
			o.Notice(fmt.Sprintf("the first %d bytes are no longer kept", d.GetTo()))
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
		return rpcError(ctx, err)
	}
	return nil
}
