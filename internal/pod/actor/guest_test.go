package actor_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/agent"
)

// fakeGuest is a sandbox whose commands do as a test says.
type fakeGuest struct {
	mu       sync.Mutex
	commands map[string]*command
	down     bool  // its sandbox was stopped
	broken   int   // how many calls break off
	refuse   error // of the next launch
	changed  chan struct{}
}

type command struct {
	argv        []string
	stdin       bool
	in          []byte
	eof         bool
	out, errs   []byte
	released    int64
	exit        *guestv1.Exit
	killed      bool
	onceStarted int
}

func newGuest() *fakeGuest {
	return &fakeGuest{commands: map[string]*command{}, changed: make(chan struct{})}
}

// change changes something, and wakes who waits for it.
func (g *fakeGuest) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *fakeGuest) call(id string) (*command, error) {
	if g.broken > 0 {
		g.broken--
		return nil, agent.ErrBroken
	}
	if g.down {
		return nil, agent.ErrBroken
	}
	c := g.commands[id]
	if c == nil {
		return nil, agent.ErrUnknown
	}
	return c, nil
}

func (g *fakeGuest) Launch(_ context.Context, id string, cmd *guestv1.Command) (*guestv1.Exit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := g.call(id); errors.Is(err, agent.ErrBroken) {
		return nil, err
	}
	if g.refuse != nil {
		return &guestv1.Exit{Error: g.refuse.Error()}, nil
	}
	if g.commands[id] == nil {
		g.commands[id] = &command{argv: cmd.GetArgv(), stdin: cmd.GetStdin()}
	}
	g.commands[id].onceStarted++
	return nil, nil
}

func (g *fakeGuest) Read(ctx context.Context, id string, r agent.Read) (agent.Output, error) {
	for {
		g.mu.Lock()
		c, err := g.call(id)
		if err != nil {
			g.mu.Unlock()
			return agent.Output{}, err
		}
		from := c.out
		if r.Stderr {
			from = c.errs
		} else {
			c.released = max(c.released, r.Release)
		}
		o := agent.Output{Offset: r.Offset, Data: slices.Clone(from[min(len(from), int(r.Offset)):])}
		o.Data = o.Data[:min(len(o.Data), r.Max)]
		if o.Exit = c.exit; c.exit != nil && int(r.Offset)+len(o.Data) == len(from) {
			o.Ended = true
		}
		changed := g.changed
		g.mu.Unlock()
		if len(o.Data) > 0 || o.Ended {
			return o, nil
		}
		select {
		case <-changed:
		case <-time.After(r.Wait):
			return o, nil
		case <-ctx.Done():
			return o, context.Cause(ctx)
		}
	}
}

func (g *fakeGuest) Input(_ context.Context, id string, offset int64, data []byte, eof bool) (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, err := g.call(id)
	if err != nil {
		return 0, err
	}
	c.in, c.eof = append(c.in[:offset], data...), eof
	return int64(len(c.in)), nil
}

func (g *fakeGuest) Signal(_ context.Context, id string, sig int, all bool, _ string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, err := g.call(id)
	if err != nil {
		return err
	}
	c.killed = sig == 9 && all
	c.exit = &guestv1.Exit{Code: 137}
	close(g.changed)
	g.changed = make(chan struct{})
	return nil
}
