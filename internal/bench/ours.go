package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
)

// wall is one of ours, and what it is compared with.
type wall struct {
	name                                     string
	startAgainst, memoryAgainst, workAgainst []string
	warmAgainst, execAgainst                 []string
}

// walls are all that sandboxes of ours are made of.
var walls = []wall{
	{
		name:          "gvisor",
		startAgainst:  []string{"runsc", "docker"},
		warmAgainst:   []string{"docker", "docker-runsc"},
		execAgainst:   []string{"carboy-gvisor-inside", "runsc", "docker"},
		memoryAgainst: []string{"runsc", "docker-runsc"},
		workAgainst:   []string{"runsc", "docker", "native"},
	},
	{
		name:          "process",
		startAgainst:  []string{"bwrap", "docker"},
		warmAgainst:   []string{"bwrap", "docker"},
		execAgainst:   []string{"carboy-process-inside", "docker"},
		memoryAgainst: []string{"docker"},
		workAgainst:   []string{"bwrap", "docker", "native"},
	},
}

// poolSize is how many instances of a kind the warm daemon keeps.
const poolSize = 2

// ours are the cases of our own sandboxes.
func (w *world) ours(n, burst int) (p peer, bursts []testCase) {
	p = peer{
		name:      "carboy",
		available: func(context.Context) (bool, string) { return true, w.carboy },
		open: func(ctx context.Context) error {
			_, err := w.cold(ctx)
			return err
		},
		memory: w.memoryCases(n),
	}
	for _, wall := range walls {
		name := "carboy-" + wall.name
		p.start = append(p.start,
			testCase{name: name, against: wall.startAgainst, prepare: func(ctx context.Context) (measure, error) {
				d, err := w.cold(ctx)
				return d.created(wall.name, nil), err
			}},
			testCase{name: name + "-cli", against: wall.startAgainst, prepare: func(ctx context.Context) (measure, error) {
				d, err := w.cold(ctx)
				if err != nil {
					return nil, err
				}
				return w.started(d.command(append([]string{"run", "--isolation", wall.name, "--"}, word...)...)), nil
			}})
		p.exec = append(p.exec,
			testCase{name: name, against: wall.execAgainst, prepare: w.throughClient(wall.name)},
			testCase{name: name + "-cli", against: wall.execAgainst, prepare: w.throughCLI(wall.name)},
			testCase{name: name + "-inside", prepare: w.inside(wall.name)})
		bursts = append(bursts,
			testCase{name: name + "-one", prepare: w.burst(wall.name, 1)},
			testCase{name: fmt.Sprintf("%s-%d", name, burst), against: []string{name + "-one"}, prepare: w.burst(wall.name, burst)})
		for _, mode := range []string{"private", "cow", "rw"} {
			p.places = append(p.places, w.workspace(wall, mode))
		}
	}
	warm := sync.OnceValues(func() (*daemon, error) { return w.startWarm(context.Background()) })
	for _, wall := range walls {
		p.start = append(p.start, testCase{name: "carboy-" + wall.name + "-warm", against: wall.warmAgainst, prepare: func(ctx context.Context) (measure, error) {
			d, err := warm()
			if err != nil {
				return nil, err
			}
			return d.warm(ctx, wall.name)
		}})
	}
	return p, bursts
}

// command runs carboy itself, in d's home.
func (d *daemon) command(args ...string) command {
	return command{argv: append([]string{d.w.carboy}, args...), env: d.env}
}

// created measures from a create to the first output of a command, and until
// the sandbox is gone. between, which may be nil, is called after that output,
// and is in no time.
func (d *daemon) created(wall string, between func(context.Context) error) measure {
	return func(ctx context.Context) (_ values, err error) {
		start := time.Now()
		id, err := d.create(ctx, api.CreateRequest{Isolation: wall})
		if err != nil {
			return nil, err
		}
		first := &clock{start: start}
		exit, err := d.by.Exec(ctx, id, client.ExecOptions{Command: &guestv1.Command{Argv: word}, Stdout: first})
		if err == nil && (exit.GetCode() != 0 || first.took == 0) {
			err = fmt.Errorf("%s: exit code %d", word[0], exit.GetCode())
		}
		until := time.Since(start)
		if err == nil && between != nil {
			err = between(ctx)
		}
		start = time.Now()
		if err := errors.Join(err, d.by.Remove(ctx, id, true)); err != nil {
			return nil, err
		}
		return values{firstOutput: ms(first.took), done: ms(until + time.Since(start))}, nil
	}
}

// clock notes when something was first written to it.
type clock struct {
	start time.Time
	took  time.Duration
}

// Write drops p.
func (c *clock) Write(p []byte) (int, error) {
	if c.took == 0 && len(p) > 0 {
		c.took = time.Since(c.start)
	}
	return len(p), nil
}

