package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/api"
)

// Metrics of the group about memory.
const (
	proportional = "PSS each"
	takenAway    = "MemAvailable each"
)

// settle is how long idle sandboxes are left alone before they are looked at.
const settle = time.Second

// idle measures what sandboxes take that do nothing.
type idle struct {
	n    int
	make func(ctx context.Context) (id string, err error)
	drop func(ctx context.Context, id string) error
	// procs returns all processes that the sandboxes consist of. It is asked
	// before there are any, too, and says then whose they are not.
	procs func(ctx context.Context, ids []string) ([]int, error)
}

func (m idle) measure(ctx context.Context) (_ values, err error) {
	var ids []string
	defer func() {
		for _, id := range ids {
			err = errors.Join(err, m.drop(context.WithoutCancel(ctx), id))
		}
	}()
	if _, err := m.procs(ctx, nil); err != nil {
		return nil, err
	}
	before, err := available()
	if err != nil {
		return nil, err
	}
	for range m.n {
		id, err := m.make(ctx)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	if err := pause(ctx, settle); err != nil {
		return nil, err
	}
	after, err := available()
	if err != nil {
		return nil, err
	}
	pids, err := m.procs(ctx, ids)
	if err != nil {
		return nil, err
	}
	sum, err := share(pids)
	if err != nil {
		return nil, err
	}
	n := float64(m.n)
	return values{
		proportional: float64(sum) / (1 << 20) / n,
		takenAway:    (float64(before) - float64(after)) / (1 << 20) / n,
	}, nil
}

// share is shareOf for processes of which each is to be counted.
func share(pids []int) (uint64, error) {
	sum, unread := shareOf(pids)
	switch {
	case len(pids) == 0:
		return 0, errors.New("there are no processes to count")
	case unread > 0:
		return 0, fmt.Errorf("the memory of %d of %d processes can't be read: run it as root", unread, len(pids))
	}
	return sum, nil
}

// ownProcesses is procs for sandboxes whose processes descend from this one.
func ownProcesses() func(context.Context, []string) ([]int, error) {
	var before []int
	return func(_ context.Context, ids []string) ([]int, error) {
		all, err := readProcesses()
		if err != nil {
			return nil, err
		}
		now := pidsOf(below(all, os.Getpid()))
		if ids == nil {
			before = now
			return nil, nil
		}
		return slices.DeleteFunc(now, func(pid int) bool { return slices.Contains(before, pid) }), nil
	}
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// memoryCases are our walls, and the daemon by itself.
func (w *world) memoryCases(n int) (cases []testCase) {
	for _, wall := range walls {
		cases = append(cases, testCase{
			name: "carboy-" + wall.name, against: wall.memoryAgainst,
			prepare: func(ctx context.Context) (measure, error) {
				d, err := w.cold(ctx)
				if err != nil {
					return nil, err
				}
				return idle{
					n: n,
					make: func(ctx context.Context) (string, error) {
						return d.create(ctx, api.CreateRequest{Isolation: wall.name})
					},
					drop:  func(ctx context.Context, id string) error { return d.by.Remove(ctx, id, true) },
					procs: ownProcesses(),
				}.measure, nil
			},
		})
	}
	return append(cases, testCase{name: "carboy-daemon", prepare: func(ctx context.Context) (measure, error) {
		d, err := w.cold(ctx)
		return func(context.Context) (values, error) {
			sum, err := share([]int{d.cmd.Process.Pid})
			return values{proportional: float64(sum) / (1 << 20)}, err
		}, err
	}})
}
