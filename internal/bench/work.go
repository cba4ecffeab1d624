package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
)

// shell runs a script where $W is the directory of the work.
type shell func(ctx context.Context, script string, env []string) (string, error)

// place is somewhere that work is done.
type place struct {
	name    string
	against []string
	// view says that open gets the directory that everybody's work begins
	// with, and leaves it as it is; else, it gets a copy of its own.
	view bool
	open func(ctx context.Context, dir string) (shell, error)
}

// job is a kind of real work.
type job struct {
	name, title string
	steps       []string // names of what is timed
	script      string   // as timed makes it
	env         []string
	fill        func(ctx context.Context, dir string) error // makes the directory that the work begins with
}

// timed is a script that says how many nanoseconds a step took inside.
func timed(name, step string) string {
	return fmt.Sprintf("s=$(date +%%s%%N)\n%s\ne=$(date +%%s%%N)\necho \"took %s $((e-s))\"\n", step, name)
}

// Bounds of what a script says.
const (
	maxSteps = 16
	maxNanos = int64(1e15) // eleven days
)

// parseTimes reads what timed scripts print, and returns milliseconds.
func parseTimes(out string) (map[string]float64, error) {
	took := map[string]float64{}
	for line := range strings.Lines(out) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "took ")
		if !ok {
			continue
		}
		name, digits, _ := strings.Cut(rest, " ")
		ns, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case err != nil || ns < 0 || ns > maxNanos || name == "":
			return nil, fmt.Errorf("not a time: %.80q", line)
		case len(took) == maxSteps:
			return nil, errors.New("it says too many times")
		}
		took[name] = float64(ns) / 1e6
	}
	if len(took) == 0 {
		return nil, fmt.Errorf("it says no times: %.80q", out)
	}
	return took, nil
}

// work returns the cases of j at all places.
func (w *world) work(j job, places []place) group {
	g := group{name: j.name, title: j.title}
	for _, s := range j.steps {
		g.metrics = append(g.metrics, metric{s, millis})
	}
	for _, p := range places {
		g.cases = append(g.cases, testCase{name: p.name, against: p.against, prepare: w.workCase(j, p)})
	}
	return g
}

func (w *world) workCase(j job, p place) func(context.Context) (measure, error) {
	return func(ctx context.Context) (measure, error) {
		dir, err := w.template(ctx, j)
		if err != nil {
			return nil, err
		}
		if !p.view {
			if dir, err = w.copyOf(ctx, dir, j.name+"-"+p.name); err != nil {
				return nil, err
			}
		}
		sh, err := p.open(ctx, dir)
		return func(ctx context.Context) (values, error) {
			out, err := sh(ctx, "set -e\ncd \"$W\"\n"+j.script, j.env)
			if err != nil {
				return nil, err
			}
			return parseTimes(out)
		}, err
	}
}

// template returns the directory that the work of j begins with.
func (w *world) template(ctx context.Context, j job) (string, error) {
	return once(w, "work "+j.name, func() (string, error) {
		dir := filepath.Join(w.dir, "work-"+j.name)
		w.later(dir, func(context.Context) error { return removeAll(dir) })
		return dir, j.fill(ctx, dir)
	})
}

// copyOf copies a directory, until the end of the group.
func (w *world) copyOf(ctx context.Context, dir, name string) (string, error) {
	to := filepath.Join(w.dir, name)
	w.later(to, func(context.Context) error { return removeAll(to) })
	_, err := w.run(ctx, command{argv: []string{"/bin/cp", "-a", dir, to}})
	return to, err
}

// workspace is /workspace of one of our sandboxes.
func (w *world) workspace(wall wall, mode string) place {
	return place{name: "carboy-" + wall.name + "-" + mode, against: wall.workAgainst, view: mode != "rw", open: func(ctx context.Context, dir string) (shell, error) {
		d, err := w.cold(ctx)
		if err != nil {
			return nil, err
		}
		req := api.CreateRequest{Isolation: wall.name, Workspace: &api.Workspace{Mode: mode, Source: dir}}
		if mode == "private" {
			const at = "/mnt/work"
			req.Workspace = &api.Workspace{Mode: mode}
			req.Mounts = []api.Mount{{Source: dir, Target: at, ReadOnly: true}}
			id, err := d.forGroup(ctx, req)
			if err != nil {
				return nil, err
			}
			_, err = d.exec(ctx, id, nil, "/bin/cp", "-r", "--preserve=mode,timestamps,links", at+"/.", "/workspace/")
			return d.shell(id), err
		}
		id, err := d.forGroup(ctx, req)
		return d.shell(id), err
	}}
}

func (d *daemon) shell(id string) shell {
	return func(ctx context.Context, script string, env []string) (string, error) {
		vars := map[string]string{"W": "/workspace"}
		for _, kv := range env {
			k, v, _ := strings.Cut(kv, "=")
			vars[k] = v
		}
		return d.exec(ctx, id, vars, "/bin/sh", "-c", script)
	}
}
