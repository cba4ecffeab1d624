package relay

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"os"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// shellWait is for how long a read waits for output, shellRest for how long none is made
	// after one that brought nothing sooner.
	shellWait = 20 * time.Second
	shellRest = 50 * time.Millisecond
	// shellChunk is how many bytes of output are read at once.
	shellChunk = 64 << 10
	// typedChunk is how many bytes of input are sent at once.
	typedChunk = 16 << 10
	// shellPatience is for how long a daemon that does not answer is tried again.
	shellPatience = 30 * time.Second
)

// AttachShell joins the terminal to a shell of a sandbox, with what it wrote from the cursor
// on, until it ends or the detach keys are typed. It returns the shell once it has ended, and
// nil where it goes on.
func (r *Relay) AttachShell(svc *client.Client, id, shell string, cursor int64) (*action.Shell, error) {
	in, ok := r.Stdin.(*os.File)
	if !ok || !console.IsTerminal(in) || !console.IsTerminal(r.Stdout) {
		return nil, errors.New("no terminal") // the caller has looked
	}
	ctx, leave := context.WithCancelCause(r.Ctx)
	defer leave(nil)
	a := &attached{r: r, svc: svc, id: id, shell: shell, cursor: cursor}
	measure := func() console.Size { return console.SizeOf(r.Stdin, r.Stdout) }
	if err := a.resize(ctx, measure()); err != nil && client.KindOf(err) != client.Conflict { // it has ended
		return nil, err
	}
	t, err := makeRaw(in)
	if err != nil {
		return nil, err
	}
	r.Raw.Store(true)
	defer func() {
		t.restore()
		r.Raw.Store(false)
	}()
	r.withTerminal(measure, t.again)
	typed := make(chan []byte)
	go readTyped(ctx, in, typed) // a read of a terminal can't be called off: it is left for the process to end
	go a.follow(ctx, typed, leave)
	end, err := a.show(ctx)
	switch {
	case errors.Is(context.Cause(ctx), errDetached):
		return nil, nil
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return end, err
}

// attached is a terminal that is joined to a shell.
type attached struct {
	r         *Relay
	svc       *client.Client
	id, shell string
	cursor    int64
	live      bool // what was written before is shown
}

func (a *attached) resize(ctx context.Context, s console.Size) error {
	if s.Cols == 0 || s.Rows == 0 { // it does not say
		return nil
	}
	_, err := a.svc.ResizeShell(ctx, a.id, a.shell, int(min(s.Cols, math.MaxInt16)), int(min(s.Rows, math.MaxInt16)))
	return err
}

// show writes what the shell writes, until it has ended.
func (a *attached) show(ctx context.Context) (*action.Shell, error) {
	var lost time.Time // since when no daemon answers
	for {
		began := time.Now()
		reply, err := a.svc.ReadShell(ctx, a.id, action.ReadShellRequest{
			ShellID: a.shell, Cursor: a.cursor, MaxChars: shellChunk, WaitMS: int(shellWait.Milliseconds()), Encoding: "base64",
		})
		if client.KindOf(err) == client.Unavailable && ctx.Err() == nil {
			if lost.IsZero() {
				lost = began
			}
			if time.Since(lost) < shellPatience {
				rest(ctx)
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		lost = time.Time{}
		out, err := base64.StdEncoding.DecodeString(reply.Output)
		if err != nil || reply.NextCursor < a.cursor || len(out) > shellChunk {
			return nil, stalled(errors.New("its output is none that was asked for"))
		}
		if reply.Cursor > a.cursor {
			a.r.Note("what was written before is no longer kept")
		}
		if !a.live {
			out, a.live = replayed(out), !reply.Truncated
		}
		if _, err := a.r.Stdout.Write(out); err != nil {
			return nil, err
		}
		moved := reply.NextCursor > a.cursor
		a.cursor = reply.NextCursor
		switch {
		case !moved && reply.State == action.Stopped:
			return &reply.Shell, nil
		case !moved && time.Since(began) < shellRest:
			rest(ctx)
		}
	}
}

func rest(ctx context.Context) {
	select {
	case <-time.After(shellRest):
	case <-ctx.Done():
	}
}

// follow sends what is typed, and the terminal's size as it changes.
func (a *attached) follow(ctx context.Context, typed <-chan []byte, leave context.CancelCauseFunc) {
	var keys detaching
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case s := <-a.r.resize:
			err = a.resize(ctx, console.Size{Cols: s.GetCols(), Rows: s.GetRows()})
		case <-keys.due:
			err = a.send(ctx, keys.release())
		case b, ok := <-typed:
			if !ok { // the terminal is gone
				leave(ErrInterrupted)
				return
			}
			text, detach := keys.take(b)
			err = a.send(ctx, text)
			if detach {
				leave(errDetached)
				return
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case client.KindOf(err) == client.Unavailable: // show looks for a daemon, and gives up in the end
			a.r.Note("the daemon did not answer: what was typed last may not have come in")
		case err != nil && client.KindOf(err) != client.Conflict: // it has ended, which show tells
			leave(err)
			return
		}
	}
}

// send types text in the shell.
func (a *attached) send(ctx context.Context, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	_, err := a.svc.WriteShell(ctx, a.id, action.WriteShellRequest{ShellID: a.shell, Input: string(text)})
	return err
}

// readTyped hands on what is typed, until nothing is any more.
func readTyped(ctx context.Context, in io.Reader, typed chan<- []byte) {
	defer close(typed)
	for {
		buf := make([]byte, typedChunk)
		n, err := in.Read(buf)
		if n > 0 {
			select {
			case typed <- buf[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// NoTerminal is what is said where there is no terminal to attach.
func NoTerminal(what, hint string) error {
	return sandbox.Errorf(sandbox.Invalid, "%s: it needs a terminal, and stdin or stdout is none", what).WithHint("%s", hint)
}
