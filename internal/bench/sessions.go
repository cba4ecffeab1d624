package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// Metrics of the groups about sessions.
const (
	made        = "create"
	firstExec   = "first exec"
	nextExec    = "next exec"
	middleExec  = "exec"
	slowestExec = "99 % of execs"
	eachExec    = "machine each"
)

// sessionRuntime is one that has sessions for a chat platform.
type sessionRuntime struct {
	create func(ctx context.Context, session string) error
	exec   func(ctx context.Context, session, cmd string) (string, error)
	remove func(ctx context.Context, session string) error
	// ready waits until what is kept warm is; nil where nothing is.
	ready func(ctx context.Context) error
}

// sessionGroups are measured when they are named: a session that is made and
// commands in it, by the RPC of Box, beside Docker's command line doing what
// LangBot's own runtime has it do; and many sessions at once.
func (w *world) sessionGroups(d *docker) []group {
	sessions, execs := 50, 20
	if w.quick {
		sessions, execs = 10, 5
	}
	one := group{
		name: "sessions", title: "a session by the RPC of Box is made, and two commands are run in it", named: true,
		metrics: []metric{{made, millis}, {firstExec, millis}, {nextExec, millis}},
	}
	many := group{
		name: "crowd", title: fmt.Sprintf("%d sessions at once with %d commands in each, the first of which makes it", sessions, execs), named: true,
		metrics: []metric{{middleExec, millis}, {slowestExec, millis}, {eachExec, millis}},
	}
	add := func(name string, crowd bool, open func(context.Context) (sessionRuntime, error)) {
		against := []string{"docker-sessions"}
		if name == against[0] {
			against = nil
		}
		one.cases = append(one.cases, testCase{name: name, against: against, prepare: func(ctx context.Context) (measure, error) {
			r, err := open(ctx)
			return r.single(), err
		}})
		if crowd {
			many.cases = append(many.cases, testCase{name: name, against: against, prepare: func(ctx context.Context) (measure, error) {
				r, err := open(ctx)
				return r.crowd(sessions, execs), err
			}})
		}
	}
	for _, wall := range walls {
		add("box-"+wall.name, false, func(ctx context.Context) (sessionRuntime, error) { return w.box(ctx, wall.name, 0) })
		add("box-"+wall.name+"-warm", true, func(ctx context.Context) (sessionRuntime, error) { return w.box(ctx, wall.name, poolSize) })
	}
	add("docker-sessions", true, func(context.Context) (sessionRuntime, error) { return d.sessions(), nil })
	return []group{one, many}
}

