package agent

import (
	"context"
	"time"
)

// How what went away is looked for.
const (
	patience   = 60 * time.Second // since the last thing that worked
	firstPause = 10 * time.Millisecond
	longPause  = time.Second
)

// Backoff spaces attempts, and says when to give up.
type Backoff struct {
	pause time.Duration
	since time.Time // of the first failure in a row
}

// Reset is called when something worked.
func (b *Backoff) Reset() { *b = Backoff{} }

// Wait pauses before the next attempt, each time longer. It returns false
// where ctx has ended or patience has run out.
func (b *Backoff) Wait(ctx context.Context) bool {
	now := time.Now()
	if b.since.IsZero() {
		b.since, b.pause = now, firstPause
	}
	if now.Sub(b.since) > patience {
		return false
	}
	t := time.NewTimer(b.pause)
	defer t.Stop()
	b.pause = min(2*b.pause, longPause)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