// warm is created for a daemon with a pool, which is full each time.
func (d *daemon) warm(ctx context.Context, wall string) (measure, error) {
	// A kind of instance that was never asked for is not kept.
	if _, err := d.created(wall, nil)(ctx); err != nil {
		return nil, err
	}
	run := d.created(wall, d.used)
	return func(ctx context.Context) (values, error) {
		if err := d.filled(ctx); err != nil {
			return nil, err
		}
		v, err := run(ctx)
		// What comes next is not to be measured beside the filling.
		return v, errors.Join(err, d.filled(ctx))
	}, nil
}

// used refuses a pool that is full, right after a sandbox was made of it: the
// daemon leaves some time before it makes the next one. What is told to be
// warm must have been.
func (d *daemon) used(ctx context.Context) error {
	st, err := d.c.Status(ctx)
	if err == nil && st.PoolReady >= st.PoolSize {
		err = errors.New("it was not made of the pool, which is as full as before")
	}
	return err
}

// forGroup makes a sandbox that is there until the end of the group.
func (d *daemon) forGroup(ctx context.Context, req api.CreateRequest) (id string, err error) {
	if id, err = d.create(ctx, req); err == nil {
		d.w.later("sandbox "+id, func(ctx context.Context) error { return d.by.Remove(ctx, id, true) })
	}
	return id, err
}

// sandboxFor makes a sandbox for the group.
func (w *world) sandboxFor(ctx context.Context, wall string) (d *daemon, id string, err error) {
	if d, err = w.cold(ctx); err != nil {
		return nil, "", err
	}
	id, err = d.forGroup(ctx, api.CreateRequest{Isolation: wall})
	return d, id, err
}

func (w *world) throughClient(wall string) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		d, id, err := w.sandboxFor(ctx, wall)
		return func(ctx context.Context) (values, error) {
			start := time.Now()
			_, err := d.exec(ctx, id, nil, truth...)
			return values{whole: ms(time.Since(start))}, err
		}, err
	}
}

func (w *world) throughCLI(wall string) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		d, id, err := w.sandboxFor(ctx, wall)
		if err != nil {
			return nil, err
		}
		return w.ran(d.command(append([]string{"exec", id, "--"}, truth...)...)), nil
	}
}

// inside measures what a command costs that a shell in the sandbox runs, as
// the part of a number of them.
func (w *world) inside(wall string) func(context.Context) (measure, error) {
	const times = 20
	script := timed("loop", fmt.Sprintf("i=0; while [ $i -lt %d ]; do %s; i=$((i+1)); done", times, strings.Join(truth, " ")))
	return func(ctx context.Context) (measure, error) {
		d, id, err := w.sandboxFor(ctx, wall)
		return func(ctx context.Context) (values, error) {
			out, err := d.exec(ctx, id, nil, "/bin/sh", "-c", script)
			if err != nil {
				return nil, err
			}
			took, err := parseTimes(out)
			if err != nil {
				return nil, err
			}
			return values{whole: took["loop"] / times}, nil
		}, err
	}
}

// Metrics of the group about many creates.
const (
	all         = "all"
	machineTime = "machine each"
	cpuTimeEach = "CPU each"
)

// burst measures n creates at once. A single one could not be faster than its
// processor time on all processors together, which is its machine time; that
// of many is the n-th part of what they take.
func (w *world) burst(wall string, n int) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		d, err := w.cold(ctx)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (_ values, err error) {
			before, err := d.cpu()
			if err != nil {
				return nil, err
			}
			took, ids, err := d.creates(ctx, wall, n)
			after, cerr := d.cpu()
			if err := errors.Join(err, cerr, d.removes(ctx, ids)); err != nil {
				return nil, err
			}
			cpu := ms(after-before) / float64(n)
			machine := ms(took) / float64(n)
			if n == 1 {
				machine = cpu / float64(runtime.NumCPU())
			}
			return values{all: ms(took), machineTime: machine, cpuTimeEach: cpu}, nil
		}, nil
	}
}

// creates makes n sandboxes at once.
func (d *daemon) creates(ctx context.Context, wall string, n int) (time.Duration, []string, error) {
	ids, errs := make([]string, n), make([]error, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() { ids[i], errs[i] = d.create(ctx, api.CreateRequest{Isolation: wall}) })
	}
	wg.Wait()
	took := time.Since(start)
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	if failed := n - len(ids); failed > 0 {
		i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
		return took, ids, fmt.Errorf("%d of %d creates failed: %w", failed, n, errs[i])
	}
	return took, ids, nil
}

// removes deletes sandboxes, one after the other.
func (d *daemon) removes(ctx context.Context, ids []string) (err error) {
	for _, id := range ids {
		err = errors.Join(err, d.by.Remove(ctx, id, true))
	}
	return err
}
