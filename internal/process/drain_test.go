package process_test

import (
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/process"
)

// slow is an agent on a busy machine: once the process was told to end, what it
// wrote last takes a while to come.
func slow(late time.Duration) *liar {
	l := &liar{}
	var told atomic.Bool
	ended := make(chan struct{})
	l.signal = func() {
		if told.CompareAndSwap(false, true) {
			close(ended)
		}
	}
	l.stderr = func(r agent.Read) (agent.Output, error) {
		if r.Wait > 0 {
			<-ended
			return agent.Output{Offset: r.Offset, Ended: true, Exit: &guestv1.Exit{Code: 7}}, nil
		}
		return agent.Output{Offset: r.Offset}, nil
	}
	l.stdout = func(r agent.Read) (agent.Output, error) {
		if r.Wait > 0 {
			<-ended
			time.Sleep(late)
			return agent.Output{Offset: r.Offset, Data: []byte("bye\n"), Ended: true}, nil
		}
		return agent.Output{Offset: r.Offset}, nil
	}
	return l
}

// A guest that takes its time cuts nobody off who reads what a process wrote
// before it was stopped, and has nobody told that there is no more.
func TestStoppedBehindASlowGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := process.Start(t.Context(), process.Options{Spec: sessions.ProcessSpec{Command: "x"}, Guest: slow(4 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		a, err := p.Attach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- errors.Join(p.Stop(t.Context()), p.Discard()) }()
		if b, err := a.ReadLine(t.Context()); err != nil || string(b) != "bye" {
			t.Errorf("read %q, %v", b, err)
		}
		if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("then %v", err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// Who waits to read a process that ends, and whose output another has read to
// its end, is told that this is all.
func TestEndedWhileWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slow(0)
		p, err := process.Start(t.Context(), process.Options{Spec: sessions.ProcessSpec{Command: "x"}, Guest: l})
		if err != nil {
			t.Fatal(err)
		}
		first, err := p.Attach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() {
			_, err := p.Attach(t.Context())
			second <- err
		}()
		synctest.Wait()
		l.signal() // which is its end
		for range 2 {
			_, err = first.ReadLine(t.Context())
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("the first one: %v", err)
		}
		for what, err := range map[string]error{"who waited": <-second, "one more": func() error { _, err := p.Attach(t.Context()); return err }()} {
			if !errors.Is(err, process.ErrEnded) || !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := p.Discard(); err != nil {
			t.Error(err)
		}
	})
}
