package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/bench/trace"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// rest is how long the machine is left alone before a run: what a daemon does
// after an answer is not to be in the next run's trace.
const rest = 200 * time.Millisecond

// tracedCase is a command of which a trace is taken.
type tracedCase struct {
	name, title string
	prepare     func(ctx context.Context) (command, error)
}

// tracedCases are a create of nothing that is warm, and a command in a sandbox
// that is there, behind each wall.
func (w *world) tracedCases() (cases []tracedCase) {
	for _, wall := range walls {
		cases = append(cases, tracedCase{
			"run-" + wall.name, "carboy run --isolation " + wall.name + " -- true, with a daemon that keeps nothing warm",
			func(ctx context.Context) (command, error) {
				d, err := w.cold(ctx)
				if err != nil {
					return command{}, err
				}
				return d.command("run", "--isolation", wall.name, "--", "true"), nil
			},
		}, tracedCase{
			"exec-" + wall.name, "carboy exec NAME -- true, in a sandbox of " + wall.name + " that is there",
			func(ctx context.Context) (command, error) {
				d, id, err := w.sandboxFor(ctx, wall.name)
				if err != nil {
					return command{}, err
				}
				return d.command("exec", id, "--", "true"), nil
			},
		})
	}
	return cases
}

// RunTrace tells from the kernel's trace events where the time of a create and of
// a command goes. It needs root, and says what is missing. Of o it does not read
// Quick and GVisor; Only names cases. What is said of Run holds for it too.
func RunTrace(ctx context.Context, o Options) (_ *TraceReport, err error) {
	o.Quick = false
	if err := o.complete(); err != nil {
		return nil, err
	}
	k, err := trace.Open()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	defer deaf()()
	w, err := newWorld(o.Dir, o.Carboy, false)
	if err != nil {
		return nil, fmt.Errorf("make a directory to work in: %w", err)
	}
	rep := &TraceReport{Schema: schema, Version: o.Version, Started: time.Now().UTC(), Rounds: o.Rounds, Machine: lookAround(w.dir)}
	err = w.traceAll(ctx, k, o, rep)
	rep.Leftover = w.close(ctx)
	rep.Took = time.Since(rep.Started).Seconds()
	if err != nil {
		rep.Cut = err.Error()
	}
	return rep, err
}

// traceAll fills rep.
func (w *world) traceAll(ctx context.Context, k *trace.Kernel, o Options, rep *TraceReport) error {
	cases, err := choose(w.tracedCases(), o.Only)
	if err != nil {
		return err
	}
	if _, err := w.cold(ctx); err != nil { // once, as what a case makes goes with it
		return err
	}
	for _, c := range cases {
		o.Progress("%s: tracing, rounds: %d", c.name, o.Rounds)
		mark := w.mark()
		res, err := w.traceCase(ctx, k, c, o.Rounds)
		w.unwind(ctx, mark)
		for _, why := range res.Reasons {
			o.Progress("%s: %s", c.name, why)
		}
		rep.Cases = append(rep.Cases, res)
		if err != nil {
			return err
		}
	}
	return nil
}

// choose leaves of cases those that are named; all, where none is.
func choose(cases []tracedCase, only []string) (chosen []tracedCase, err error) {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
		if len(only) == 0 || slices.Contains(only, c.name) {
			chosen = append(chosen, c)
		}
	}
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, sandbox.Errorf(sandbox.Invalid, "there is nothing named %.80q to trace", name).WithHint("cases: %s", strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

// traceCase runs c so often after a warm-up. The error is ctx's cause.
func (w *world) traceCase(ctx context.Context, k *trace.Kernel, c tracedCase, rounds int) (TraceCase, error) {
	var runs []trace.Run
	t := &track{}
	cmd, err := c.prepare(ctx)
	if err != nil {
		t.fail(fmt.Errorf("prepare: %w", err))
		rounds = -1
	}
	for round := 0; round <= rounds && ctx.Err() == nil; round++ {
		run, err := w.traced(ctx, k, cmd)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			t.fail(err)
		case round > 0:
			runs = append(runs, run)
		}
	}
	res := summarizeTrace(runs)
	res.Name, res.Title, res.Failures, res.Reasons = c.name, c.title, t.failures, t.why
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	return res, nil
}

// traced runs c once, with all processes of this run in the trace.
func (w *world) traced(ctx context.Context, k *trace.Kernel, c command) (trace.Run, error) {
	w.reap()
	if err := pause(ctx, rest); err != nil {
		return trace.Run{}, err
	}
	all, err := readProcesses()
	if err != nil {
		return trace.Run{}, err
	}
	return k.Record(pidsOf(below(all, os.Getpid()), os.Getpid()), func() error {
		_, err := w.run(ctx, c)
		return err
	})
}

