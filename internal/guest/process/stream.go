package process

import (
	"context"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/journal"
)

// sink is a protocol's side of a stream. An error ends the stream.
type sink interface {
	output(journal.Event) error // the data is the caller's again after
	keepalive() error
	exit(Exit) error
}

// stream sends what a follower reads, and then the exit. It returns when the
// exit was sent, sending failed or ctx ended.
func (c *Command) stream(ctx context.Context, f *Follower, every time.Duration, to sink) error {
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	quiet := time.NewTimer(every)
	defer quiet.Stop()
	for {
		ev, state := f.Next(buf[:])
		done := c.done
		switch state {
		case journal.Ready:
			if err := to.output(ev); err != nil {
				return err
			}
			continue
		case journal.Idle:
			done = nil // there is output to come first
		case journal.Ended:
		}
		quiet.Reset(every)
		select {
		case <-f.Wake():
		case <-done:
			return to.exit(c.exit)
		case <-quiet.C:
			if err := to.keepalive(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.e.ctx.Done():
			return context.Cause(c.e.ctx)
		}
	}
}
