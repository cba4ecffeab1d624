// Package still holds processes still: all that descend from this one, each of
// which is stopped until it is let go again.
//
// It is for a copy of their files that is of one moment. gVisor's kernel stops
// them by itself, and none is told; any other is asked by the signals that stop
// and continue a process, and a parent may see them. A process that was stopped
// before stays so. It is no wall: where it goes by signals, a process that has a
// timer continue it goes on, and Undisturbed reports that. Whatever forks
// without end, or does not come to a stop in time, can't be held: then
// everything goes on.
package still

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	// tries is how often everything is let go and stopped anew: one that waits
	// for its child to run a program can't stop before that child has.
	tries = 20
	// tryFor is how long one of them takes at most, unless the machine is so slow
	// that there were not minLooks until then.
	tryFor   = 250 * time.Millisecond
	minLooks = 6
	// letGo is how long everything goes on between two of them.
	letGo = 2 * time.Millisecond

	firstPause = 200 * time.Microsecond
	lastPause  = 10 * time.Millisecond
)

// errRestless says that not everything came to a stop.
var errRestless = errors.New("not every process came to a stop")

// Held are processes that are held.
type Held struct {
	by stopper
}

// stopper stops the processes that descend from this one.
type stopper interface {
	// stop stops what runs, and counts it.
	stop() (running int, err error)
	// running counts what runs.
	running() (int, error)
	// free lets everything go on that was stopped.
	free()
	// freeKilled lets one process end that was killed.
	freeKilled(pid int)
}

// Hold stops all that descends from this process but the one of skip, and
// returns once all of it has. After an error everything goes on.
func Hold(ctx context.Context, skip int) (*Held, error) {
	h := &Held{by: &signals{root: os.Getpid(), skip: skip}}
	if s := (sentry{skip}); s.there() {
		h.by = s
	}
	for range tries {
		err := h.try(ctx)
		if err == nil {
			return h, nil
		}
		h.Release()
		if !errors.Is(err, errRestless) {
			return nil, err
		}
		if err := pause(ctx, letGo); err != nil {
			return nil, err
		}
	}
	return nil, errRestless
}

// try stops what runs, until two looks in a row find nothing that does.
func (h *Held) try(ctx context.Context) error {
	begun, quiet, wait := time.Now(), 0, firstPause
	for look := 1; ; look++ {
		running, err := h.by.stop()
		if err != nil {
			return err
		}
		if quiet++; running > 0 {
			quiet = 0
		}
		switch {
		case quiet == 2:
			return nil
		case running > 0 && look >= minLooks && time.Since(begun) > tryFor:
			return errRestless
		}
		wait = min(2*wait, lastPause)
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// Undisturbed reports whether everything is still held.
func (h *Held) Undisturbed() bool {
	running, err := h.by.running()
	return err == nil && running == 0
}

// Release lets everything go on that was stopped. Calling it again does nothing.
func (h *Held) Release() { h.by.free() }

// ReleaseKilled lets a process end that was killed while it was held.
func (h *Held) ReleaseKilled(pid int) { h.by.freeKilled(pid) }

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
