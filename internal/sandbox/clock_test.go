package sandbox_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// jumpy is a clock that can be set. Its timers go on as ever, as those of a
// machine do.
type jumpy struct{ by atomic.Int64 }

func (c *jumpy) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

func (c *jumpy) After(d time.Duration) <-chan time.Time { return time.After(d) }

func (c *jumpy) jump(d time.Duration) { c.by.Add(int64(d)) }

// withClock runs a test with a daemon whose clock can be set.
func withClock(t *testing.T, pool sandbox.Pool, test func(t *testing.T, w *warmWorld, d *daemon, c *jumpy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, c := newWarmWorld(pool), new(jumpy)
		w.opts.Clock = c
		d := w.bootWith(t, w.opts)
		test(t, w, d, c)
		d.shutdown()
		w.check(t)
	})
}

const year = 365 * 24 * time.Hour

func TestClockSetForward(t *testing.T) {
	withClock(t, sandbox.Pool{}, func(t *testing.T, _ *warmWorld, d *daemon, c *jumpy) {
		create(t, d, sandbox.Spec{Name: "stops", TTL: time.Hour})
		create(t, d, sandbox.Spec{Name: "goes", TTL: time.Hour, OnExpiry: sandbox.OnExpiryRemove})
		create(t, d, sandbox.Spec{Name: "later", TTL: 3 * time.Hour})
		create(t, d, sandbox.Spec{Name: "stays"})
		create(t, d, sandbox.Spec{Name: "held", Ephemeral: true})
		release, err := d.Hold(t.Context(), ann, "held")
		if err != nil {
			t.Fatal(err)
		}
		c.jump(2 * time.Hour)
		pass(time.Minute) // noticed by then, though nothing was nudged
		wantState(t, d, "stops", sandbox.StateStopped, sandbox.EndExpired)
		wantGone(t, d, "goes")
		for _, ref := range []string{"later", "stays", "held"} {
			wantState(t, d, ref, sandbox.StateRunning, "")
		}
		pass(time.Hour)
		wantState(t, d, "later", sandbox.StateStopped, sandbox.EndExpired)
		release()
		pass(time.Minute)
		wantGone(t, d, "held")
	})
}

// TestClockSetBack: nothing lives on for the year that the clock was ahead.
func TestClockSetBack(t *testing.T) {
	withClock(t, sandbox.Pool{}, func(t *testing.T, w *warmWorld, d *daemon, c *jumpy) {
		c.jump(year) // as it may be before the network is there
		create(t, d, sandbox.Spec{Name: "stops", TTL: time.Hour})
		create(t, d, sandbox.Spec{Name: "goes", TTL: time.Hour, OnExpiry: sandbox.OnExpiryRemove})
		create(t, d, sandbox.Spec{Name: "stays"})
		create(t, d, sandbox.Spec{Name: "orphan", Ephemeral: true})
		w.fake.SetHook(failing(sandboxtest.Stop))
		create(t, d, sandbox.Spec{Name: "stuck"})
		d.Stop(t.Context(), ann, "stuck")
		w.fake.SetHook(nil)
		pass(5 * time.Second)
		c.jump(-year)
		pass(time.Minute + sandbox.OrphanGrace)
		wantGone(t, d, "orphan")
		wantState(t, d, "stuck", sandbox.StateStopped, sandbox.EndStopped)
		sb := wantState(t, d, "stops", sandbox.StateRunning, "")
		if late := time.Until(sb.ExpiresAt); late > time.Hour {
			t.Errorf("it expires %v from now, want at most its TTL of 1h", late)
		}
		pass(58 * time.Minute)
		wantState(t, d, "stops", sandbox.StateRunning, "") // it has its hour
		wantState(t, d, "goes", sandbox.StateRunning, "")
		pass(2 * time.Minute)
		wantState(t, d, "stops", sandbox.StateStopped, sandbox.EndExpired)
		wantGone(t, d, "goes")
		wantState(t, d, "stays", sandbox.StateRunning, "")
	})
}

// TestClockSetBackBetweenDaemons: the record is from a time that is to come.
func TestClockSetBackBetweenDaemons(t *testing.T) {
	withClock(t, sandbox.Pool{}, func(t *testing.T, w *warmWorld, d *daemon, c *jumpy) {
		c.jump(year)
		create(t, d, sandbox.Spec{Name: "web", TTL: time.Hour})
		create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: cow()})
		w.fake.SetChanges(get(t, d, "run").ID, []byte("M a.txt"))
		if res, err := d.Finish(t.Context(), ann, "run"); err != nil || !res.Kept {
			t.Errorf("Finish = %+v, %v", res, err)
		}
		d.shutdown()
		c.jump(-year)
		next := w.bootWith(t, w.opts)
		pass(time.Hour + time.Minute)
		wantState(t, next, "web", sandbox.StateStopped, sandbox.EndExpired)
		wantState(t, next, "run", sandbox.StateStopped, sandbox.EndStopped)
		pass(sandbox.KeptTTL)
		wantGone(t, next, "run")
		next.shutdown()
	})
}

// TestSmallSteps of a clock, as it is kept right, change no record.
func TestSmallSteps(t *testing.T) {
	withClock(t, sandbox.Pool{}, func(t *testing.T, _ *warmWorld, d *daemon, c *jumpy) {
		before := create(t, d, sandbox.Spec{Name: "web", TTL: time.Hour})
		for range 20 {
			c.jump(-time.Second)
			pass(2 * time.Second)
		}
		if after := get(t, d, "web"); !after.ExpiresAt.Equal(before.ExpiresAt) {
			t.Errorf("it expires at %v, want %v as before", after.ExpiresAt, before.ExpiresAt)
		}
	})
}

// TestClockOfThePool: a clock that is set stops no pool from being filled.
func TestClockOfThePool(t *testing.T) {
	withClock(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon, c *jumpy) {
		c.jump(year)
		create(t, d, sandbox.Spec{})
		c.jump(-year) // within the rest after a create
		pass(time.Minute)
		wantPool(t, w, d, 1, 1)
		c.jump(year)
		for _, id := range w.wall.Warmed() {
			w.fake.Die(id, sandbox.EndCrashed)
		}
		synctest.Wait()
		c.jump(-year) // within the wait after a failure
		pass(time.Minute)
		wantPool(t, w, d, 1, 1)
		w.fake.SetHook(failing(sandboxtest.Stop))
		w.fake.Die(w.wall.Warmed()[0], sandbox.EndCrashed)
		synctest.Wait()
		w.fake.SetHook(nil)
		c.jump(year)
		pass(time.Minute)
		wantPool(t, w, d, 1, 1)
	})
}
