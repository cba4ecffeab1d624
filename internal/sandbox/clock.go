package sandbox

import "time"

// Clock is time as the Manager sees it.
type Clock interface {
	Now() time.Time
	// After is time.After.
	After(d time.Duration) <-chan time.Time
}

// SystemClock is the machine's.
type SystemClock struct{}

// Now implements Clock.
func (SystemClock) Now() time.Time { return time.Now() }

// After implements Clock.
func (SystemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// elapser is a Clock that tells the time that passes apart from what it is set
// to. A time.Time of the machine's clock has both.
type elapser interface {
	Clock
	Elapsed() time.Duration
}

// Stopwatch measures the time that passes, whatever a clock is set to meanwhile.
type Stopwatch struct {
	c     Clock
	base  time.Time
	since time.Duration
}

// NewStopwatch starts one.
func NewStopwatch(c Clock) Stopwatch {
	w := Stopwatch{c: c, base: c.Now()}
	if e, ok := c.(elapser); ok {
		w.since = e.Elapsed()
	}
	return w
}

// Passed is the time since its start.
func (w Stopwatch) Passed() time.Duration {
	if e, ok := w.c.(elapser); ok {
		return e.Elapsed() - w.since
	}
	return w.c.Now().Sub(w.base)
}

// Ahead is how far the clock was set forward since then; it is negative where
// it was set back.
func (w Stopwatch) Ahead() time.Duration {
	return w.c.Now().Round(0).Sub(w.base.Round(0)) - w.Passed()
}
