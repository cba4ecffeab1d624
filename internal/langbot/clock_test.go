package langbot_test

import (
	"context"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/langbot"
)

// settable is a clock that can be set: elapsed is what truly passes.
type settable struct {
	*clock
	elapsed *clock
}

func (c settable) Elapsed() time.Duration { return c.elapsed.Now().Sub(noon) }

// A clock that is set ends no session before its grant does, and lets none live
// on after it.
func TestGrantsWhileTheClockIsSet(t *testing.T) {
	c := settable{newClock(noon), newClock(noon)}
	s, w, _ := admitting(t, func(o *langbot.Options) { o.Clock = c })
	w.call(upsert, grantOf("w", 1, 1, 1, noon.Add(4*time.Minute))).fields(t)
	w.about("box_create_session", `{"session_id":"x"}`, in("w", 1)).fields(t)
	owner := "box:" + s.sessions.last().Key[:nsLen]
	look := func(want int) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it looks once
		if err := s.h.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := s.sessions.keys(owner); len(got) != want {
			t.Errorf("sessions %v, want %d", got, want)
		}
	}
	c.set(noon.Add(24 * time.Hour)) // no time has passed
	look(1)
	w.about("box_create_session", `{"session_id":"x"}`, in("w", 1)).want(t, "BoxAdmissionError: Sandbox admission grant has expired")
	c.set(noon)
	w.about("box_create_session", `{"session_id":"x"}`, in("w", 1)).fields(t)
	c.set(noon.Add(-time.Hour))
	c.elapsed.set(noon.Add(4 * time.Minute))
	w.about("box_create_session", `{"session_id":"x"}`, in("w", 1)).want(t, "BoxAdmissionError: Sandbox admission grant has expired")
	look(0)
}
