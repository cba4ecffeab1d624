// Package stall notices a stream that goes on without anything new in it. What
// comes out of a sandbox may be such a stream: each of its messages is small
// and well formed, none of them says anything, and a reader that goes on until the
// end never gets there.
//
// It bounds no stream that says something, and none that is merely slow.
package stall

import (
	"errors"
	"time"
)

// How many messages without news a Watch lets pass: Burst at once, and PerSecond
// for as long as they come. An honest guest sends one every 20 seconds, and after
// a connection was lost at most what it had sent before.
const (
	Burst     = 4096
	PerSecond = 10
)

// Err says that a stream stalls.
var Err = errors.New("it sends messages without anything new in them, one after the other")

// Watch counts the messages of one stream, or of several in its place. The zero
// value is ready. It is for one goroutine.
type Watch struct {
	spent int // of Burst
	at    time.Time
}

// News notes a message that had something new.
func (w *Watch) News() { w.spent = 0 }

// None notes one that had not, and returns Err where there were too many.
func (w *Watch) None() error {
	now := time.Now()
	if w.spent == 0 {
		w.at = now
	}
	if back := int(now.Sub(w.at).Seconds() * PerSecond); back > 0 {
		w.spent, w.at = max(0, w.spent-back), now
	}
	if w.spent++; w.spent > Burst {
		return Err
	}
	return nil
}

// Saw notes a message and returns what None does.
func (w *Watch) Saw(news bool) error {
	if news {
		w.News()
		return nil
	}
	return w.None()
}
