package actor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/actor"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/transcript"
)

// only is the one command that there is.
func (g *fakeGuest) only(t *testing.T) *command {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.commands) != 1 {
		t.Fatalf("there are %d commands", len(g.commands))
	}
	for _, c := range g.commands {
		return c
	}
	return nil
}

// newest is the command that was started last.
func (g *fakeGuest) newest(before map[string]*command) *command {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, c := range g.commands {
		if before[id] == nil {
			return c
		}
	}
	return nil
}

func (g *fakeGuest) all() map[string]*command {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.commands)
}

type world struct {
	*testing.T
	guest   *fakeGuest
	path    string
	argv    []string
	stopped bool
	up      []string // what the parent was told
}

func (w *world) open() *actor.Actor {
	w.Helper()
	log, err := transcript.Open(w.path, 0)
	if err != nil {
		w.Fatal(err)
	}
	a, err := actor.Open(actor.Options{
		Name: "docs", Program: record.Program{Command: w.argv}, Log: log, Guest: w.guest, Now: time.Now, Trace: slog.New(slog.DiscardHandler),
		Ready: func(context.Context) error {
			w.guest.change(func() { w.guest.down = false })
			return nil
		},
		Runs: func(context.Context) (bool, error) {
			w.guest.mu.Lock()
			defer w.guest.mu.Unlock()
			return !w.guest.down, nil
		},
		Event: func(ev wire.PodEvent) { w.up = append(w.up, ev.Text()) },
		Stop:  func() { w.stopped = true },
	})
	if err != nil {
		w.Fatal(err)
	}
	return a
}

// inWorld runs a test with an actor of a command, on a clock of its own.
func inWorld(t *testing.T, argv []string, test func(t *testing.T, w *world, a *actor.Actor)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, guest: newGuest(), path: filepath.Join(dir, "log"), argv: argv}
		a := w.open()
		test(t, w, a)
		a.Close()
	})
}

func deliver(t *testing.T, a *actor.Actor, task string) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return wire.Deliver(ctx, wire.NewConn(a.Connect(), wire.Options{}), []wire.Segment{wire.Text(task)})
}

