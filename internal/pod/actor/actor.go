// Package actor makes any command a pod: it speaks the protocol of pods for one. What the pod is given starts the command in
// its sandbox, with that on its standard input or as an argument; what it prints is what the pod says, and its end
// is the end of the turn. All of it is in the pod's transcript.
//
// A command goes on while no daemon runs. The next one takes up its output where the transcript ends, so that nothing is
// said twice, and nothing is left out that the sandbox has kept.
//
// What the sandbox answers is hostile, and only ever text of the transcript. It refuses a second turn beside the first, and
// what a command can't do: to be paused, to rewind, to complete names.
package actor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/transcript"
)

// Guest is the agent of a pod's sandbox, as *agent.Guest is.
type Guest interface {
	Launch(ctx context.Context, id string, cmd *guestv1.Command) (*guestv1.Exit, error)
	Read(ctx context.Context, id string, r agent.Read) (agent.Output, error)
	Input(ctx context.Context, id string, offset int64, data []byte, eof bool) (acked int64, err error)
	Signal(ctx context.Context, id string, sig int, all bool, by string) error
}

// Options make an Actor. All but Log are required.
type Options struct {
	Name    string
	Program record.Program // with no command: a pod that runs nothing of its own
	Log     *transcript.Log
	Guest   Guest
	// Ready has the sandbox run.
	Ready func(ctx context.Context) error
	// Runs reports whether it does; an error: that could not be found out.
	Runs func(ctx context.Context) (bool, error)
	// Event is told what became of a turn: PodTurnEnded or PodErrored. It must not wait for the actor.
	Event func(ev wire.PodEvent)
	// Stop is told that the pod was asked to shut down. It must not wait for the actor.
	Stop  func()
	Now   func() time.Time
	Trace *slog.Logger
}

// Actor is a pod that is a command. Its methods may be called from several goroutines.
type Actor struct {
	o      Options
	ctx    context.Context // ends with the actor
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup

	mu   sync.Mutex
	turn *turn         // nil: none is under way
	last int           // the number of the newest turn
	news chan struct{} // closed by the next entry
	told map[*listener]struct{}
}

// turn is one run of the command.
type turn struct {
	n       int
	id      string // what the sandbox calls the command
	from    int64  // bytes of its output that are in the transcript
	undone  bool   // it was cancelled; guarded by Actor.mu
	stopped context.CancelCauseFunc
}

// errClosed ends what an actor does when the daemon goes.
var errClosed = errors.New("the daemon is shutting down")

// Open returns an actor, which goes on with the turn that its transcript ends in.
func Open(o Options) (*Actor, error) {
	a := &Actor{o: o, told: map[*listener]struct{}{}, news: make(chan struct{})}
	a.ctx, a.cancel = context.WithCancelCause(context.Background())
	var t *turn
	_, _, err := o.Log.Read(0, func(_ int, e transcript.Entry) error {
		a.last = max(a.last, e.Turn)
		switch e.Kind {
		case transcript.User:
			t = &turn{n: e.Turn, id: e.Command}
		case transcript.Assistant:
			if t == nil { // its beginning was left out
				t = &turn{n: e.Turn}
			}
			t.from = e.To
		case transcript.End:
			t = nil
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if t != nil {
		a.mu.Lock()
		a.begin(t, func(ctx context.Context) { a.follow(ctx, t) })
		a.mu.Unlock()
	}
	return a, nil
}

// begin has a turn be under way. The lock is held.
func (a *Actor) begin(t *turn, play func(ctx context.Context)) {
	ctx, stop := context.WithCancelCause(a.ctx)
	t.stopped = stop
	a.turn, a.last = t, t.n
	a.tasks.Go(func() {
		defer stop(nil)
		play(ctx)
	})
}

// Status is what the pod is doing, and how many turns there were.
func (a *Actor) Status() (status string, turns int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turn != nil {
		return wire.StatusRunning, a.last
	}
	return wire.StatusIdle, a.last
}

// News is closed when there is an entry more, or the actor is closed.
func (a *Actor) News() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.news
}

// Log is the pod's transcript.
func (a *Actor) Log() *transcript.Log { return a.o.Log }

// Close ends connections and gives up what this end holds. A command goes on.
func (a *Actor) Close() error {
	a.mu.Lock()
	a.cancel(errClosed) // from here on nobody connects
	a.mu.Unlock()
	a.tasks.Wait()
	a.mu.Lock()
	close(a.news)
	a.news = make(chan struct{})
	a.mu.Unlock()
	return a.o.Log.Close()
}

// Connect returns a connection to the pod.
func (a *Actor) Connect() net.Conn {
	near, far := net.Pipe()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		far.Close()
		return near
	}
	a.tasks.Go(func() { a.serve(far) })
	return near
}
