// Package still holds processes still: all that descend from this one, each of
// which is stopped until it is let go again.
//
// It is for a copy of their files that is of one moment. What it stops is not
// told by more than the signals that stop and continue a process; one that was
// stopped before stays so. It is no wall: a process that has a timer continue
// it goes on, and Undisturbed reports that. Whatever forks without end, or
// does not come to a stop in time, can't be held: then everything goes on.
package still

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
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

	// parentLooks, parentPause apart, are made at a parent that is to stop.
	parentLooks = 400
	parentPause = 50 * time.Microsecond

	firstPause = 200 * time.Microsecond
	lastPause  = 10 * time.Millisecond
)

// errRestless says that not everything came to a stop.
var errRestless = errors.New("not every process came to a stop")

// Held are processes that are held.
type Held struct {
	root    int
	skip    []int
	stopped []proc // in the order of their starts
}

// Hold stops all that descends from this process but those of skip, and
// returns once all of it has. After an error everything goes on.
func Hold(ctx context.Context, skip ...int) (*Held, error) {
	h := &Held{root: os.Getpid(), skip: skip}
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
		running, err := h.stopRunning()
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

// stopRunning stops what runs, and counts it.
func (h *Held) stopRunning() (running int, err error) {
	all, err := descendants(h.root)
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if slices.Contains(h.skip, p.pid) || !p.runs() {
			continue
		}
		running++
		if h.has(p) { // it takes its time, or something continued it
			_ = unix.Kill(p.pid, unix.SIGSTOP)
			continue
		}
		if err := unix.Kill(p.pid, unix.SIGSTOP); err == nil {
			h.stopped = append(h.stopped, p)
		} else if !errors.Is(err, unix.ESRCH) {
			return running, err
		}
		if slices.ContainsFunc(all, func(c proc) bool { return c.parent == p.pid }) {
			p.awaitHalt()
		}
	}
	return running, nil
}

// awaitHalt waits a moment for a parent to have stopped, which is then not told
// that its children do.
func (p proc) awaitHalt() {
	for range parentLooks {
		if !p.runs() {
			return
		}
		time.Sleep(parentPause) //nolint:forbidigo // only its own parent is told that it stopped
	}
}

func (h *Held) has(p proc) bool {
	return slices.ContainsFunc(h.stopped, func(q proc) bool { return q.pid == p.pid && q.start == p.start })
}

// Undisturbed reports whether everything is still held.
func (h *Held) Undisturbed() bool {
	all, err := descendants(h.root)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(all, func(p proc) bool { return !slices.Contains(h.skip, p.pid) && p.runs() })
}

// Release lets everything go on that was stopped, children before their
// parents, so that none sees another stopped. Calling it again does nothing.
func (h *Held) Release() {
	for _, p := range slices.Backward(h.stopped) {
		if now, err := look(p.pid); err == nil && now.start == p.start {
			_ = unix.Kill(p.pid, unix.SIGCONT)
		}
	}
	h.stopped = nil
}

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
