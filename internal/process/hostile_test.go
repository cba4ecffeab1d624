package process_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/process"
)

// liar is an agent that answers reads as it likes, and at once.
type liar struct {
	calls  atomic.Int64
	stdout func(r agent.Read) (agent.Output, error)
	stderr func(r agent.Read) (agent.Output, error)
	signal func() // is told of one
}

func (l *liar) Run(context.Context, *guestv1.Command, func(bool, []byte)) (*guestv1.Exit, error) {
	return &guestv1.Exit{}, nil
}

func (l *liar) Launch(context.Context, string, *guestv1.Command) (*guestv1.Exit, error) {
	return nil, nil
}

func (l *liar) Read(ctx context.Context, _ string, r agent.Read) (agent.Output, error) {
	l.calls.Add(1)
	answer := l.stdout
	if r.Stderr {
		answer = l.stderr
	}
	if answer != nil && ctx.Err() == nil {
		return answer(r)
	}
	<-ctx.Done()
	return agent.Output{}, context.Cause(ctx)
}

func (l *liar) Input(context.Context, string, int64, []byte, bool) (int64, error) {
	return 1 << 62, nil
}

func (l *liar) Signal(context.Context, string, int, bool, string) error {
	if l.signal != nil {
		l.signal()
	}
	return nil
}

func (l *liar) Look(context.Context, string) (*guestv1.Process, error) {
	return &guestv1.Process{StderrBytes: 1 << 63, StdinAcked: 1<<64 - 1}, nil
}

func (l *liar) Close() {}

// An agent that answers at once with nothing, or byte by byte, costs little.
func TestHostileAgentIsNotAskedWithoutEnd(t *testing.T) {
	for name, answer := range map[string]func(agent.Read) (agent.Output, error){
		"nothing": func(r agent.Read) (agent.Output, error) { return agent.Output{Offset: r.Offset}, nil },
		"an-end-that-is-none": func(r agent.Read) (agent.Output, error) {
			return agent.Output{Offset: r.Offset, Ended: true}, nil
		},
		"byte-by-byte": func(r agent.Read) (agent.Output, error) {
			return agent.Output{Offset: r.Offset, Data: []byte("x")}, nil
		},
		"broken": func(agent.Read) (agent.Output, error) { return agent.Output{}, agent.ErrBroken },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &liar{}
				once := func(r agent.Read) (agent.Output, error) { return agent.Output{Offset: r.Offset}, nil }
				l.stdout, l.stderr = once, once
				p, err := process.Start(t.Context(), process.Options{Spec: sessions.ProcessSpec{Command: "x"}, Guest: l})
				if err != nil {
					t.Fatal(err)
				}
				p.Close()
				l.stdout, l.stderr = nil, answer
				l.calls.Store(0)
				if p, err = process.Reattach(process.Options{Guest: l}, p.Record()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second) // of the bubble's
				if n := l.calls.Load(); n == 0 || n > 1001 {
					t.Errorf("%d calls in 10 seconds", n)
				}
				p.Close()
			})
		})
	}
}

func TestGapIsSaid(t *testing.T) {
	l := &liar{}
	l.stdout = func(r agent.Read) (agent.Output, error) {
		switch r.Offset {
		case 0:
			return agent.Output{Data: []byte("one\nhal")}, nil
		case 7:
			return agent.Output{Offset: 1000, Data: []byte("f of another\nwhole\n")}, nil
		}
		return agent.Output{Offset: r.Offset, Data: []byte("next\n")}, nil
	}
	l.stderr = func(r agent.Read) (agent.Output, error) { return agent.Output{Offset: r.Offset}, nil }
	p, err := process.Reattach(process.Options{Guest: l, Dir: t.TempDir()}, process.Record{Command: "c"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Discard() })
	a := attach(t, p)
	if got := line(t, a); got != "one" {
		t.Error(got)
	}
	_, err = a.ReadLine(t.Context())
	if lost, ok := errors.AsType[*process.LostError](err); !ok || lost.Bytes != 996 {
		t.Errorf("%v", err)
	}
	for _, want := range []string{"whole", "next"} {
		if got := line(t, a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if err := a.WriteLine(t.Context(), []byte("x")); !errors.Is(err, agent.ErrBroken) {
		t.Errorf("an agent that has more than it was given: %v", err)
	}
}
