package session_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
)

// clock is a machine's that can be set.
type clock struct {
	sandbox.SystemClock
	begun time.Time
	by    atomic.Int64
}

func (c *clock) Now() time.Time         { return time.Now().Round(0).Add(time.Duration(c.by.Load())) }
func (c *clock) Elapsed() time.Duration { return time.Since(c.begun) }

// set sets it, as far as by from what it is.
func (c *clock) set(by time.Duration) { c.by.Add(int64(by)) }

const (
	day  = 24 * time.Hour
	kept = 7 * day // for which a session sleeps, where nothing else is said
)

// withClock runs a test with a daemon whose clock can be set. boot starts it
// again.
func withClock(t *testing.T, test func(t *testing.T, c *clock, d *daemon, boot func() *daemon)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, c := newWorld(), &clock{begun: time.Now()}
		var d *daemon
		boot := func() *daemon {
			d = w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}},
				session.Options{Store: &w.store, Config: config(), Clock: c, ProcessDir: dir})
			return d
		}
		boot()
		test(t, c, d, boot)
		d.shutdown()
		w.check(t)
	})
}

// A clock that is set ends no session that is used, and none that has files.
func TestClockIsSet(t *testing.T) {
	for name, by := range map[string]time.Duration{
		"an-hour-back": -time.Hour, "a-year-back": -365 * day, "a-day-forward": day, "a-year-forward": 365 * day,
	} {
		t.Run(name, func(t *testing.T) {
			withClock(t, func(t *testing.T, c *clock, d *daemon, _ func() *daemon) {
				run(t, d, asked("asleep", "touch"))
				pass(ttl + time.Minute)
				wantSession(t, d, "asleep", true)
				run(t, d, asked("idle", "touch"))
				run(t, d, asked("empty", "echo x"))
				run(t, d, asked("leased", "echo x"))
				u, err := d.Use(t.Context(), ann, asked("leased", ""))
				if err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
				c.set(by)
				pass(time.Minute)
				wantSession(t, d, "asleep", true)
				wantSession(t, d, "leased", false)
				wantSession(t, d, "idle", false)
				wantSession(t, d, "empty", false)
				pass(ttl + time.Minute) // and then all is as ever
				wantSession(t, d, "leased", false)
				wantSession(t, d, "idle", true)
				wantGone(t, d, "empty")
				u.Release()
				pass(ttl + time.Minute)
				wantGone(t, d, "leased")
				pass(kept)
				wantGone(t, d, "asleep")
				wantGone(t, d, "idle")
			})
		})
	}
}

// No time passes for who sleeps while there is no daemon, whatever the clock
// says of how long that was.
func TestClockIsSetBetweenDaemons(t *testing.T) {
	for name, by := range map[string]time.Duration{
		"an-hour-back": -time.Hour, "a-year-back": -365 * day, "not": 0, "a-day-forward": day, "a-year-forward": 365 * day,
	} {
		t.Run(name, func(t *testing.T) {
			withClock(t, func(t *testing.T, c *clock, d *daemon, boot func() *daemon) {
				run(t, d, asked("k", "touch"))
				pass(ttl + time.Minute)
				for range 3 {
					d.shutdown()
					c.set(by)
					d = boot()
					pass(day)
					wantSession(t, d, "k", true)
				}
				pass(kept - 4*day)
				wantSession(t, d, "k", true)
				pass(5 * day)
				wantGone(t, d, "k")
			})
		})
	}
}
