package session

import (
	"context"
	"sync"
	"time"
)

// turn is a lock that goes to the longest waiter, and that can be waited
// for with a context and a time limit. The zero value is free.
type turn struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{} // in order; the turn is given by closing
}

// take waits for the turn and reports whether it got it: not where ctx ended
// or limit passed first. nil is no limit.
func (t *turn) take(ctx context.Context, limit <-chan time.Time) bool {
	t.mu.Lock()
	if t.tryLocked() {
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	t.waiting = append(t.waiting, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return true
	case <-ctx.Done():
	case <-limit:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range t.waiting {
		if w == mine {
			t.waiting = append(t.waiting[:i:i], t.waiting[i+1:]...)
			return false
		}
	}
	t.passLocked() // it came at the same moment
	return false
}

// try takes the turn if nobody has it, and reports whether it did.
func (t *turn) try() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tryLocked()
}

func (t *turn) tryLocked() bool {
	if t.taken || len(t.waiting) > 0 {
		return false
	}
	t.taken = true
	return true
}

// held reports whether somebody has the turn.
func (t *turn) held() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken
}

// give gives the turn to the next.
func (t *turn) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passLocked()
}

func (t *turn) passLocked() {
	if len(t.waiting) == 0 {
		t.taken = false
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}
