package pod_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// acts are what may happen in the bounded world: a top, two names for children, places that
// are apart, the same and below one another.
func acts() []act {
	bg := context.Background()
	install := func(rules ...scope.Rule) act {
		return act{fmt.Sprintf("install root %v", rules), func(r *pod.Registry, _ *world) error {
			_, err := r.Install(bg, pod.Top{Name: "root", Allow: rules})
			return err
		}}
	}
	release := func(name string) act {
		return act{"release " + name, func(r *pod.Registry, _ *world) error { return r.Release(bg, name) }}
	}
	all := []act{
		install(rw("/w")),
		spawn("root", "a", rw("/w")), spawn("root", "a", rw("/w/x")),
		spawn("root", "b", rw("/w/x/y")), spawn("root", "b", rw("/w/z")), spawn("a", "b", rw("/w/x/y")),
		release("root"), release("a"), release("b"),
		{"reclaim root>a", func(r *pod.Registry, _ *world) error { return r.Reclaim(bg, "root", "a") }},
		{"adopt a", func(r *pod.Registry, _ *world) error {
			_, err := r.Adopt(bg, "a", procid.ID{PID: 1}, "")
			return err
		}},
		{"reap", func(r *pod.Registry, w *world) error {
			g, err := r.Adopt(bg, "root", procid.ID{}, "") // somebody holds the top
			_, rerr := r.Reap(bg)
			_, _ = g, err
			return rerr
		}},
		{"a falls silent, and is reaped", func(r *pod.Registry, w *world) error {
			if _, ok := r.Find("a"); ok {
				w.deaf["a"] = true
			}
			_, _ = r.Adopt(bg, "root", procid.ID{}, "")
			_, err := r.Reap(bg)
			return err
		}},
		{"spawn b, which never listens", func(r *pod.Registry, w *world) error {
			if _, ok := r.Find("b"); !ok {
				w.deaf["b"] = true
			}
			defer delete(w.deaf, "b")
			return spawn("root", "b", rw("/w/x")).do(r, w)
		}},
	}
	return all
}

// TestNoTwoWritersWhereverItEnds is the proof over facts: in every world that comes of spawns, ends,
// silence, adoption and restarts, in whatever order, with the daemon killed at each point of each, or each
// point failing, nobody writes what another writes, at no moment, and the next life of the daemon
// leaves no orphan, no lost right and nothing half done: also where it is killed itself.
func TestNoTwoWritersWhereverItEnds(t *testing.T) {
	e := explorer{seen: map[string]bool{}, half: map[string]bool{}, next: []*world{newWorld()}}
	all := acts()
	for len(e.next) > 0 && !t.Failed() {
		from := e.next[0]
		e.next = e.next[1:]
		for _, a := range all {
			for _, kill := range []bool{false, true} {
				e.everyPoint(t, from, a, kill)
			}
		}
	}
	t.Logf("%d worlds, %d half done, %d runs, %d kills", len(e.seen), len(e.half), e.runs, e.kills)
	if len(e.seen) < 10 || len(e.half) < 10 || e.kills < 500 {
		t.Error("too few to say anything")
	}
}

// explorer goes through worlds, each once.
type explorer struct {
	seen, half  map[string]bool // that were settled, and that a kill left
	next        []*world
	runs, kills int
}

// everyPoint does one thing with the fault at each of its points, and without one.
func (e *explorer) everyPoint(t *testing.T, from *world, a act, kill bool) {
	for faulty := -1; !t.Failed(); faulty++ {
		if kill && faulty < 0 {
			continue
		}
		w := from.clone()
		if reached := w.run(t, a, faulty, kill); !reached && faulty >= 0 {
			return
		}
		e.runs++
		after := fmt.Sprintf("%s; %s, fault at %d (kill: %v)", from.key(), a.name, faulty, kill)
		if kill {
			e.kills++
			e.killedAgain(t, w, after)
		}
		e.settled(t, w, after)
	}
}

// killedAgain kills the next life of the daemon, too, at each point of its settling.
func (e *explorer) killedAgain(t *testing.T, from *world, after string) {
	if key := from.key(); e.half[key] {
		return
	} else {
		e.half[key] = true
	}
	for faulty := 0; !t.Failed(); faulty++ {
		w := from.clone()
		if !w.settle(t, faulty) {
			return
		}
		e.kills++
		e.settled(t, w, fmt.Sprintf("%s, killed again at %d", after, faulty))
	}
}

func (e *explorer) settled(t *testing.T, w *world, after string) {
	w.check(t, after)
	if key := w.key(); !e.seen[key] {
		e.seen[key] = true
		e.next = append(e.next, w)
	}
}

// careless is a world whose wall is told of a demotion and does nothing: the control.
type careless struct{ *world }

func (c careless) Enforce(ctx context.Context, p record.Pod, s scope.Scope, how pod.Enforcing) error {
	return c.world.Enforce(ctx, p, p.Scope(), how)
}

// TestTwoWritersAreSeen is the control: with a wall that demotes nobody, and with a backend that
// ends nobody, the world sees it.
func TestTwoWritersAreSeen(t *testing.T) {
	bg := context.Background()
	for name, open := range map[string]func(*world) pod.Options{
		"a-wall-that-demotes-nobody": func(w *world) pod.Options { return pod.Options{Store: w, Backend: w, Wall: careless{w}} },
		"a-backend-that-ends-nobody": func(w *world) pod.Options { return pod.Options{Store: w, Backend: immortal{w}, Wall: w} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			o := open(w)
			o.Clock, o.Token = newClock(), w.token
			r, err := pod.Open(bg, o)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := r.Install(bg, pod.Top{Name: "root", Allow: []scope.Rule{rw("/w")}}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Spawn(bg, pod.Request{Spawner: "root", Name: "a", Allow: []scope.Rule{rw("/w/x")}}); err != nil {
				t.Fatal(err)
			}
			if err := r.Release(bg, "a"); err != nil {
				t.Fatal(err)
			}
			if len(w.wrong) == 0 {
				t.Error("nothing was seen")
			}
		})
	}
}

type immortal struct{ *world }

func (immortal) End(context.Context, record.Pod) error { return nil }
