package pod_test

import (
	"slices"
	"sync"
	"time"
)

// clock is a time that passes where it is waited for: of itself for the durations that it
// was made with, else when somebody says so.
type clock struct {
	mu      sync.Mutex
	now     time.Time
	auto    []time.Duration
	waiting []waiter
}

type waiter struct {
	at time.Time
	c  chan time.Time
}

const poll = 50 * time.Millisecond

func newClock(auto ...time.Duration) *clock {
	return &clock{now: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC), auto: append(auto, poll)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := waiter{c.now.Add(d), make(chan time.Time, 1)}
	c.waiting = append(c.waiting, w)
	if slices.Contains(c.auto, d) {
		c.now = w.at
		c.waiting = slices.DeleteFunc(c.waiting, func(w waiter) bool {
			if w.at.After(c.now) {
				return false
			}
			w.c <- c.now
			return true
		})
	}
	return w.c
}