// box starts LangBot's runtime for the group, with a home of its own.
func (w *world) box(ctx context.Context, wall string, pool int) (r sessionRuntime, err error) {
	addr, err := freeAddr()
	if err != nil {
		return r, err
	}
	d, err := w.startDaemon(ctx, daemonSetup{
		name: fmt.Sprintf("box-%s-%d-%d", wall, pool, w.mark()),
		args: []string{"langbot", "serve", "--listen", addr},
		config: map[string]any{
			"pool": pool, "box": map[string]any{"isolation": wall},
		},
	})
	if err != nil {
		return r, err
	}
	conn, err := boxservice.NewConnector(boxservice.Options{Endpoint: "ws://" + addr})
	if err != nil {
		return r, err
	}
	w.later("the connection to "+wall, func(context.Context) error { return conn.Close() })
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, errors.New("the runtime does not answer"))
	defer cancel()
	_ = conn.Open(ctx) // it goes on trying
	err = every(ctx, func() (bool, error) {
		state, _ := conn.State()
		return state == boxservice.Connected, nil
	})
	if pool > 0 {
		r.ready = d.filled
	}
	c := conn.Client()
	return sessionRuntime{
		ready: r.ready,
		create: func(ctx context.Context, id string) error {
			_, err := c.Create(ctx, boxservice.NewSpec(id, ""))
			return err
		},
		exec: func(ctx context.Context, id, text string) (string, error) {
			spec := boxservice.NewSpec(id, text)
			spec.TimeoutSec = 300
			res, err := c.Exec(ctx, spec)
			if err == nil && res.Status != sessions.StatusCompleted {
				err = fmt.Errorf("%s: %s %q", text, res.Status, res.Stderr)
			}
			if err != nil {
				return "", err
			}
			return res.Stdout, nil
		},
		remove: func(ctx context.Context, id string) error { return c.Delete(ctx, id) },
	}, err
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// sessions is Docker as LangBot's own runtime calls it: a container that sleeps
// for each session, and an exec for each command.
func (d *docker) sessions() sessionRuntime {
	name := func(id string) string { return d.w.tag + "-" + id }
	create := func(ctx context.Context, id string) error {
		args, err := d.runArgs("", "--detach", "--rm", "--name", name(id), "--cpus", "1", "--memory", "512m",
			"--pids-limit", "128", "--read-only", "--tmpfs", "/tmp:size=64m")
		if err != nil {
			return err
		}
		_, err = d.w.run(ctx, d.command(append(args, "sh", "-lc", "while true; do sleep 3600; done")...))
		return err
	}
	return sessionRuntime{
		create: create,
		exec: func(ctx context.Context, id, text string) (string, error) {
			if strings.HasPrefix(id, "crowd") && strings.HasSuffix(text, " 0") { // the first command makes the session
				if err := create(ctx, id); err != nil {
					return "", err
				}
			}
			o, err := d.w.run(ctx, d.command("exec", name(id), "sh", "-lc", "mkdir -p /tmp && cd /tmp && "+text))
			return string(o.out), err
		},
		remove: func(ctx context.Context, id string) error { return d.remove(ctx, name(id)) },
	}
}

// echo runs a command that prints words, and refuses another answer.
func (r sessionRuntime) echo(ctx context.Context, id, words string) (time.Duration, error) {
	start := time.Now()
	out, err := r.exec(ctx, id, "echo "+words)
	took := time.Since(start)
	if err == nil && out != words+"\n" {
		err = fmt.Errorf("echo %s: %q", words, out)
	}
	return took, err
}

// single measures a session that is made, used twice and removed.
func (r sessionRuntime) single() measure {
	nth := 0
	return func(ctx context.Context) (values, error) {
		nth++
		if r.ready != nil && nth > 1 { // before, nobody has asked for what is to be warm
			if err := r.ready(ctx); err != nil {
				return nil, err
			}
		}
		id := fmt.Sprintf("bench_%d", nth)
		start := time.Now()
		if err := r.create(ctx, id); err != nil {
			return nil, err
		}
		v := values{made: ms(time.Since(start))}
		for _, step := range []struct{ metric, word string }{{firstExec, "1"}, {nextExec, "2"}} {
			took, err := r.echo(ctx, id, step.word)
			if err != nil {
				return nil, errors.Join(err, r.remove(ctx, id))
			}
			v[step.metric] = ms(took)
		}
		return v, r.remove(ctx, id)
	}
}

// crowd measures many sessions that run commands at once.
func (r sessionRuntime) crowd(n, execs int) measure {
	nth := 0
	return func(ctx context.Context) (values, error) {
		nth++
		took, errs := make([][]time.Duration, n), make([]error, n)
		var wg sync.WaitGroup
		start := time.Now()
		id := func(i int) string { return fmt.Sprintf("crowd_%d_%d", nth, i) }
		for i := range n {
			wg.Go(func() {
				for k := range execs {
					t, err := r.echo(ctx, id(i), fmt.Sprintf("%d %d", i, k))
					took[i], errs[i] = append(took[i], t), errors.Join(errs[i], err)
				}
			})
		}
		wg.Wait()
		each := ms(time.Since(start)) / float64(n*execs)
		err := errors.Join(errs...)
		for i := range n {
			err = errors.Join(err, r.remove(ctx, id(i)))
		}
		all := slices.Sorted(slices.Values(slices.Concat(took...)))
		return values{middleExec: ms(all[len(all)/2]), slowestExec: ms(all[len(all)*99/100]), eachExec: each}, err
	}
}
