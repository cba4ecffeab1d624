package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of Command.Input.
var (
	// ErrInputClosed says that the command reads no more.
	ErrInputClosed = errors.New("the command's input is closed")
	// ErrGap says that the offset is beyond what was written.
	ErrGap = errors.New("input is missing before this offset")
)

// Append is the offset of whatever comes next.
const Append = -1

// eofKey is what a terminal takes for the end of input.
const eofKey = 4

// input is a command's standard input.
type input struct {
	turn     chan struct{} // a lock that can be waited for with a context
	w        *os.File      // nil: /dev/null
	terminal bool

	mu    sync.Mutex
	acked int64
	eof   bool
}

// Input writes to the standard input or terminal at an offset, and waits
// until the command has room for it. What was written before is not written
// again. The number of bytes that the command was given so far is returned
// along with an error too. With eof, the input ends after data.
func (c *Command) Input(ctx context.Context, offset int64, data []byte, eof bool) (acked int64, err error) {
	in := &c.input
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-ctx.Done():
		return in.bytes(), context.Cause(ctx)
	}
	acked = in.bytes()
	switch {
	case offset == Append:
	case offset < 0:
		return acked, fmt.Errorf("%w: negative offset", ErrInvalid)
	case offset > acked:
		return acked, fmt.Errorf("%w: %d, of which %d were given", ErrGap, offset, acked)
	default:
		data = data[min(int64(len(data)), acked-offset):]
	}
	if in.ended() {
		if len(data) == 0 {
			return acked, nil // said before
		}
		return acked, ErrInputClosed
	}
	if in.w == nil {
		return acked, ErrInputClosed
	}
	if err := in.write(ctx, data); err != nil {
		return in.bytes(), err
	}
	c.unsuspend(data)
	if eof {
		err = in.finish(ctx)
	}
	return in.bytes(), err
}

// write is for the holder of the turn.
func (in *input) write(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		_ = in.w.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := in.w.Write(data)
	if !stop() {
		<-stopped
		_ = in.w.SetWriteDeadline(time.Time{})
	}
	in.mu.Lock()
	in.acked += int64(n)
	in.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.Cause(ctx)
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, os.ErrClosed):
		return ErrInputClosed
	}
	return fmt.Errorf("write input: %w", err)
}

// finish is for the holder of the turn. A terminal's input has no end; what
// its users type for one is not counted as a byte of the input.
func (in *input) finish(ctx context.Context) error {
	in.mu.Lock()
	in.eof = true
	in.mu.Unlock()
	if !in.terminal {
		_ = in.w.Close()
		return nil
	}
	acked := in.bytes()
	err := in.write(ctx, []byte{eofKey})
	in.mu.Lock()
	in.acked = acked
	in.mu.Unlock()
	return err
}

// end closes the input of a command that has ended. It wakes a writer.
func (in *input) end() {
	in.mu.Lock()
	in.eof = true
	in.mu.Unlock()
	if in.w != nil && !in.terminal {
		_ = in.w.Close()
	}
}

func (in *input) bytes() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.acked
}

func (in *input) ended() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.eof
}
