package process_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/process"
)

func TestTwoReaders(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("cat")))
	first := attach(t, p)
	type turn struct {
		n   int
		a   *process.Attachment
		err error
	}
	turns := make(chan turn, 3)
	for n := range 3 { // they wait one behind the other
		ready := make(chan struct{})
		go func() {
			close(ready)
			a, err := p.Attach(t.Context())
			turns <- turn{n, a, err}
		}()
		<-ready
		eventually(t, "it waits", func() bool { return p.Waiting() == n+1 })
	}
	write(t, first, "one")
	if got := line(t, first); got != "one" {
		t.Error(got)
	}
	select {
	case w := <-turns:
		t.Fatalf("a second reader beside the first: %+v", w)
	case <-time.After(50 * time.Millisecond):
	}
	_ = first.Close()
	for n := range 3 {
		w := <-turns
		if w.err != nil || w.n != n {
			t.Fatalf("turn %d: %+v", n, w)
		}
		write(t, w.a, "x")
		if got := line(t, w.a); got != "x" {
			t.Error(got)
		}
		_ = w.a.Close()
	}
	if _, err := first.ReadLine(t.Context()); !errors.Is(err, process.ErrDetached) {
		t.Error(err)
	}
}

func TestTakeOver(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("cat")))
	first := attach(t, p)
	write(t, first, "one")
	line(t, first)
	reads := make(chan error, 1)
	go func() {
		_, err := first.ReadLine(context.Background())
		reads <- err
	}()
	waits := make(chan *process.Attachment, 1)
	go func() {
		a, err := p.Attach(t.Context())
		if err != nil {
			t.Error(err)
		}
		waits <- a
	}()
	eventually(t, "another waits", func() bool { return p.Waiting() == 1 })
	second, err := p.TakeOver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := <-reads; !errors.Is(err, process.ErrTakenOver) {
		t.Errorf("the first reader: %v", err)
	}
	if err := first.WriteLine(t.Context(), []byte("x")); !errors.Is(err, process.ErrTakenOver) {
		t.Errorf("the first writer: %v", err)
	}
	<-first.Done()
	write(t, second, "two")
	if got := line(t, second); got != "two" {
		t.Error(got)
	}
	_ = second.Close()
	third := <-waits
	write(t, third, "three")
	if got := line(t, third); got != "three" {
		t.Error(got)
	}
	_ = third.Close()
}

func TestWaitingEnds(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("cat")))
	first := attach(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 2)
	for _, ctx := range []context.Context{ctx, t.Context()} {
		n := p.Waiting()
		go func() {
			_, err := p.Attach(ctx)
			gone <- err
		}()
		eventually(t, "it waits", func() bool { return p.Waiting() == n+1 })
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, err := first.ReadLine(t.Context()); err == nil {
		t.Errorf("%q", b)
	}
	if err := <-gone; !errors.Is(err, process.ErrEnded) {
		t.Errorf("who waits for a process that has ended: %v", err)
	}
}

func TestUnread(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("echo one; echo two; exec cat")))
	a := attach(t, p)
	if a.Unread() {
		t.Error("there is no line yet")
	}
	line(t, a)
	if !a.Unread() || a.Unread() {
		t.Error("one line can be put back, once")
	}
	_ = a.Close()
	if a.Unread() {
		t.Error("a closed attachment puts back")
	}
	a = attach(t, p)
	for _, want := range []string{"one", "two"} {
		if got := line(t, a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Who reads a process that is stopped and forgotten gets all that it wrote, and
// its end; nobody is told that the daemon goes.
func TestStoppedWhileRead(t *testing.T) {
	for name, reads := range map[string]bool{"reads on": true, "has stopped reading": false} {
		t.Run(name, func(t *testing.T) {
			s := newSandbox(t)
			p := s.start(s.options(sh("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")))
			a := attach(t, p)
			line(t, a)
			read := func() (last string, err error) {
				for {
					l, err := a.ReadLine(t.Context())
					if err != nil {
						return last, err
					}
					last = string(l)
				}
			}
			type end struct {
				last string
				err  error
			}
			got := make(chan end, 1)
			if reads {
				go func() { last, err := read(); got <- end{last, err} }()
			}
			if err := errors.Join(p.Stop(t.Context()), p.Discard()); err != nil {
				t.Fatal(err)
			}
			if !reads {
				if _, err := read(); !errors.Is(err, process.ErrEnded) {
					t.Errorf("it ended with %v", err)
				}
				return
			}
			if e := <-got; e.last != "bye" || !errors.Is(e.err, io.EOF) {
				t.Errorf("it read %q at last, and then %v", e.last, e.err)
			}
		})
	}
}
