package agent

import (
	"context"
	"math"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

// behind is the offset of what comes next, whoever wrote what is there.
const behind = math.MaxUint64

// typeInput copies Stdin to the terminal of a command that others may type into as well.
func (f *follower) typeInput(ctx context.Context) {
	if f.o.Stdin == nil {
		return
	}
	chunks, stop := readChunks(f.o.Stdin)
	defer stop()
	given, known := f.given(ctx)
	for known {
		select {
		case <-ctx.Done():
			return
		case data, more := <-chunks:
			if !more {
				return
			}
			given, known = f.typeOn(ctx, given, data)
		}
	}
}

// typeOn types data, where the command was given that many bytes before, and returns how many it
// has after. Where the connection breaks, what the command has got meanwhile is taken for ours:
// of two who type at that moment, one may lose some of it, and nothing is typed twice.
func (f *follower) typeOn(ctx context.Context, given uint64, data []byte) (uint64, bool) {
	var b Backoff
	for {
		resp, err := f.rpc.WriteInput(ctx, connect.NewRequest(&guestv1.WriteInputRequest{Id: f.o.ID, Offset: behind, Data: data}))
		if connect.CodeOf(err) == connect.CodeOutOfRange && err != nil { // an agent that knows no such offset
			resp, err = f.rpc.WriteInput(ctx, connect.NewRequest(&guestv1.WriteInputRequest{Id: f.o.ID, Offset: given, Data: data}))
		}
		if err == nil {
			return resp.Msg.GetAcked(), true
		}
		// The follower looks for the daemon; this only waits for it.
		if _, lost := f.way.Lost(err); !lost || !b.Wait(ctx) {
			return given, false
		}
		now, ok := f.given(ctx)
		if !ok {
			return given, false
		}
		if now > given {
			data = data[min(now-given, uint64(len(data))):]
		}
		if given = now; len(data) == 0 {
			return given, true
		}
	}
}

// given returns how many bytes of input the command has.
func (f *follower) given(ctx context.Context) (n uint64, ok bool) {
	ok = f.insist(ctx, func() error {
		resp, err := f.rpc.Get(ctx, connect.NewRequest(&guestv1.GetRequest{Id: f.o.ID}))
		if err == nil {
			n = resp.Msg.GetProcess().GetStdinAcked()
		}
		return err
	})
	return n, ok
}
