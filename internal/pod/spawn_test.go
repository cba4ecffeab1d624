package pod_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// TestDelivery: what a child may do with its task, and that the pod stays whatever it is.
func TestDelivery(t *testing.T) {
	for _, tt := range []struct {
		name  string
		serve func(c *wire.Conn)
		late  bool // the time for it passes
		want  string
	}{
		{name: "never-reads", serve: func(*wire.Conn) {}, late: true, want: "the pod said nothing of it within 5s"},
		{name: "hangs-up", serve: func(c *wire.Conn) { c.Close() }, want: "the pod closed the connection"},
		{name: "is-busy", serve: func(c *wire.Conn) {
			_, _ = c.Method()
			e, _ := wire.NewEvent(wire.EventError, wire.Error{Code: wire.CodeAlreadyRunning, Message: "a turn is under way"})
			_ = c.Tell(e)
		}, want: "already_running: a turn is under way"},
		{name: "other-version", serve: func(c *wire.Conn) {
			e, _ := wire.NewEvent(wire.EventHello, wire.Hello{Version: 2})
			_ = c.Tell(e)
		}, want: "the pod speaks version 2 of the protocol, and this program version 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			p := &peers{world: w}
			var ends []net.Conn
			p.dial = func(context.Context, record.Pod) (net.Conn, error) {
				ours, theirs := net.Pipe()
				ends = append(ends, theirs)
				if len(ends) > 1 { // the first is the probe
					go tt.serve(wire.NewConn(theirs, wire.Options{}))
				}
				return ours, nil
			}
			o := pod.Options{Backend: p, Store: w, Wall: w}
			if tt.late {
				o.Clock = newClock(5 * time.Second)
			}
			r, _ := setUp(t, o)
			install(t, r, "root", rw("/w"))
			got, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a")))
			want := "spawned pod `a` did not confirm initial task delivery: " + tt.want + "; the pod remains registered and can be inspected or stopped"
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
			if now, ok := r.Find("a"); !ok || now.State != record.Live || now.Confirmed || got.Name != "a" {
				t.Errorf("%+v, %v", now, ok)
			}
			if r.Effective("root").At("/w/a/x") != scope.Read || len(w.runs) != 1 {
				t.Errorf("root has %v; %v run", r.Effective("root"), w.runs)
			}
			for _, c := range ends {
				c.Close()
			}
		})
	}
}

// TestCallerLeaves: before the socket accepts all is undone, also where nobody waits for it.
func TestCallerLeaves(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("the caller left")
	w.deaf["a"] = true
	r, _ := setUp(t, pod.Options{Backend: w, Store: w, Wall: w, Step: func(s pod.Step) error {
		if s == pod.StepKept {
			cancel(left)
		}
		return nil
	}})
	install(t, r, "root", rw("/w"))
	if _, err := r.Spawn(ctx, request("root", "a", rw("/w/a"))); !errors.Is(err, left) {
		t.Errorf("%v", err)
	}
	if _, ok := r.Find("a"); ok || len(w.runs) != 0 || !w.can["root"].IsWritable("/w/a") {
		t.Errorf("%v; %v run; root can %v", ok, w.runs, w.can["root"])
	}
}

// TestUndoFails: what could not be ended keeps its scope, so that nobody else writes there, until it
// could.
func TestUndoFails(t *testing.T) {
	w := newWorld()
	fail := true
	r, _ := setUp(t, pod.Options{Store: w, Wall: w, Backend: &stubborn{w, &fail}})
	install(t, r, "root", rw("/w"))
	w.deaf["a"] = true
	_, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a")))
	if err == nil || !strings.Contains(err.Error(), "socket did not appear") || !strings.Contains(err.Error(), "it could not be undone, which is tried again: end pod `a`: still there") {
		t.Errorf("%v", err)
	}
	if w.can["root"].IsWritable("/w/a") || len(w.runs) != 1 {
		t.Errorf("root can %v; %v run", w.can["root"], w.runs)
	}
	if err := r.Settle(t.Context()); err == nil || w.can["root"].IsWritable("/w/a") {
		t.Errorf("%v; root can %v", err, w.can["root"])
	}
	fail = false
	if err := r.Settle(t.Context()); err != nil || !w.can["root"].IsWritable("/w/a") || len(w.runs) != 0 {
		t.Errorf("%v; root can %v; %v run", err, w.can["root"], w.runs)
	}
}

type stubborn struct {
	*world
	fail *bool
}

func (s *stubborn) End(ctx context.Context, p record.Pod) error {
	if *s.fail {
		return errors.New("still there")
	}
	return s.world.End(ctx, p)
}

// TestStderrInTheError: what a child said before it fell silent.
func TestStderrInTheError(t *testing.T) {
	w := newWorld()
	w.deaf["a"] = true
	r, _ := setUp(t, pod.Options{Store: w, Wall: w, Backend: talkative{w}})
	install(t, r, "root", rw("/w"))
	_, err := r.Spawn(t.Context(), request("root", "a", rw("/w/a")))
	if want := "within 10s: a/sock\n--- child stderr (/log) ---\nno model\n"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

type talkative struct{ *world }

func (talkative) Stderr(record.Pod) (string, []byte) { return "/log", []byte("no model\n") }

// TestUpward: who is above the spawner is told of the grandchild, in the background.
func TestUpward(t *testing.T) {
	w := newWorld()
	p := &peers{world: w}
	told := make(chan wire.Method, 1)
	p.dial = func(ctx context.Context, q record.Pod) (net.Conn, error) {
		if q.Name != "root" {
			return w.Dial(ctx, q)
		}
		ours, theirs := net.Pipe()
		go func() {
			m, _ := wire.NewConn(theirs, wire.Options{}).Method()
			told <- m
		}()
		return ours, nil
	}
	r, _ := setUp(t, pod.Options{Backend: p, Store: w, Wall: w})
	install(t, r, "root", rw("/w"))
	for _, q := range []pod.Request{request("root", "a", rw("/w/a")), request("a", "b", rw("/w/a/b"))} {
		if _, err := r.Spawn(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	args, err := (<-told).Arguments()
	e, ok := args.(*wire.PodEvent)
	if err != nil || !ok || e.Text() != "Pod `a` spawned `b` and delegated scope to it." || string(e.Scope) != `[{"target":"/w/a/b","permission":"write","recursive":true}]` || e.SubSocket != "b/sock" {
		t.Errorf("%+v, %v", args, err)
	}
	if !r.Descends("b", "root") || r.Descends("a", "b") || len(r.Children("root")) != 1 {
		t.Error("the tree is not as it was made")
	}
}
