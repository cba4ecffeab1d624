package still

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// parentLooks, parentPause apart, are made at a parent that is to stop.
	parentLooks = 400
	parentPause = 50 * time.Microsecond
)

// signals stops processes by SIGSTOP.
type signals struct {
	root, skip int
	stopped    []proc // in the order of their starts
}

func (s *signals) stop() (running int, err error) {
	all, err := descendants(s.root)
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if p.pid == s.skip || !p.runs() {
			continue
		}
		running++
		if s.has(p) { // it takes its time, or something continued it
			_ = unix.Kill(p.pid, unix.SIGSTOP)
			continue
		}
		if err := unix.Kill(p.pid, unix.SIGSTOP); err == nil {
			s.stopped = append(s.stopped, p)
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

func (s *signals) has(p proc) bool {
	return slices.ContainsFunc(s.stopped, func(q proc) bool { return q.pid == p.pid && q.start == p.start })
}

func (s *signals) running() (n int, err error) {
	all, err := descendants(s.root)
	for _, p := range all {
		if p.pid != s.skip && p.runs() {
			n++
		}
	}
	return n, err
}

// free continues children before their parents, so that none sees another
// stopped.
func (s *signals) free() {
	for _, p := range slices.Backward(s.stopped) {
		if now, err := look(p.pid); err == nil && now.start == p.start {
			_ = unix.Kill(p.pid, unix.SIGCONT)
		}
	}
	s.stopped = nil
}

// freeKilled has nothing to do: one that is stopped can be killed.
func (*signals) freeKilled(int) {}
