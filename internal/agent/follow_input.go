package agent

import (
	"context"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const inputChunk = 64 << 10

// waitKnown blocks until the guest knows the command, or ctx ends.
func (f *follower) waitKnown(ctx context.Context) bool {
	select {
	case <-f.known:
		return true
	case <-ctx.Done():
		return false
	}
}

// insist repeats call until it works, the guest refuses it, or there is no
// one left to call. It reports whether it worked.
func (f *follower) insist(ctx context.Context, call func() error) bool {
	var b Backoff
	for {
		err := call()
		if err == nil {
			return true
		}
		// The follower looks for the daemon; this only waits for it.
		if _, lost := f.way.Lost(err); !lost || !b.Wait(ctx) {
			return false
		}
	}
}

// sendInput copies Stdin to the command. Where the command no longer takes
// it, the rest is left unread.
func (f *follower) sendInput(ctx context.Context) {
	if f.o.Join {
		f.typeInput(ctx)
		return
	}
	if !f.o.Command.GetStdin() || !f.waitKnown(ctx) {
		return
	}
	if f.o.Stdin == nil {
		f.writeInput(ctx, 0, nil, true)
		return
	}
	chunks, stop := readChunks(f.o.Stdin)
	defer stop()
	var offset uint64
	for {
		select {
		case <-ctx.Done():
			return
		case data, more := <-chunks:
			if !f.writeInput(ctx, offset, data, !more) || !more {
				f.o.InputDone()
				return
			}
			offset += uint64(len(data))
		}
	}
}

// writeInput delivers data, which starts at offset, and then the end of input
// where eof is set.
func (f *follower) writeInput(ctx context.Context, offset uint64, data []byte, eof bool) bool {
	var b Backoff
	for {
		var acked uint64
		ok := f.insist(ctx, func() error {
			resp, err := f.rpc.WriteInput(ctx, connect.NewRequest(&guestv1.WriteInputRequest{
				Id: f.o.ID, Offset: offset, Data: data, Eof: eof,
			}))
			if err == nil {
				acked = resp.Msg.GetAcked()
			}
			return err
		})
		if !ok || acked < offset {
			return false
		}
		taken := acked - offset
		if taken >= uint64(len(data)) {
			return true
		}
		offset, data = acked, data[taken:]
		if taken > 0 {
			b.Reset()
		} else if !b.Wait(ctx) {
			return false
		}
	}
}

// readChunks reads r to its end on a goroutine of its own, never more than
// one chunk ahead, and closes the channel there. stop ends it, and waits for
// it where r can be interrupted.
func readChunks(r io.Reader) (chunks <-chan []byte, stop func()) {
	ch, quit, done := make(chan []byte), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer close(ch)
		for {
			buf := make([]byte, inputChunk)
			n, err := r.Read(buf)
			if n > 0 {
				select {
				case ch <- buf[:n]:
				case <-quit:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return ch, func() {
		close(quit)
		d, ok := r.(interface{ SetReadDeadline(time.Time) error })
		if ok && d.SetReadDeadline(time.Unix(1, 0)) == nil {
			<-done
			_ = d.SetReadDeadline(time.Time{}) // as it was
		}
	}
}

// sendSizes forwards the terminal's size; of several the newest counts.
func (f *follower) sendSizes(ctx context.Context) {
	if f.o.Resize == nil || !f.waitKnown(ctx) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-f.o.Resize:
			if !ok {
				return
			}
			f.insist(ctx, func() error {
				_, err := f.rpc.Resize(ctx, connect.NewRequest(&guestv1.ResizeRequest{Id: f.o.ID, Size: size}))
				return err
			})
		}
	}
}

// signalPatience is how long a guest may take to be known, and to take a signal.
const signalPatience = 10 * time.Second

// sendSignals forwards signals, in order. Who sends one wants an end: where the
// guest does not take it, and the command does not end either, giveUp is called.
func (f *follower) sendSignals(ctx context.Context, giveUp func(error)) {
	if f.o.Signals == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case sig, ok := <-f.o.Signals:
			if !ok {
				return
			}
			if !f.sendSignal(ctx, sig) && ctx.Err() == nil {
				giveUp(&sandbox.Error{
					Kind: sandbox.Unavailable, Msg: fmt.Sprintf("the sandbox did not take signal %d within %s", sig, signalPatience),
					Hint: "the command may still run: carboy stop",
				})
				return
			}
		}
	}
}

// sendSignal reports whether the guest took a signal. It returns false only
// when its time is over, or ctx has ended: a guest that refuses the signal of a
// command that has ended may be about to say so.
func (f *follower) sendSignal(ctx context.Context, sig int32) bool {
	ctx, cancel := context.WithTimeout(ctx, signalPatience)
	defer cancel()
	if f.waitKnown(ctx) && f.insist(ctx, func() error {
		_, err := f.rpc.Signal(ctx, connect.NewRequest(&guestv1.SignalRequest{Id: f.o.ID, Signal: sig, By: "client"}))
		return err
	}) {
		return true
	}
	<-ctx.Done()
	return false
}
