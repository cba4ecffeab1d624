package action

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

// Bounds of one read of a shell.
const (
	defaultChars = bulk
	maxChars     = journal.Capacity / 4 // characters have up to four bytes
	plainWindow  = 256 << 10            // bytes that plain text is made of
	maxWait      = 20_000               // milliseconds that a request may name
	maxIdle      = 20 * time.Second     // all waiting of one read
)

// readShell returns what a shell wrote from a cursor on. Cursors are offsets in what
// the shell wrote, whatever the reply makes of it.
func (c *call) readShell(q *action.ReadShellRequest) (any, error) {
	sh, err := c.s.shells.get(q.ShellID)
	if err != nil {
		return nil, err
	}
	if q.MaxChars == 0 {
		q.MaxChars = defaultChars
	}
	if err := checkRead(q, sh.cmd.Written(journal.Stdout)); err != nil {
		return nil, err
	}
	ctx, stop := c.present()
	defer stop()
	if err := sh.await(ctx, q); err != nil {
		return nil, err
	}
	if err := c.take(q.MaxChars); err != nil {
		return nil, err
	}
	r := readFrom(sh.cmd, q)
	r.Shell = sh.state()
	return r, nil
}

// checkRead says what is wrong with a read of a shell that has written so much.
func checkRead(q *action.ReadShellRequest, written int64) error {
	switch {
	case q.MaxChars < 0 || q.MaxChars > maxChars:
		return fmt.Errorf("max_chars is %d: it has to be from 1 to %d", q.MaxChars, maxChars)
	case q.Cursor < 0:
		return errors.New("the cursor is negative")
	case q.Cursor > written:
		return fmt.Errorf("the cursor is %d, and the shell has written %d bytes: it is of another shell", q.Cursor, written)
	case q.WaitMS < 0 || q.WaitMS > maxWait || q.WaitForIdleMS < 0 || q.WaitForIdleMS > maxWait:
		return fmt.Errorf("wait_ms and wait_for_idle_ms have to be from 0 to %d", maxWait)
	case q.Encoding != "" && q.Encoding != "base64":
		return fmt.Errorf("encoding %.16q: it has to be base64, or left out", q.Encoding)
	case q.Encoding != "" && q.Plain:
		return errors.New("plain text is never in base64: leave out plain, or the encoding")
	}
	return nil
}

// await waits as a read asks for it: until there is something at the cursor, and then
// until nothing more comes for a while. A shell that has ended keeps nobody waiting.
func (sh *shell) await(ctx context.Context, q *action.ReadShellRequest) error {
	until := time.Now().Add(maxIdle)
	if q.WaitMS > 0 {
		sh.wait(ctx, q.Cursor, time.Duration(q.WaitMS)*time.Millisecond)
	}
	idle := time.Duration(q.WaitForIdleMS) * time.Millisecond
	for idle > 0 && ctx.Err() == nil {
		left := time.Until(until)
		if left <= 0 || sh.wait(ctx, sh.cmd.Written(journal.Stdout), min(idle, left)) != journal.Ready {
			break
		}
	}
	return context.Cause(ctx)
}

// wait waits for output at an offset.
func (sh *shell) wait(ctx context.Context, from int64, within time.Duration) journal.State {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, state := sh.cmd.Output(ctx, journal.Stdout, from, 1)
	return state
}

// output is what a shell wrote; *process.Command is one.
type output interface {
	Output(ctx context.Context, s journal.Stream, from int64, size int) (journal.Event, journal.State)
}

// readFrom makes the reply to a read of what is there now.
func readFrom(out output, q *action.ReadShellRequest) *action.ReadShellReply {
	size := 4 * q.MaxChars
	switch {
	case q.Plain:
		size = plainWindow
	case q.Encoding != "":
		size = q.MaxChars
	}
	start, raw, final := window(out, q.Cursor, size)
	var got chars
	switch {
	case q.Plain:
		got = plain(raw, q.MaxChars, final)
	case q.Encoding != "":
		got = chars{text: base64.StdEncoding.EncodeToString(raw), used: len(raw)}
	default:
		got = decode(raw, q.MaxChars, final)
	}
	r := &action.ReadShellReply{
		Cursor: start, NextCursor: start + int64(got.used), Output: got.text, Encoding: q.Encoding,
		Truncated: start > q.Cursor || got.full,
	}
	if !got.full { // what is left is the beginning of something, unless there is more behind the window
		_, more, _ := window(out, start+int64(len(raw)), 1)
		r.Truncated = r.Truncated || len(more) > 0
	}
	return r
}

// over is a context that waits for nothing.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// window returns at most size bytes of what is there from an offset on; start is later
// where that is gone. final says that nothing comes behind them.
func window(out output, from int64, size int) (start int64, raw []byte, final bool) {
	start = from
	for len(raw) < size {
		at := start + int64(len(raw))
		ev, state := out.Output(over, journal.Stdout, at, size-len(raw))
		switch {
		case state == journal.Ended:
			return start, raw, true
		case state != journal.Ready:
			return start, raw, false
		case ev.Offset > at && len(raw) > 0: // the oldest was dropped meanwhile
			return start, raw, false
		case ev.Offset > at:
			start = ev.Offset
		}
		raw = append(raw, ev.Data...)
	}
	return start, raw, false
}
