package link

import (
	"context"

	"gvisor.dev/gvisor/pkg/waiter"
)

// Gone returns a context that ends with ctx, and when the guest's end of the
// connection is gone: reset, or, with half, when it has said that it sends no more,
// read or not. Nothing is read for it. stop is to be called.
func (c *Conn) Gone(ctx context.Context, half bool) (_ context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	happened := make(chan struct{}, 1)
	entry := waiter.NewFunctionEntry(waiter.ReadableEvents|waiter.EventRdHUp|waiter.EventHUp|waiter.EventErr, func(waiter.EventMask) {
		select { // the endpoint is locked: nothing of it may be called
		case happened <- struct{}{}:
		default:
		}
	})
	c.wq.EventRegister(&entry)
	go func() {
		defer c.wq.EventUnregister(&entry)
		defer cancel()
		for !c.gone(half) {
			select {
			case <-happened:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

func (c *Conn) gone(half bool) bool {
	now := c.ep.Readiness(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
	return now&(waiter.EventHUp|waiter.EventErr) != 0 || half && now&waiter.EventRdHUp != 0
}
