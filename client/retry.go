package client

import (
	"context"
	"time"
)

// How a lost daemon is looked for.
const (
	patience   = 60 * time.Second // since the last thing that worked
	firstPause = 10 * time.Millisecond
	longPause  = time.Second
)

// backoff spaces attempts, and says when to give up.
type backoff struct {
	pause time.Duration
	since time.Time // of the first failure in a row
}

// reset is called when something worked.
func (b *backoff) reset() { *b = backoff{} }

// wait pauses before the next attempt, each time longer. It returns false
// where ctx has ended or patience has run out.
func (b *backoff) wait(ctx context.Context) bool {
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

// dialAgain lets the caller start a daemon anew. A failure is only one more
// lost attempt.
func (c *Client) dialAgain(ctx context.Context) {
	if c.redial != nil {
		_ = c.redial(ctx) // the attempt that follows fails and tells why
	}
}
