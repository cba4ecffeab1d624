package pod_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

func rw(target string) scope.Rule {
	return scope.Rule{Target: target, Permission: scope.Write, Recursive: true}
}

// world is all that outlives the daemon: records, what pods can do in fact, and what runs. It is the
// store, the backend and the wall of a registry, and counts the points at which something may
// go wrong.
type world struct {
	mu      sync.Mutex
	records map[string]record.Pod
	can     map[string]scope.Scope // in fact, by name: of tops that are registered, and of children that run
	runs    map[string]string      // tokens of what was started, and whose they are
	deaf    map[string]bool        // pods at whose socket nobody listens
	tokens  int

	point  int // how many were passed
	faulty int // the one at which the fault is; none: -1
	fault  func(what string) error
	wrong  []string // what was seen that must not be
	crowd  bool     // there are too many to look at each pair each time
}

var (
	_ pod.Store   = (*world)(nil)
	_ pod.Backend = (*world)(nil)
	_ pod.Wall    = (*world)(nil)
)

func newWorld() *world {
	return &world{records: map[string]record.Pod{}, can: map[string]scope.Scope{}, runs: map[string]string{}, deaf: map[string]bool{}, faulty: -1}
}

func (w *world) clone() *world {
	c := newWorld()
	c.records, c.can, c.runs, c.deaf, c.tokens = maps.Clone(w.records), maps.Clone(w.can), maps.Clone(w.runs), maps.Clone(w.deaf), w.tokens
	return c
}

// key is the world as text, by which one that was seen is known.
func (w *world) key() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		p := w.records[name]
		fmt.Fprintf(&b, "%s<%s %s %v -%v %v;", name, p.Parent, p.State, p.Allow, p.Deny, p.Confirmed)
	}
	for _, name := range slices.Sorted(maps.Keys(w.can)) {
		fmt.Fprintf(&b, "%s can %v;", name, w.can[name])
	}
	fmt.Fprintf(&b, "%v %v", slices.Sorted(maps.Values(w.runs)), slices.Sorted(maps.Keys(w.deaf)))
	return b.String()
}

// pass is a point at which something may go wrong.
func (w *world) pass(what string) error {
	w.point++
	if w.point-1 == w.faulty {
		return w.fault(what)
	}
	return nil
}

// look notes where two can write, or a child more than it was given. It is called after each
// change of what anybody can do.
func (w *world) look(after string) {
	if w.crowd {
		return
	}
	names := slices.Sorted(maps.Keys(w.can))
	for i, a := range names {
		for _, b := range names[:i] {
			if path, ok := scope.Disjoint(w.can[a], w.can[b]); !ok {
				w.wrong = append(w.wrong, fmt.Sprintf("after %s: %s and %s both write %s", after, a, b, path))
			}
		}
		if p, ok := w.records[a]; ok {
			if ex, ok := scope.Subset(w.can[a], p.Scope()); !ok {
				w.wrong = append(w.wrong, fmt.Sprintf("after %s: %s can do %v more than it was given", after, a, ex))
			}
		} else {
			w.wrong = append(w.wrong, fmt.Sprintf("after %s: %s can do something, and has no record", after, a))
		}
	}
}

func (w *world) Pods(context.Context, string) (out []record.Pod, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.records)) {
		out = append(out, w.records[name].Clone())
	}
	return out, nil
}

func (w *world) ChangePods(_ context.Context, _ string, put []record.Pod, gone []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.pass("write"); err != nil {
		return err
	}
	for _, name := range gone {
		if w.records[name].Token == "" {
			delete(w.can, name) // a top that lets go of its registration is done
		}
		delete(w.records, name)
	}
	for _, p := range put {
		w.records[p.Name] = p.Clone()
	}
	w.look("write")
	return w.pass("wrote")
}

func (w *world) Enforce(_ context.Context, p record.Pod, s scope.Scope, _ pod.Enforcing) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.pass("enforce"); err != nil {
		return err
	}
	if _, there := w.can[p.Name]; there || p.Token == "" {
		w.can[p.Name] = s
		w.look("enforce " + p.Name)
	}
	return w.pass("enforced")
}

func (w *world) Start(_ context.Context, p record.Pod, l pod.Launch) (pod.Started, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.pass("start"); err != nil {
		return pod.Started{}, err
	}
	w.runs[p.Token], w.can[p.Name] = p.Name, scope.Scope{Allow: l.Config.Scope}
	w.look("start " + p.Name)
	return pod.Started{Ref: "ref of " + p.Token}, nil
}

