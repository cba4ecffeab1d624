package sandbox_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// inPauseBubble is inBubble for a wall that keeps memory.
func inPauseBubble(t *testing.T, test func(t *testing.T, w *world, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootPausing(t)
		test(t, w, d)
		d.shutdown()
		w.check(t)
	})
}

func (w *world) bootPausing(t fataler) *daemon {
	return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{sandboxtest.Suspender{Fake: w.fake}}})
}

func fail(op sandboxtest.Op) sandboxtest.Hook {
	return func(_ context.Context, got sandboxtest.Op, _ string) error {
		if got == op {
			return errBoom
		}
		return nil
	}
}

func TestPauseWithMemory(t *testing.T) {
	tests := []struct {
		name      string
		filesOnly bool
		pausing   sandboxtest.Hook // while it is paused
		resuming  func(w *world)   // before it is started
		suspended bool
		lost      []string // once it runs again
		starts    int      // of the instance, without memory
	}{
		{name: "goes on", suspended: true, starts: 1},
		{name: "files only", filesOnly: true, starts: 2},
		{name: "memory can't be written", pausing: fail(sandboxtest.Suspend), starts: 2},
		{name: "memory can't be used", suspended: true, lost: []string{"processes"}, starts: 2, resuming: func(w *world) {
			w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
				if op != sandboxtest.Start {
					return nil
				}
				w.fake.SetHook(nil)
				return errBoom
			})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inPauseBubble(t, func(t *testing.T, w *world, d *daemon) {
				sb := create(t, d, sandbox.Spec{Name: "web"})
				w.fake.SetHook(tt.pausing)
				paused, kept, err := d.Pause(t.Context(), ann, "web", !tt.filesOnly)
				w.fake.SetHook(nil)
				if err != nil || paused.State != sandbox.StateStopped || paused.Suspended != tt.suspended || kept != tt.suspended {
					t.Fatalf("Pause = %+v, %v; want it stopped, suspended: %v", paused, err, tt.suspended)
				}
				if slices.Contains(paused.Lost, "processes") == tt.suspended {
					t.Errorf("lost %v, suspended: %v", paused.Lost, tt.suspended)
				}
				_, _, err = d.Pause(t.Context(), ann, "web", true)
				wantKind(t, "Pause of a paused one", err, sandbox.Conflict)
				if tt.resuming != nil {
					tt.resuming(w)
				}
				got, err := d.Start(t.Context(), ann, "web")
				if err != nil || got.State != sandbox.StateRunning || got.Suspended || !slices.Equal(got.Lost, tt.lost) {
					t.Fatalf("Start = %+v, %v; want lost %v", got, err, tt.lost)
				}
				if n := w.fake.Starts(sb.ID); n != tt.starts {
					t.Errorf("the instance was started %d times without memory, want %d", n, tt.starts)
				}
			})
		})
	}
}

// TestPauseGoesOnUnasked has whoever asked for a start leave: the memory is
// used up by then, and the sandbox goes on.
func TestPauseGoesOnUnasked(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		if _, _, err := d.Pause(t.Context(), ann, "web", true); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		w.fake.SetHook(func(ctx context.Context, op sandboxtest.Op, _ string) error {
			if op == sandboxtest.Start {
				leave()
			}
			return ctx.Err()
		})
		_, _ = d.Start(ctx, ann, "web") // nobody is there to read it
		w.fake.SetHook(nil)
		wantState(t, d, "web", sandbox.StateRunning, "")
	})
}

// TestPauseCut has a daemon die once the memory is written, and the next one
// find it: its record said before what was meant.
func TestPauseCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootPausing(t)
		sb := create(t, d, sandbox.Spec{Name: "web"})
		// What such a death leaves.
		cut := sb.Clone()
		cut.State, cut.Ended, cut.Suspended = sandbox.StateStopping, sandbox.EndPaused, true
		d.shutdown()
		if err := (sandboxtest.Suspender{Fake: w.fake}).Suspend(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Put(t.Context(), cut); err != nil {
			t.Fatal(err)
		}
		d = w.bootPausing(t)
		got, err := d.Get(t.Context(), ann, "web")
		if err != nil || got.State != sandbox.StateStopped || !got.Suspended || got.Lost != nil {
			t.Errorf("Get = %+v, %v; want it stopped, with its memory", got, err)
		}
		d.shutdown()
		w.check(t)
	})
}

func TestExpiryPauses(t *testing.T) {
	inPauseBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web", TTL: time.Minute, OnExpiry: sandbox.OnExpiryPause})
		pass(time.Minute)
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndExpired)
		if sb, err := d.Get(t.Context(), ann, "web"); err != nil || !sb.Suspended {
			t.Errorf("Get = %+v, %v; want it suspended", sb, err)
		}
	})
}

// TestStartupAfterLostMemory has a start begin anew with a startup command,
// which takes as long as it may at any other start.
func TestStartupAfterLostMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		startups := 0
		slow := func(ctx context.Context, _ *sandbox.Sandbox, _ func(context.Context) (net.Conn, error)) error {
			startups++
			select {
			case <-time.After(4 * time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		d := w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{sandboxtest.Suspender{Fake: w.fake}}, Startup: slow})
		create(t, d, sandbox.Spec{Name: "web", Startup: &sandbox.Startup{Command: "serve"}})
		for i, lost := range [][]string{nil, {"processes"}} {
			if _, _, err := d.Pause(t.Context(), ann, "web", true); err != nil {
				t.Fatal(err)
			}
			if lost != nil {
				w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
					if op != sandboxtest.Start {
						return nil
					}
					w.fake.SetHook(nil)
					return errBoom
				})
			}
			got, err := d.Start(t.Context(), ann, "web")
			if err != nil || !slices.Equal(got.Lost, lost) || startups != 1+i {
				t.Fatalf("Start = %+v, %v, after %d startups; want lost %v", got, err, startups, lost)
			}
		}
		d.shutdown()
		w.check(t)
	})
}