// said is the transcript in words.
func said(t *testing.T, a *actor.Actor) string {
	t.Helper()
	synctest.Wait()
	var out []string
	_, _, err := a.Log().Read(0, func(_ int, e transcript.Entry) error {
		switch e.Kind {
		case transcript.User:
			out = append(out, fmt.Sprintf("%d<%s", e.Turn, e.Segments[0].Content))
		case transcript.End:
			out = append(out, fmt.Sprintf("%d=%s %s", e.Turn, e.Result, e.Text))
		default:
			out = append(out, fmt.Sprintf("%d>%s", e.Turn, e.Text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "|")
}

// TestTurn: what the pod is given reaches its command, what that prints is said, and its end is the turn's.
func TestTurn(t *testing.T) {
	for _, tt := range []struct {
		name string
		argv []string
		want []string // of the command
		in   string
	}{
		{"input", []string{"sh", "-c", "cat"}, []string{"sh", "-c", "cat"}, "do it"},
		{"argument", []string{"agent", "-p", "{}", "x{}"}, []string{"agent", "-p", "do it", "x{}"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, tt.argv, func(t *testing.T, w *world, a *actor.Actor) {
				if err := deliver(t, a, "do it"); err != nil {
					t.Fatal(err)
				}
				c := w.guest.only(t)
				if !slices.Equal(c.argv, tt.want) || c.stdin != (tt.in != "") || string(c.in) != tt.in || c.eof != c.stdin {
					t.Errorf("it was started as %q, and given %q, %t", c.argv, c.in, c.eof)
				}
				if status, turns := a.Status(); status != wire.StatusRunning || turns != 1 {
					t.Errorf("meanwhile it is %s, turn %d", status, turns)
				}
				err := deliver(t, a, "more")
				if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeAlreadyRunning {
					t.Errorf("a second task meanwhile: %v", err)
				}
				w.guest.change(func() { c.out = []byte("half a lett\xc3") })
				time.Sleep(time.Second)
				w.guest.change(func() { c.out = append(c.out, "\xa9 and \xff"...) })
				time.Sleep(time.Second)
				w.guest.change(func() { c.exit = &guestv1.Exit{} })
				time.Sleep(time.Second)
				if got := said(t, a); got != "1<do it|1>half a lett|1>é and \uFFFD|1=finished " {
					t.Errorf("said %q", got)
				}
				if status, _ := a.Status(); status != wire.StatusIdle || c.released < int64(len(c.out))-1 {
					t.Errorf("then it is %s; %d of %d bytes were released", status, c.released, len(c.out))
				}
				if err := deliver(t, a, "again"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestEnds: how a turn ends is in the transcript, and told.
func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(w *world, c *command)
		want string
	}{
		{"failed", func(w *world, c *command) {
			c.errs, c.exit = []byte("no such model\n"), &guestv1.Exit{Code: 3}
		}, "failed its command ended with 3: no such model"},
		{"its sandbox was stopped", func(w *world, _ *command) { w.guest.down = true }, "lost its command ended with its sandbox"},
		{"another agent", func(w *world, _ *command) { clear(w.guest.commands) }, "lost its command ended with its sandbox"},
		{"a broken connection", func(w *world, c *command) { w.guest.broken, c.exit = 7, &guestv1.Exit{} }, "finished "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, []string{"x", "{}"}, func(t *testing.T, w *world, a *actor.Actor) {
				if err := deliver(t, a, "go"); err != nil {
					t.Fatal(err)
				}
				c := w.guest.only(t)
				w.guest.change(func() { tt.end(w, c) })
				time.Sleep(time.Minute)
				if got := said(t, a); got != "1<go|1="+tt.want {
					t.Errorf("said %q", got)
				}
				if err := deliver(t, a, "again"); err != nil {
					t.Errorf("the next turn: %v", err)
				}
			})
		})
	}
	t.Run("not started", func(t *testing.T) {
		inWorld(t, []string{"x"}, func(t *testing.T, w *world, a *actor.Actor) {
			w.guest.refuse = errors.New("x: command not found")
			if err := deliver(t, a, "go"); err == nil || !strings.Contains(err.Error(), "x: command not found") {
				t.Errorf("got %v", err)
			}
			if got := said(t, a); got != "1<go|1=failed the command can't be started: x: command not found" {
				t.Errorf("said %q", got)
			}
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		inWorld(t, []string{"x", "{}"}, func(t *testing.T, w *world, a *actor.Actor) {
			if err := deliver(t, a, "go"); err != nil {
				t.Fatal(err)
			}
			c := w.guest.only(t)
			ask(t, a, wire.MethodCancel)
			time.Sleep(time.Minute)
			if got := said(t, a); !c.killed || got != "1<go|1=rolled_back " {
				t.Errorf("killed %t, said %q", c.killed, got)
			}
		})
	})
	t.Run("shut down", func(t *testing.T) {
		inWorld(t, []string{"x", "{}"}, func(t *testing.T, w *world, a *actor.Actor) {
			ask(t, a, wire.MethodShutdown)
			synctest.Wait()
			if !w.stopped {
				t.Error("nobody was told")
			}
		})
	})
}

func ask(t *testing.T, a *actor.Actor, method string) {
	t.Helper()
	m, err := wire.NewMethod(method, nil)
	if err == nil {
		err = wire.Ask(t.Context(), wire.NewConn(a.Connect(), wire.Options{}), m)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNextDaemon: a turn goes on over the end of a daemon, at any point of it; nothing is said twice, and nothing left out.
func TestNextDaemon(t *testing.T) {
	const text = "one two three four five six"
	for cut := range len(text) + 2 {
		inWorld(t, []string{"x", "{}"}, func(t *testing.T, w *world, a *actor.Actor) {
			if err := deliver(t, a, "go"); err != nil {
				t.Fatal(err)
			}
			c := w.guest.only(t)
			w.guest.change(func() { c.out = []byte(text[:min(cut, len(text))]) })
			time.Sleep(time.Second)
			a.Close()
			w.guest.change(func() { c.out = []byte(text) })
			if cut > len(text) {
				w.guest.change(func() { c.exit = &guestv1.Exit{} })
			}
			b := w.open()
			defer b.Close()
			time.Sleep(time.Second)
			w.guest.change(func() { c.exit = &guestv1.Exit{} })
			time.Sleep(time.Minute)
			var out strings.Builder
			var ends int
			b.Log().Read(0, func(_ int, e transcript.Entry) error {
				if e.Kind == transcript.Assistant {
					out.WriteString(e.Text)
				}
				if e.Kind == transcript.End {
					ends++
				}
				return nil
			})
			if out.String() != text || ends != 1 || c.onceStarted != 1 {
				t.Errorf("cut at %d: %q, %d ends, started %d times", cut, out.String(), ends, c.onceStarted)
			}
			if _, turns := b.Status(); turns != 1 {
				t.Errorf("%d turns", turns)
			}
		})
	}
}

// TestListeners: who connects gets what was said, and then what is said, each once; a probe gets nothing, and who does not read holds up
// nobody.
func TestListeners(t *testing.T) {
	inWorld(t, []string{"x", "{}"}, func(t *testing.T, w *world, a *actor.Actor) {
		a.Connect().Close() // a probe
		deaf := a.Connect()
		defer deaf.Close()
		if err := deliver(t, a, "go"); err != nil {
			t.Fatal(err)
		}
		c := w.guest.only(t)
		w.guest.change(func() { c.out = []byte("a") })
		time.Sleep(time.Second)
		conn := wire.NewConn(a.Connect(), wire.Options{})
		defer conn.Close()
		first, err := conn.Event()
		var s wire.Snapshot
		if err != nil || first.Name != wire.EventSnapshot || first.Into(&s) != nil || len(s.Entries) != 2 || s.Status != wire.StatusRunning {
			t.Fatalf("first came %s %s, %v", first.Name, first.Data, err)
		}
		for i := range 3000 { // more than wait for a listener
			w.guest.change(func() { c.out = append(c.out, 'b') })
			time.Sleep(time.Second)
			e, err := conn.Event()
			if err != nil || e.Name != wire.EventTextDelta || string(e.Data) != `{"text":"b"}` {
				t.Fatalf("event %d: %s %s, %v", i, e.Name, e.Data, err)
			}
		}
		w.guest.change(func() { c.exit = &guestv1.Exit{Code: 1} })
		var names []string
		for range 4 {
			e, err := conn.Event()
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, e.Name)
		}
		if want := []string{wire.EventError, wire.EventRunEnd, wire.EventTurnEnd, wire.EventStatus}; !slices.Equal(names, want) {
			t.Errorf("it ended by %q", names)
		}
		if n, err := io.Copy(io.Discard, deaf); err != nil || n > 1 {
			t.Errorf("who did not read got %d bytes, %v", n, err)
		}
	})
}

// TestNotes: what the pod is told between turns comes before its next task, once.
func TestNotes(t *testing.T) {
	inWorld(t, []string{"x", "{}"}, func(t *testing.T, w *world, a *actor.Actor) {
		tell := func(name string, params any) {
			t.Helper()
			m, err := wire.NewMethod(name, params)
			if err == nil {
				err = wire.Ask(t.Context(), wire.NewConn(a.Connect(), wire.Options{}), m)
			}
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		tell(wire.MethodNotify, wire.Notify{Message: "the build is red"})
		tell(wire.MethodPodEvent, wire.PodEvent{Kind: wire.PodTurnEnded, PodName: "sub"})
		for _, want := range []string{"the build is red\nPod `sub` finished a turn.\n\ngo", "go"} {
			before := w.guest.all()
			if err := deliver(t, a, "go"); err != nil {
				t.Fatal(err)
			}
			c := w.guest.newest(before)
			if c == nil || c.argv[1] != want {
				t.Errorf("it was given %q, want %q", c.argv, want)
			}
			w.guest.change(func() { c.exit = &guestv1.Exit{} })
			time.Sleep(time.Second)
		}
	})
}

// TestRefuses: what a command can't do is said to who asks, and ends nothing.
func TestRefuses(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, _ *world, a *actor.Actor) {
		if err := deliver(t, a, "go"); err == nil || !strings.Contains(err.Error(), "runs nothing of its own") {
			t.Errorf("a task for a pod without a command: %v", err)
		}
		conn := wire.NewConn(a.Connect(), wire.Options{})
		defer conn.Close()
		if _, err := conn.Event(); err != nil { // the snapshot
			t.Fatal(err)
		}
		for _, m := range []wire.Method{{Name: wire.MethodPause}, {Name: "nonsense"}, {Name: wire.MethodRun}, {Name: wire.MethodCancel}} {
			if err := conn.Send(m); err != nil {
				t.Fatal(err)
			}
			e, err := conn.Event()
			var said wire.Error
			if err != nil || e.Name != wire.EventError || e.Into(&said) != nil || said.Code == "" {
				t.Errorf("%s: %s %s, %v", m.Name, e.Name, e.Data, err)
			}
		}
	})
}
