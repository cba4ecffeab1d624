package relay

import (
	"context"
	"errors"
	"io"
	"os"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/agent/stall"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Detach starts cmd and leaves it running, on a terminal that others can join where f says
// so; else, with stdin, once it was given that to its end. It returns the command's ID.
func Detach(ctx context.Context, c *console.Console, svc *client.Client, id string, cmd *guestv1.Command, f Options) (string, error) {
	command := newCommandID()
	switch {
	case f.TTY:
		giveTerminal(c, cmd, console.SizeOf(c.Stdin, c.Stdout, c.Stderr))
	case f.Stdin:
		return command, detachGiven(ctx, c, svc, id, command, cmd)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream alone
	stream, err := svc.Commands(id).Start(ctx, connect.NewRequest(&guestv1.StartRequest{Id: command, Command: cmd}))
	if err != nil {
		return "", RPCError(ctx, err)
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
			return "", Report(c, ev.GetExit(), cmd, nil)
		case ev.GetExit() != nil:
			return command, nil
		}
	}
	if err := stream.Err(); err != nil {
		return "", RPCError(ctx, err)
	}
	return "", sandbox.Errorf(sandbox.Unavailable, "the guest did not say whether the command started")
}

// errGiven is the cause of a context that ended with a command's input.
var errGiven = errors.New("the command was given all of its input")

// detachGiven starts cmd as command, passes stdin on to its end, and leaves it running.
func detachGiven(ctx context.Context, c *console.Console, svc *client.Client, id, command string, cmd *guestv1.Command) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end, err := svc.Exec(ctx, id, client.ExecOptions{
		ID: command, Command: cmd, Stdin: c.Stdin, Notice: c.Note, InputDone: func() { cancel(errGiven) },
	})
	switch {
	case end.GetReason() == guestv1.Reason_REASON_NOT_STARTED:
		return Report(c, end, cmd, nil)
	case end != nil || context.Cause(ctx) == errGiven:
		return nil
	}
	abandon(ctx, svc, id, command, err)
	return err
}

// checkUnread refuses to leave input unread that is there already, and tells of one that
// may come yet.
func checkUnread(c *console.Console) error {
	waits, open := unread(c.Stdin)
	switch {
	case waits:
		return usage.Errorf("stdin has input, which a command that is left running does not get").
			WithHint("-i passes it on, up to its end; -i=false leaves it")
	case open:
		c.Note("stdin is not passed on to a command that is left running: -i does, up to its end; -i=false leaves out this line")
	}
	return nil
}

// unread reports whether r, carboy's stdin, has input that waits, or else may have some later.
// A device has none, such as a terminal, where nobody types ahead for a command, or /dev/null.
func unread(r io.Reader) (waits, open bool) {
	f, ok := r.(*os.File)
	if !ok || f == nil {
		return false, false
	}
	fi, err := f.Stat()
	switch {
	case err != nil || fi.Mode()&os.ModeDevice != 0:
		return false, false
	case fi.Mode().IsRegular():
		at, err := f.Seek(0, io.SeekCurrent)
		return err == nil && at < fi.Size(), false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, 0); err != nil {
		return false, false
	}
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	return err == nil && n > 0, fds[0].Revents == 0
}
