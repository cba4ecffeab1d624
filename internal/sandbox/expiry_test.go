package sandbox_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

func TestExpiry(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "stops", TTL: time.Minute})
		create(t, d, sandbox.Spec{Name: "goes", TTL: time.Minute, OnExpiry: sandbox.OnExpiryRemove})
		create(t, d, sandbox.Spec{Name: "goes-when-stopped", TTL: time.Minute, OnExpiry: sandbox.OnExpiryRemove})
		create(t, d, sandbox.Spec{Name: "longer", TTL: time.Minute})
		create(t, d, sandbox.Spec{Name: "for-ever", TTL: time.Minute})
		create(t, d, sandbox.Spec{Name: "late", OnExpiry: sandbox.OnExpiryRemove})
		d.Stop(t.Context(), ann, "goes-when-stopped")
		for ref, ttl := range map[string]time.Duration{"longer": 2 * time.Minute, "for-ever": 0, "late": time.Hour} {
			if _, err := d.SetTTL(t.Context(), ann, ref, ttl); err != nil {
				t.Fatal(err)
			}
		}
		_, err := d.SetTTL(t.Context(), ann, "longer", time.Millisecond)
		wantKind(t, "SetTTL", err, sandbox.Invalid)
		pass(time.Minute - 1)
		for _, ref := range []string{"stops", "goes"} {
			wantState(t, d, ref, sandbox.StateRunning, "")
		}
		pass(1)
		wantState(t, d, "stops", sandbox.StateStopped, sandbox.EndExpired)
		wantGone(t, d, "goes")
		wantGone(t, d, "goes-when-stopped")
		wantState(t, d, "longer", sandbox.StateRunning, "")
		pass(time.Minute)
		wantState(t, d, "longer", sandbox.StateStopped, sandbox.EndExpired)
		pass(58*time.Minute - 1)
		wantState(t, d, "late", sandbox.StateRunning, "")
		pass(1)
		wantGone(t, d, "late")
		wantState(t, d, "for-ever", sandbox.StateRunning, "")
		wantState(t, d, "stops", sandbox.StateStopped, sandbox.EndExpired)
	})
}

func TestSetTTLOfAStoppedOne(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		d.Stop(t.Context(), ann, "web")
		sb, err := d.SetTTL(t.Context(), ann, "web", time.Minute)
		if err != nil || !sb.ExpiresAt.IsZero() {
			t.Errorf("SetTTL = %+v, %v; want no expiry while it is stopped", sb, err)
		}
		sb, err = d.Start(t.Context(), ann, "web")
		if err != nil || !sb.ExpiresAt.Equal(sb.StartedAt.Add(time.Minute)) {
			t.Errorf("Start = %+v, %v; want it to expire in a minute", sb, err)
		}
	})
}

func TestOrphans(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		run := create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: cow()})
		create(t, d, sandbox.Spec{Name: "never-held", Ephemeral: true})
		create(t, d, sandbox.Spec{Name: "stays"})
		hold := func(ref string) func() {
			release, err := d.Hold(t.Context(), ann, ref)
			if err != nil {
				t.Fatalf("Hold: %v", err)
			}
			return release
		}
		one, two := hold("run"), hold("run")
		hold("stays")()
		if n, holds := d.Idle(); n != 3 || holds != 2 {
			t.Errorf("Idle = %d, %d; want 3, 2", n, holds)
		}
		pass(sandbox.OrphanGrace)
		wantGone(t, d, "never-held")
		one()
		one() // does not count twice
		pass(time.Hour)
		wantState(t, d, "run", sandbox.StateRunning, "")
		two()
		pass(sandbox.OrphanGrace - 1)
		three := hold("run") // just in time
		pass(time.Hour)
		wantState(t, d, "run", sandbox.StateRunning, "")
		w.fake.SetChanges(run.ID, []byte("M a.txt"))
		three()
		pass(sandbox.OrphanGrace)
		kept := wantState(t, d, "run", sandbox.StateStopped, sandbox.EndOrphaned)
		if kept.Spec.Ephemeral || !kept.Kept {
			t.Errorf("kept %+v", kept)
		}
		wantState(t, d, "stays", sandbox.StateRunning, "")
		if n, holds := d.Idle(); n != 1 || holds != 0 {
			t.Errorf("Idle = %d, %d; want 1, 0", n, holds)
		}
	})
}

