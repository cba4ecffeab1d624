package sandbox_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t)
		ids := map[string]string{}
		for _, name := range []string{"lives", "died", "hung", "stopped", "stopping", "removing", "restarting", "half-made"} {
			ids[name] = create(t, d, sandbox.Spec{Name: name}).ID
		}
		d.Stop(t.Context(), ann, "stopped")
		d.shutdown()

		w.fake.Die(ids["died"], sandbox.EndRebooted)
		w.fake.Hang(ids["hung"])
		w.fake.Plant("sb_aaaaaaaaaaaaaaaaaaaa")
		for name, change := range map[string]func(*sandbox.Sandbox){
			"stopping":   func(sb *sandbox.Sandbox) { sb.State, sb.Ended = sandbox.StateStopping, sandbox.EndExpired },
			"removing":   func(sb *sandbox.Sandbox) { sb.State = sandbox.StateRemoving },
			"restarting": func(sb *sandbox.Sandbox) { sb.State, sb.Ended = sandbox.StateCreated, sandbox.EndOutOfMemory },
			"half-made":  func(sb *sandbox.Sandbox) { sb.State, sb.Starts = sandbox.StateCreated, 0 },
		} {
			sb, err := w.store.Get(t.Context(), ids[name])
			if err != nil {
				t.Fatal(err)
			}
			change(sb)
			if err := w.store.Put(t.Context(), sb); err != nil {
				t.Fatal(err)
			}
		}
		d = w.boot(t)
		pass(time.Minute)
		wantState(t, d, "lives", sandbox.StateRunning, "")
		wantState(t, d, "died", sandbox.StateStopped, sandbox.EndRebooted)
		wantState(t, d, "hung", sandbox.StateStopped, sandbox.EndCrashed)
		wantState(t, d, "stopped", sandbox.StateStopped, sandbox.EndStopped)
		wantState(t, d, "stopping", sandbox.StateStopped, sandbox.EndExpired)
		wantState(t, d, "restarting", sandbox.StateStopped, sandbox.EndOutOfMemory)
		wantGone(t, d, "removing")
		wantGone(t, d, "half-made")
		if got := w.fake.Starts(ids["lives"]); got != 1 {
			t.Errorf("what lives was started %d times, want 1", got)
		}
		w.check(t) // the planted instance is gone
		w.fake.Die(ids["lives"], sandbox.EndCrashed)
		synctest.Wait()
		wantState(t, d, "lives", sandbox.StateStopped, sandbox.EndCrashed)
		d.shutdown()
	})
}

// TestAdoptServesMeanwhile: while one sandbox is slow to settle, others can be
// used, and who asks for that one waits.
func TestAdoptServesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t)
		create(t, d, sandbox.Spec{Name: "fast"})
		slowID := create(t, d, sandbox.Spec{Name: "slow"}).ID
		d.shutdown()
		w.fake.Hang(slowID)
		d = w.boot(t)
		began := time.Now()
		if _, err := d.Stop(t.Context(), ann, "fast"); err != nil || time.Since(began) != 0 {
			t.Errorf("Stop of another = %v after %v", err, time.Since(began))
		}
		if _, err := d.Start(t.Context(), ann, "slow"); err != nil || time.Since(began) == 0 {
			t.Errorf("Start = %v after %v", err, time.Since(began))
		}
		d.shutdown()
		w.check(t)
	})
}

func TestAdoptOfAnotherWall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t)
		create(t, d, sandbox.Spec{Name: "web", TTL: time.Minute})
		d.shutdown()
		other := sandboxtest.New("other")
		d = w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{other}})
		pass(time.Hour)
		wantState(t, d, "web", sandbox.StateRunning, "")
		_, err := d.Stop(t.Context(), ann, "web")
		wantKind(t, "Stop", err, sandbox.Unsupported)
		wantKind(t, "Remove", d.Remove(t.Context(), ann, "web", true), sandbox.Unsupported)
		wantState(t, d, "web", sandbox.StateRunning, "")
		d.shutdown()
	})
}
