package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// When a command that waits for a sandbox asks whether that is held: first, at the
// least often, and while it is.
const (
	heldFirst  = 3 * time.Second
	heldSeldom = 12 * time.Second
	heldOften  = time.Second

	// heldLast bounds the last look, when what was waited for has ended.
	heldLast = time.Second
	// heldPause is between two looks then.
	heldPause = 100 * time.Millisecond
)

// tellHeld says once when the disk under a sandbox begins to be too full for what it
// writes, and once when it goes on, until stop is called. What is done sooner than
// heldFirst asks nothing.
func (a *app) tellHeld(ctx context.Context, svc *client.Client, ref string) (stop func()) {
	over, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		held := false
		for next := heldFirst; waited(over, next); {
			sb, err := svc.Get(over, ref)
			switch {
			case sandbox.KindOf(err) == sandbox.NotFound:
				return
			case err == nil:
				held = a.noteHeld(sb, held)
			}
			if next = min(2*next, heldSeldom); held {
				next = heldOften
			}
		}
		if !held {
			return
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), heldLast)
		defer cancel()
		for held { // what it wrote is through, and is said to be a moment later
			sb, err := svc.Get(last, ref)
			if err != nil {
				return
			}
			held = a.noteHeld(sb, true) && waited(last, heldPause)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// waited waits for a time, and reports whether it was over before ctx.
func waited(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// noteHeld says what changed since it was held, or was not, and returns which it is.
func (a *app) noteHeld(sb *api.Sandbox, was bool) bool {
	switch {
	case sb.Held != nil && !was:
		a.NoteReason("held", fmt.Sprintf("%s waits: %s; free some space there, or carboy rm what is not needed", sb.Name, heldText(sb.Held)))
	case sb.Held == nil && was && sb.State == string(sandbox.StateRunning):
		a.NoteReason("released", sb.Name+" goes on: its disk has room again")
	}
	return sb.Held != nil
}

// heldText says why a sandbox waits, and for what.
func heldText(h *api.DiskHeld) string {
	at := "the machine's disk"
	if h.Path != "" {
		at = "the disk of " + h.Path
	}
	return fmt.Sprintf("%s is full: %s are needed there; what it writes waits until they are free", at, term.FormatSize(h.Need))
}
