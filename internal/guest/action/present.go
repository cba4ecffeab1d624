package action

import (
	"context"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often it is looked whether a caller who is kept waiting is there.
const lookEvery = time.Second

var errLeft = errors.New("the caller has left")

// present is a context that ends when the caller has left: has closed the connection, and
// not only ended the request. Work that waits ends its wait then, and makes room.
func (c *call) present() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	stop = func() { cancel(nil) }
	sc, ok := c.conn.(syscall.Conn)
	if !ok {
		return ctx, stop
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return ctx, stop
	}
	go func() { // it ends with stop, which the caller has to call
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if hungUp(raw) {
				cancel(errLeft)
				return
			}
		}
	}()
	return ctx, stop
}

// hungUp reports whether the other end is closed in both directions.
func hungUp(raw syscall.RawConn) (gone bool) {
	err := raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n == 1 && fds[0].Revents&unix.POLLHUP != 0
	})
	return gone || err != nil
}