func TestFinish(t *testing.T) {
	changed := []byte("M a.txt")
	tests := []struct {
		name      string
		workspace sandbox.Workspace
		changes   []byte
		fail      bool // Changes
		stopped   bool // before
		want      bool // kept
	}{
		{name: "unchanged", workspace: cow()},
		{name: "changed", workspace: cow(), changes: changed, want: true},
		{name: "unreadable", workspace: cow(), fail: true, want: true},
		{name: "changed-and-stopped", workspace: cow(), changes: changed, stopped: true, want: true},
		{name: "unchanged-and-stopped", workspace: cow(), stopped: true},
		{name: "private", changes: changed},
		{name: "writable", workspace: sandbox.Workspace{Mode: "rw", Source: hostDir("/w")}, changes: changed},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, d *daemon) {
				if tc.fail {
					w.fake.SetHook(failing(sandboxtest.Changes))
				}
				sb := create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: tc.workspace})
				w.fake.SetChanges(sb.ID, tc.changes)
				release, err := d.Hold(t.Context(), ann, "run")
				if err != nil {
					t.Fatal(err)
				}
				if tc.stopped {
					w.fake.Die(sb.ID, sandbox.EndOutOfMemory)
					synctest.Wait()
				}
				res, err := d.Finish(t.Context(), ann, "run")
				if err != nil || res.Kept != tc.want {
					t.Fatalf("Finish = %+v, %v; want Kept %v", res, err, tc.want)
				}
				release()
				if !tc.want {
					wantGone(t, d, "run")
					return
				}
				if res, err := d.Finish(t.Context(), ann, "run"); err != nil || !res.Kept {
					t.Errorf("Finish again = %+v, %v", res, err)
				}
				pass(sandbox.KeptTTL - 1)
				if sb := get(t, d, "run"); sb.State != sandbox.StateStopped || sb.Spec.Ephemeral {
					t.Errorf("kept %+v", sb)
				}
				pass(1)
				wantGone(t, d, "run")
			})
		})
	}
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		_, err := d.Finish(t.Context(), ann, "web")
		wantKind(t, "Finish of what stays", err, sandbox.Conflict)
		wantState(t, d, "web", sandbox.StateRunning, "")
	})
}

// TestFinishReadsNoMoreThanItNeeds: an endless stream of changes ends with the
// first byte, and a reader of the stream's own format has the say.
func TestFinishReadsNoMoreThanItNeeds(t *testing.T) {
	for _, changed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			d := w.bootWith(t, sandbox.Options{
				Store: &w.store, Backends: []sandbox.Backend{w.fake},
				HasChanges: func(r io.Reader) (bool, error) {
					_, err := io.ReadFull(r, make([]byte, 6))
					return changed, err
				},
			})
			sb := create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: cow()})
			w.fake.SetChanges(sb.ID, append([]byte("header"), make([]byte, 1<<20)...))
			if res, err := d.Finish(t.Context(), ann, "run"); err != nil || res.Kept != changed {
				t.Errorf("Finish = %+v, %v; want Kept %v", res, err, changed)
			}
			d.shutdown()
			w.check(t)
		})
	}
}

// TestInterruptedFinish: a caller who leaves during the look for changes does
// not make the sandbox kept, nor lost: it is finished as an orphan.
func TestInterruptedFinish(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: cow()})
		w.fake.SetHook(slow(sandboxtest.Changes, time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Finish(ctx, ann, "run")
		wantKind(t, "Finish", err, sandbox.Unavailable)
		if sb := wantState(t, d, "run", sandbox.StateStopped, sandbox.EndStopped); !sb.Spec.Ephemeral || sb.Kept {
			t.Errorf("interrupted %+v", sb)
		}
		pass(5 * time.Minute)
		wantGone(t, d, "run")
	})
}

// TestSlowStart: who made a sandbox has the whole grace to take hold of it, however long its
// start took. Nobody who does not come keeps it.
func TestSlowStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		w.fake.SetHook(slow(sandboxtest.Start, 3*sandbox.OrphanGrace))
		create(t, d, sandbox.Spec{Name: "held", Ephemeral: true})
		pass(sandbox.OrphanGrace - time.Second)
		release, err := d.Hold(t.Context(), ann, "held")
		if err != nil {
			t.Fatal(err)
		}
		create(t, d, sandbox.Spec{Name: "left", Ephemeral: true})
		pass(sandbox.OrphanGrace + time.Second)
		wantGone(t, d, "left")
		wantState(t, d, "held", sandbox.StateRunning, "")
		release()
		pass(sandbox.OrphanGrace + time.Second)
		wantGone(t, d, "held")
	})
}

func TestHoldOfWhatIsBeingFinished(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "run", Ephemeral: true})
		w.fake.SetHook(slow(sandboxtest.Stop, time.Minute))
		pass(sandbox.OrphanGrace)
		_, err := d.Hold(t.Context(), ann, "run")
		wantKind(t, "Hold", err, sandbox.Conflict)
		pass(5 * time.Minute)
		wantGone(t, d, "run")
	})
}