// summarizeTrace takes medians of runs: of each process by its role, which is its
// name and which of that name it is.
func summarizeTrace(runs []trace.Run) TraceCase {
	nameAll(runs)
	res := TraceCase{Samples: runs}
	var wholes []float64
	type key struct {
		name string
		nth  int
	}
	roles := order[key, trace.Process]{}
	parts := order[string, trace.Phase]{}
	steps, shares := order[trace.Step, float64]{}, order[trace.Step, float64]{}
	for _, r := range runs {
		wholes = append(wholes, r.Whole)
		seen := map[string]int{}
		for _, p := range r.Processes {
			seen[p.Name]++
			roles.add(key{p.Name, seen[p.Name]}, p)
		}
		for _, p := range r.Phases {
			parts.add(p.Name, p)
		}
		for _, s := range r.Path {
			took := s.Took
			s.Took = 0
			steps.add(s, took)
			shares.add(s, took/r.Whole)
		}
	}
	res.Whole = summarize(wholes)
	for _, k := range roles.keys {
		res.Roles = append(res.Roles, roleOf(k.name, k.nth, roles.of[k]))
	}
	slices.SortStableFunc(res.Roles, func(a, b TraceRole) int { return cmp.Compare(a.Begin.Median, b.Begin.Median) })
	for _, name := range parts.keys {
		of := func(f func(p trace.Phase) float64) Summary { return summaryOf(parts.of[name], f) }
		res.Phases = append(res.Phases, TracePhase{
			Name: name, Took: of(func(p trace.Phase) float64 { return p.Took }), Runs: of(func(p trace.Phase) float64 { return p.Runs }),
			Waits: of(func(p trace.Phase) float64 { return p.Waits }), Blocked: of(func(p trace.Phase) float64 { return p.Blocked }),
		})
	}
	for _, s := range steps.keys {
		// A run without the step is one where it took nothing.
		none := make([]float64, len(runs)-len(steps.of[s]))
		res.Path = append(res.Path, TraceStep{
			Name: s.Name, Does: s.Does, By: s.By, Deep: s.Deep,
			Took: summarize(append(none, steps.of[s]...)), Part: summarize(append(none, shares.of[s]...)),
		})
	}
	slices.SortStableFunc(res.Path, func(a, b TraceStep) int { return cmp.Compare(b.Took.Median, a.Took.Median) })
	return res
}

// nameAll gives a process whose name could not be read that of another run's which
// executed the same file as the same child of a parent of the same name.
func nameAll(runs []trace.Run) {
	type place struct {
		parent, file string
		nth          int
	}
	names := map[place]string{}
	each := func(f func(at place, p *trace.Process)) {
		for _, r := range runs {
			of := map[int]string{}
			seen := map[place]int{}
			for i := range r.Processes {
				p := &r.Processes[i]
				at := place{parent: of[p.Parent], file: p.File}
				at.nth = seen[at]
				seen[at]++
				f(at, p)
				of[p.PID] = p.Name
			}
		}
	}
	each(func(at place, p *trace.Process) {
		if !p.Guess && names[at] == "" {
			names[at] = p.Name
		}
	})
	each(func(at place, p *trace.Process) {
		if p.Guess && names[at] != "" {
			p.Name = names[at]
		}
	})
}

// roleOf sums up what the processes of one role did.
func roleOf(name string, nth int, ps []trace.Process) TraceRole {
	of := func(f func(p trace.Process) float64) Summary { return summaryOf(ps, f) }
	r := TraceRole{
		Name: name, Nth: nth, Before: ps[0].Before,
		Begin: of(func(p trace.Process) float64 { return p.Begin }),
		CPU:   of(func(p trace.Process) float64 { return p.CPU }),
		Wait:  of(func(p trace.Process) float64 { return p.Wait }),
		Block: of(func(p trace.Process) float64 { return p.Block }),
	}
	var ends []float64
	for _, p := range ps {
		if p.End != nil {
			ends = append(ends, *p.End)
		}
	}
	r.End = summarize(ends)
	return r
}

// summaryOf sums up a value of each.
func summaryOf[T any](all []T, f func(T) float64) Summary {
	var samples []float64
	for _, x := range all {
		samples = append(samples, f(x))
	}
	return summarize(samples)
}

// order gathers values by key, and remembers which key came first.
type order[K comparable, V any] struct {
	keys []K
	of   map[K][]V
}

func (o *order[K, V]) add(k K, v V) {
	if o.of == nil {
		o.of = map[K][]V{}
	}
	if _, ok := o.of[k]; !ok {
		o.keys = append(o.keys, k)
	}
	o.of[k] = append(o.of[k], v)
}
