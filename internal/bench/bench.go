package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// DefaultRounds is how often each case is measured: enough for a median that
// one disturbance does not move.
const DefaultRounds = 15

const (
	maxRounds   = 1000
	quickRounds = 3
)

// Options say what is measured.
type Options struct {
	Carboy   string                           // the program to measure: carboy's own
	Version  string                           // of it
	GVisor   string                           // the program of gVisor's that it carries; "": there is none
	Dir      string                           // below which the run works; "": where temporary files are
	Rounds   int                              // 0: DefaultRounds, or 3 where Quick is set
	Quick    bool                             // small amounts, for a look
	Only     []string                         // groups, cases, or GROUP/CASE; none: all
	Progress func(format string, args ...any) // is told what is going on; may be nil

	gate *GateOptions // not nil: the way through gates is measured, and nothing else
}

// complete fills in what o leaves out, and refuses what can't be measured.
func (o *Options) complete() error {
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	if o.Rounds < 0 || o.Rounds > maxRounds {
		return sandbox.Errorf(sandbox.Invalid, "%d rounds: out of bounds, which are 1 and %d", o.Rounds, maxRounds)
	}
	if o.Rounds == 0 {
		o.Rounds = DefaultRounds
		if o.Quick {
			o.Rounds = quickRounds
		}
	}
	return nil
}

// deaf has signals end nothing but the caller's context, until it is undone.
func deaf() (undo func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return func() { signal.Stop(c) }
}

// Run measures, and takes away all that it made. Where ctx ends before, the
// report says so and has what was measured until then, and the error is ctx's
// cause. A name in Only that means nothing is Invalid.
//
// Signals are the caller's to make an end of ctx of. While Run runs they have
// no other effect, so that what is taken away at the end is so to the last.
//
// This process becomes the parent of all that its descendants leave behind,
// and ends that: Run is for a process that does nothing else.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	defer deaf()()
	w, err := newWorld(o.Dir, o.Carboy, o.Quick)
	if err != nil {
		return nil, fmt.Errorf("make a directory to work in: %w", err)
	}
	w.gvisor = o.GVisor
	rep := &Report{
		Schema: schema, Version: o.Version, Started: time.Now().UTC(), Rounds: o.Rounds, Quick: o.Quick, Machine: lookAround(w.dir),
	}
	err = w.runAll(ctx, o, rep)
	if err != nil && ctx.Err() != nil {
		o.Progress("ending, and removing what was made")
	}
	rep.Leftover = w.close(ctx)
	rep.Took = time.Since(rep.Started).Seconds()
	if err != nil {
		rep.Cut = err.Error()
	}
	return rep, err
}

// runAll fills rep.
func (w *world) runAll(ctx context.Context, o Options, rep *Report) error {
	p := w.plan()
	if o.gate != nil {
		p = o.gate.plan(w)
	}
	if err := p.choose(o.Only); err != nil {
		return err
	}
	if err := p.meet(ctx, rep, o.Progress); err != nil {
		return err
	}
	seed := uint64(os.Getpid())
	r := &runner{rounds: o.Rounds, shuffle: rand.New(rand.NewPCG(seed, uint64(rep.Started.UnixNano()))), progress: o.Progress, now: time.Now}
	for _, g := range p.groups {
		mark := w.mark()
		res, err := r.measure(ctx, g)
		w.unwind(ctx, mark)
		rep.Groups = append(rep.Groups, res)
		if err != nil {
			return err
		}
	}
	return nil
}

// plan is all that there is to measure.
type plan struct {
	peers  []peer
	groups []group
	owner  map[string]string // peers, by the names of their cases
}

