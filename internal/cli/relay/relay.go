// Package relay runs a command in a sandbox for somebody at a console: its streams,
// its signals, the size and mode of a terminal, and what is told of its end.
//
// Output goes onto a terminal escaped, unless the command was given a terminal of
// its own. It refuses to wait for a guest that says nothing and does not end.
package relay

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
)

// Relay hands the signals that carboy gets to the command that it runs. The
// first one is the command's; the next ends ctx, and one more the process.
// Before the command runs, the first ends ctx already.
type Relay struct {
	*console.Console
	Ctx     context.Context
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

// New starts to catch signals. Stop must be called.
func New(parent context.Context, c *console.Console) *Relay {
	r := &Relay{Console: c, signals: make(chan int32, 4), got: make(chan os.Signal, 8)}
	r.Ctx, r.cancel = context.WithCancelCause(parent)
	// With SIGPIPE caught, a closed stdout is an error to clean up after.
	signal.Notify(r.got, append(relayed(), syscall.SIGPIPE)...)
	r.done.Go(r.loop)
	return r
}

// withTerminal makes the relay follow the size of a terminal, too, and calls
// resumed when the process was stopped and continued.
func (r *Relay) withTerminal(measure func() console.Size, resumed func()) {
	r.resize = make(chan *guestv1.Terminal, 1)
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH, syscall.SIGCONT)
	r.done.Go(func() {
		defer signal.Stop(changed)
		for {
			select {
			case <-r.Ctx.Done():
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
func (r *Relay) offer(s console.Size) {
	select {
	case <-r.resize:
	default:
	}
	r.resize <- &guestv1.Terminal{Cols: s.Cols, Rows: s.Rows}
}

func (r *Relay) loop() {
	forwarded := false
	for {
		select {
		case <-r.Ctx.Done():
			return
		case s := <-r.got:
			sig, ok := s.(syscall.Signal)
			switch {
			case !ok || sig == syscall.SIGPIPE:
			case r.running.Load() && !forwarded:
				forwarded = true
				r.signals <- int32(sig)
			default:
				r.cancel(ErrInterrupted)
				signal.Stop(r.got)
				signal.Reset(relayed()...)
				return
			}
		}
	}
}

// Stop gives the signals back and waits for the relay's goroutines.
func (r *Relay) Stop() {
	signal.Stop(r.got)
	r.cancel(nil)
	r.done.Wait()
}

// ErrInterrupted is the cause of a context that a signal ended.
var ErrInterrupted error = &exit.Error{Code: exit.Interrupted}

// UntilSignal returns a context that the first SIGINT, SIGTERM or SIGHUP
// ends. stop gives the signals back; the next one then ends the process.
func UntilSignal(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	got := make(chan os.Signal, 1)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-got:
			cancel(ErrInterrupted)
			signal.Stop(got)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(got)
		cancel(nil)
		<-done
	}
}