func (w *world) End(_ context.Context, p record.Pod) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.pass("end"); err != nil {
		return err
	}
	if w.runs[p.Token] != "" {
		delete(w.can, p.Name)
		delete(w.deaf, p.Name)
	}
	delete(w.runs, p.Token)
	return w.pass("ended")
}

// Dial answers for a pod that runs and is not deaf, as one that takes every task.
func (w *world) Dial(_ context.Context, p record.Pod) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[p.Token] == "" || w.deaf[p.Name] {
		return nil, os.ErrNotExist
	}
	ours, theirs := net.Pipe()
	go func() {
		c := wire.NewConn(theirs, wire.Options{})
		defer c.Close()
		if _, err := c.Method(); err == nil {
			_ = c.Tell(wire.Event{Name: wire.EventTurnStart})
			_, _ = c.Method() // until the other end closes
		}
	}()
	return ours, nil
}

func (w *world) token() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens++
	return fmt.Sprint("t", w.tokens)
}

// open is the next life of the daemon.
func (w *world) open(t *testing.T) *pod.Registry {
	t.Helper()
	r, err := pod.Open(context.Background(), pod.Options{
		Store: w, Backend: w, Wall: w, Clock: newClock(), Token: w.token,
		Step: func(s pod.Step) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.pass(string(s))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// settled says what is wrong with a world that nobody is at work in; "": nothing.
func (w *world) settled(r *pod.Registry) string {
	owners := map[string]string{}
	for token, name := range w.runs {
		owners[name] = token
		if w.records[name].Token != token {
			return name + " runs, and has no record"
		}
	}
	for name, p := range w.records {
		if p.State != record.Live {
			return fmt.Sprintf("%s is %s", name, p.State)
		}
		if want := r.Effective(name); p.Token == "" || owners[name] != "" {
			can, a := scope.Subset(w.can[name], want)
			_, b := scope.Subset(want, w.can[name])
			if !a || !b {
				return fmt.Sprintf("%s can do %v, and may do %v (%v)", name, w.can[name], want, can)
			}
		}
		if p.Parent != "" && w.records[p.Parent].Name == "" {
			return fmt.Sprintf("%s has the parent %s, who is gone", name, p.Parent)
		}
	}
	return ""
}

// errFault is what goes wrong where nobody is killed.
var errFault = errors.New("something went wrong")

// killed is thrown where the daemon is.
type killed struct{ at string }

// act is one thing that may happen.
type act struct {
	name string
	do   func(*pod.Registry, *world) error
}

func spawn(spawner, name string, rule scope.Rule) act {
	return act{fmt.Sprintf("spawn %s>%s %v", spawner, name, rule), func(r *pod.Registry, _ *world) error {
		_, err := r.Spawn(context.Background(), pod.Request{Spawner: spawner, Name: name, Task: "t", Allow: []scope.Rule{rule}})
		return err
	}}
}

// run does one thing in one life of the daemon, with a fault or none, and reports whether the
// point of the fault was reached.
func (w *world) run(t *testing.T, a act, faulty int, kill bool) (reached bool) {
	t.Helper()
	r := w.open(t)
	defer r.Close()
	if err := r.Settle(context.Background()); err != nil {
		t.Fatalf("before %s: %v", a.name, err)
	}
	// What it says is others' test: here what it leaves counts.
	return w.faulted(faulty, kill, func() { _ = a.do(r, w) })
}

// settle kills a life of the daemon at a point of what it does first.
func (w *world) settle(t *testing.T, faulty int) (reached bool) {
	t.Helper()
	r := w.open(t)
	defer r.Close()
	return w.faulted(faulty, true, func() { _ = r.Settle(context.Background()) })
}

func (w *world) faulted(faulty int, kill bool, do func()) (reached bool) {
	w.point, w.faulty = 0, faulty
	w.fault = func(what string) error {
		if kill {
			panic(killed{what})
		}
		return fmt.Errorf("%s: %w", what, errFault)
	}
	defer func() {
		reached = w.point > faulty
		w.faulty = -1
		if e := recover(); e != nil {
			if _, ok := e.(killed); !ok {
				panic(e)
			}
		}
	}()
	do()
	return true
}

// check wants the world to be as it should once the next life of the daemon has settled it.
func (w *world) check(t *testing.T, after string) {
	t.Helper()
	r := w.open(t)
	defer r.Close()
	if err := r.Settle(context.Background()); err != nil {
		t.Errorf("after %s: settle: %v", after, err)
	}
	if wrong := w.settled(r); wrong != "" {
		t.Errorf("after %s: %s", after, wrong)
	}
	if len(w.wrong) > 0 {
		t.Errorf("after %s: %q", after, w.wrong)
	}
}