// plan puts together what every peer can do.
func (w *world) plan() *plan {
	idle, burst := 10, 50
	if w.quick {
		idle, burst = 3, 10
	}
	ours, bursts := w.ours(idle, burst)
	plain := &docker{w: w, name: "docker", runtime: "runc"}
	walled := &docker{w: w, name: "docker-runsc", runtime: "runsc"}
	p := &plan{owner: map[string]string{}}
	p.peers = []peer{w.native(), w.bwrap(), w.runc(), w.runsc(idle), plain.peer(idle), walled.peer(idle), ours}
	start := group{name: "start", title: "a sandbox is made for one command, which prints a word, and removed", metrics: []metric{{firstOutput, millis}, {done, millis}}}
	exec := group{name: "exec", title: "/bin/true in a sandbox that is there, until its end is known", metrics: []metric{{whole, millis}}}
	memory := group{name: "memory", title: fmt.Sprintf("one of %d idle sandboxes, all its processes counted", idle), metrics: []metric{{proportional, mebi}, {takenAway, mebi}}}
	var places []place
	own := func(of peer, cases []testCase) []testCase {
		for _, c := range cases {
			p.owner[c.name] = of.name
		}
		return cases
	}
	for _, x := range p.peers {
		start.cases = append(start.cases, own(x, x.start)...)
		exec.cases = append(exec.cases, own(x, x.exec)...)
		memory.cases = append(memory.cases, own(x, x.memory)...)
		places = append(places, x.places...)
		for _, at := range x.places {
			p.owner[at.name] = x.name
		}
	}
	p.groups = []group{start, exec, {
		name: "burst", title: fmt.Sprintf("%d creates at once, and one", burst), cases: own(ours, bursts),
		metrics: []metric{{all, millis}, {machineTime, millis}, {cpuTimeEach, millis}},
	}, memory}
	for _, j := range w.jobs() {
		p.groups = append(p.groups, w.work(j, places))
	}
	for _, g := range w.sessionGroups(plain) {
		for _, c := range g.cases {
			p.owner[c.name] = ours.name
		}
		p.groups = append(p.groups, g)
	}
	p.owner["docker-sessions"] = plain.name
	return p
}

// choose leaves of p only what is named.
func (p *plan) choose(only []string) error {
	if len(only) == 0 {
		p.groups = slices.DeleteFunc(p.groups, func(g group) bool { return g.named })
		return nil
	}
	names := p.names()
	used := make([]bool, len(only))
	p.keep(func(g group, c testCase) bool {
		found := false
		for i, name := range only {
			if name == g.name || name == c.name || name == g.name+"/"+c.name {
				used[i], found = true, true
			}
		}
		return found
	})
	if i := slices.Index(used, false); i >= 0 {
		return sandbox.Errorf(sandbox.Invalid, "there is nothing named %.80q to measure", only[i]).
			WithHint("%s", "groups: "+strings.Join(names, ", ")+"; the first column of a table has the cases")
	}
	return nil
}

// Groups are the names of all groups that Run measures.
func Groups() []string { return (&world{}).plan().names() }

// names are those of p's groups.
func (p *plan) names() (names []string) {
	for _, g := range p.groups {
		names = append(names, g.name)
	}
	return names
}

// keep drops all cases but some, and groups without any.
func (p *plan) keep(want func(group, testCase) bool) {
	for i := range p.groups {
		g := &p.groups[i]
		g.cases = slices.DeleteFunc(g.cases, func(c testCase) bool { return !want(*g, c) })
	}
	p.groups = slices.DeleteFunc(p.groups, func(g group) bool { return len(g.cases) == 0 })
}

// meet finds out which peers are here, opens them, and drops the cases of the
// others.
func (p *plan) meet(ctx context.Context, rep *Report, progress func(string, ...any)) error {
	needed, here := map[string]bool{}, map[string]bool{}
	for _, g := range p.groups {
		for _, c := range g.cases {
			needed[p.owner[c.name]] = true
		}
	}
	for _, x := range p.peers {
		if !needed[x.name] {
			continue
		}
		ok, note := x.available(ctx)
		if ok && x.open != nil {
			if err := x.open(ctx); err != nil {
				ok, note = false, note+", but: "+err.Error()
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !ok {
			progress("without %s: %s", x.name, note)
		}
		here[x.name] = ok
		rep.Peers = append(rep.Peers, Peer{Name: x.name, Found: ok, Note: note})
	}
	p.keep(func(_ group, c testCase) bool { return here[p.owner[c.name]] })
	if len(p.groups) == 0 {
		return errors.New("nothing of what is to be measured is here")
	}
	return nil
}
