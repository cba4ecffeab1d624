package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
)

// relay hands the signals that carboy gets to the command that it runs. The
// first one is the command's; the next ends ctx, and one more the process.
// Before the command runs, the first ends ctx already.
type relay struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running atomic.Bool
	signals chan int32             // for the command
	resize  chan *guestv1.Terminal // nil without a terminal

	got  chan os.Signal
	done sync.WaitGroup
}

// relayed are the signals that a command is to get instead of carboy.
func relayed() []os.Signal {
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
}

// newRelay starts to catch signals. stop must be called.
func newRelay(parent context.Context) *relay {
	r := &relay{signals: make(chan int32, 4), got: make(chan os.Signal, 8)}
	r.ctx, r.cancel = context.WithCancelCause(parent)
	// With SIGPIPE caught, a closed stdout is an error to clean up after.
	signal.Notify(r.got, append(relayed(), syscall.SIGPIPE)...)
	r.done.Go(r.loop)
	return r
}

// withTerminal makes the relay follow the size of a terminal, too, and calls
// resumed when the process was stopped and continued.
func (r *relay) withTerminal(measure func() console.Size, resumed func()) {
	r.resize = make(chan *guestv1.Terminal, 1)
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH, syscall.SIGCONT)
	r.done.Go(func() {
		defer signal.Stop(changed)
		for {
			select {
			case <-r.ctx.Done():
				return
			case s := <-changed:
				if s == syscall.SIGCONT {
					resumed()
				}
				r.offer(measure())
			}
		}
	})
}

// offer puts a size into resize, in the place of one that nobody took.
func (r *relay) offer(s console.Size) {
	select {
	case <-r.resize:
	default:
	}
	r.resize <- &guestv1.Terminal{Cols: s.Cols, Rows: s.Rows}
}

func (r *relay) loop() {
	forwarded := false
	for {
		select {
		case <-r.ctx.Done():
			return
		case s := <-r.got:
			sig, ok := s.(syscall.Signal)
			switch {
			case !ok || sig == syscall.SIGPIPE:
			case r.running.Load() && !forwarded:
				forwarded = true
				r.signals <- int32(sig)
			default:
				r.cancel(errInterrupted)
				signal.Stop(r.got)
				signal.Reset(relayed()...)
				return
			}
		}
	}
}

// stop gives the signals back and waits for the relay's goroutines.
func (r *relay) stop() {
	signal.Stop(r.got)
	r.cancel(nil)
	r.done.Wait()
}
