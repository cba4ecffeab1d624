// Program box measures what a chat platform waits for: a session that is made
// and a command in it, by the RPC of Box, beside Docker's command line doing
// the same; and many sessions at once.
//
// Cases are measured in turn, each round in an order of its own, after one that
// does not count. It refuses to go on where an answer is wrong.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// options are what a run is asked for.
type options struct {
	carboy          string
	rounds          int
	sessions, execs int
	pause           time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "box bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	var o options
	fs := flag.NewFlagSet("box", flag.ContinueOnError)
	fs.StringVar(&o.carboy, "carboy", "bin/carboy", "the `program` to measure")
	fs.IntVar(&o.rounds, "rounds", 30, "how often each case is measured")
	fs.IntVar(&o.sessions, "sessions", 50, "sessions at once")
	fs.IntVar(&o.execs, "execs", 20, "commands in each of them")
	fs.DurationVar(&o.pause, "pause", 300*time.Millisecond, "between rounds, in which warm sandboxes are made")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if o.carboy, err = filepath.Abs(o.carboy); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "carboy-box-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	var cases []*subject
	defer func() {
		for _, c := range cases {
			err = errors.Join(err, c.close())
		}
	}()
	for _, wall := range []string{"process", "gvisor"} {
		for _, pool := range []int{0, 2} {
			s, err := startServer(ctx, o.carboy, filepath.Join(dir, fmt.Sprintf("%s%d", wall, pool)), wall, pool)
			if err != nil {
				return err
			}
			cases = append(cases, s)
		}
	}
	if d, err := openDocker(ctx, dir); err == nil {
		cases = append(cases, d)
	} else {
		fmt.Fprintln(os.Stderr, "box bench: docker is not measured:", err)
	}
	if err := rounds(ctx, o, cases); err != nil {
		return err
	}
	for _, c := range cases {
		if err := c.crowd(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// subject is one runtime of sessions.
type subject struct {
	name   string
	many   bool // it is measured with many sessions as well
	create func(ctx context.Context, session string) error
	exec   func(ctx context.Context, session, cmd, want string) error
	remove func(ctx context.Context, session string) error
	close  func() error

	made, first, again []time.Duration
}

func rounds(ctx context.Context, o options, cases []*subject) error {
	for round := range o.rounds + 1 {
		for _, i := range rand.Perm(len(cases)) {
			if err := cases[i].round(ctx, round); err != nil {
				return fmt.Errorf("%s: %w", cases[i].name, err)
			}
		}
		time.Sleep(o.pause)
	}
	fmt.Printf("%d rounds after one that does not count; medians, and from the fastest to the slowest, in ms\n", o.rounds)
	for _, c := range cases {
		fmt.Printf("%-28s create %s   first exec %s   exec %s\n", c.name, figure(c.made), figure(c.first), figure(c.again))
	}
	return nil
}

func (c *subject) round(ctx context.Context, n int) error {
	id := fmt.Sprintf("bench_%d", n)
	var took [3]time.Duration
	for i, step := range []func() error{
		func() error { return c.create(ctx, id) },
		func() error { return c.exec(ctx, id, "echo 1", "1\n") },
		func() error { return c.exec(ctx, id, "echo 2", "2\n") },
	} {
		start := time.Now()
		if err := step(); err != nil {
			return err
		}
		took[i] = time.Since(start)
	}
	if n > 0 {
		c.made, c.first, c.again = append(c.made, took[0]), append(c.first, took[1]), append(c.again, took[2])
	}
	return c.remove(ctx, id)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func figure(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	s := slices.Sorted(slices.Values(all))
	return fmt.Sprintf("%7.1f (%.1f–%.1f)", ms(s[len(s)/2]), ms(s[0]), ms(s[len(s)-1]))
}

// crowd has many sessions run commands at once, the first of which makes each.
func (c *subject) crowd(ctx context.Context, o options) error {
	if !c.many {
		return nil
	}
	type answer struct {
		took time.Duration
		err  error
	}
	answers := make(chan answer)
	start := time.Now()
	for i := range o.sessions {
		go func() {
			for k := range o.execs {
				t := time.Now()
				err := c.exec(ctx, fmt.Sprintf("crowd_%d", i), fmt.Sprintf("echo %d %d", i, k), fmt.Sprintf("%d %d\n", i, k))
				answers <- answer{time.Since(t), err}
			}
		}()
	}
	var took []time.Duration
	failed, first := 0, error(nil)
	for range o.sessions * o.execs {
		a := <-answers
		took = append(took, a.took)
		if a.err != nil {
			failed++
			first = cmp.Or(first, a.err)
		}
	}
	whole := time.Since(start)
	slices.Sort(took)
	at := func(part float64) float64 { return ms(took[min(int(part*float64(len(took))), len(took)-1)]) }
	fmt.Printf("%-28s %d sessions × %d execs: %.1f a second, p50 %.1f ms, p99 %.1f ms, %d errors\n",
		c.name, o.sessions, o.execs, float64(len(took))/whole.Seconds(), at(0.5), at(0.99), failed)
	for i := range o.sessions {
		first = errors.Join(first, c.remove(ctx, fmt.Sprintf("crowd_%d", i)))
	}
	return first
}
