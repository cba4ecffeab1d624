package sandbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// TestWarmInstanceDies: it is replaced, and a kind whose instances keep dying is made
// ever less often.
func TestWarmInstanceDies(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		first := w.wall.Warmed()
		w.fake.Die(first[0], sandbox.EndOutOfMemory)
		synctest.Wait()
		wantPool(t, w, d, 0, 1)
		pass(10 * time.Second)
		wantPool(t, w, d, 1, 1)
		if instances, _ := w.fake.Instances(t.Context()); slices.Contains(instances, first[0]) {
			t.Error("the dead instance is there still")
		}
		ops := count(w.fake)
		for range 3600 {
			for _, id := range w.wall.Warmed() {
				w.fake.Die(id, sandbox.EndCrashed)
			}
			pass(time.Second)
		}
		if n := ops.count(sandboxtest.Warm); n < 5 || n > 25 {
			t.Errorf("%d instances in an hour, want few and some", n)
		}
		pass(5 * time.Minute)
		create(t, d, sandbox.Spec{}) // claimed: all is well again
		pass(time.Second)
		wantPool(t, w, d, 1, 1)
	})
}

func TestWarmingThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmWorld(sandbox.Pool{Size: 2})
		ops := count(w.fake)
		ops.set(sandboxtest.Warm, 0, errBoom)
		ops.set(sandboxtest.Stop, 0, errBoom)
		d := w.bootWith(t, w.opts)
		create(t, d, sandbox.Spec{Name: "web"}) // bothers nobody
		pass(time.Hour)
		wantPool(t, w, d, 0, 2)
		if n := ops.count(sandboxtest.Warm); n < 5 || n > 25 {
			t.Errorf("%d tries in an hour, want few and some", n)
		}
		ops.set(sandboxtest.Warm, 0, nil)
		ops.set(sandboxtest.Stop, 0, nil)
		pass(5 * time.Minute)
		wantPool(t, w, d, 2, 2)
		d.shutdown()
		w.check(t)
	})
}

// TestWarmingThatHangs is given up in time, and holds nothing up.
func TestWarmingThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmWorld(sandbox.Pool{Size: 2})
		ops := count(w.fake)
		ops.set(sandboxtest.Warm, 24*time.Hour, nil)
		d := w.bootWith(t, w.opts)
		began := time.Now()
		create(t, d, sandbox.Spec{Name: "web"})
		if took := time.Since(began); took != 0 {
			t.Errorf("Create took %v", took)
		}
		pass(5 * time.Minute)
		if n := ops.count(sandboxtest.Warm); n < 2 {
			t.Errorf("%d tries: the first was never given up", n)
		}
		began = time.Now()
		d.shutdown()
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		w.check(t)
	})
}

// TestClaimThatFails: whatever is wrong with the warm instance, the caller gets a
// sandbox; of the instance, and of what it was told, nothing is left in use.
func TestClaimThatFails(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(w *warmWorld, id string)
		takes time.Duration
	}{
		{name: "hung", spoil: func(w *warmWorld, id string) { w.fake.Hang(id) }},
		{name: "dies-meanwhile", spoil: func(w *warmWorld, id string) {
			w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, of string) error {
				if op == sandboxtest.Claim {
					w.fake.Die(of, sandbox.EndCrashed)
				}
				return nil
			})
		}},
		{name: "refused", spoil: func(w *warmWorld, _ string) { w.fake.SetHook(failing(sandboxtest.Claim)) }},
		{name: "refused-and-box-stays", spoil: func(w *warmWorld, _ string) {
			w.fake.SetHook(failing(sandboxtest.Claim, sandboxtest.Stop))
		}},
		{
			name: "silent", takes: 5 * time.Second,
			spoil: func(w *warmWorld, _ string) { w.fake.SetHook(slow(sandboxtest.Claim, time.Hour)) },
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
				warm := w.wall.Warmed()[0]
				tc.spoil(w, warm)
				var told sandbox.Sandbox // what the instance may know
				w.tap.set(func(sb *sandbox.Sandbox) {
					if sb.ID == warm {
						told = *sb
					}
				}, false)
				began := time.Now()
				sb := create(t, d, sandbox.Spec{Name: "web", TTL: time.Hour})
				if took := time.Since(began); took != tc.takes {
					t.Errorf("Create took %v, want %v", took, tc.takes)
				}
				if told.ID == "" || sb.ID == told.ID || sb.Token == told.Token || sb.Owner != told.Owner || sb.Starts != 1 {
					t.Errorf("got %+v\nafter %+v\nwant another ID and token", sb, told)
				}
				wantState(t, d, "web", sandbox.StateRunning, "")
				wantGone(t, d, warm)
				if _, err := w.store.Get(t.Context(), warm); sandbox.KindOf(err) != sandbox.NotFound {
					t.Errorf("the record of the warm instance: %v, want none", err)
				}
				if evs, err := d.Events(t.Context(), ann, "web"); err != nil || len(evs) != 2 {
					t.Errorf("Events = %v, %v; want two", evs, err)
				}
				w.fake.SetHook(nil)
				pass(time.Minute)
				if instances, _ := w.fake.Instances(t.Context()); slices.Contains(instances, warm) {
					t.Error("the warm instance is there still")
				}
				wantPool(t, w, d, 1, 1)
				pass(time.Hour)
				wantState(t, d, "web", sandbox.StateStopped, sandbox.EndExpired)
			})
		})
	}
}

// TestClaimsThatKeepFailing cost less and less.
func TestClaimsThatKeepFailing(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		ops := count(w.fake)
		ops.set(sandboxtest.Claim, 0, errBoom)
		for range 600 {
			sb := create(t, d, sandbox.Spec{})
			d.Remove(t.Context(), ann, sb.ID, true)
			pass(time.Second)
		}
		if n := ops.count(sandboxtest.Claim); n > 12 {
			t.Errorf("%d of 600 creates met a warm instance that can't be claimed", n)
		}
	})
}

// TestClaimAndStartThatFail: the error is that of the start, and all is gone.
func TestClaimAndStartThatFail(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		w.fake.SetHook(failing(sandboxtest.Claim, sandboxtest.Start))
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "web"}, nil)
		wantKind(t, "Create", err, sandbox.Internal)
		wantGone(t, d, "web")
		w.fake.SetHook(nil)
		create(t, d, sandbox.Spec{Name: "web"})
	})
}

// TestCallerLeavesDuringClaim: the instance is not started anew for nobody.
func TestCallerLeavesDuringClaim(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		ops := count(w.fake)
		ops.set(sandboxtest.Claim, time.Hour, nil)
		warm := w.wall.Warmed()[0]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Create(ctx, ann, sandbox.Spec{Name: "web"}, nil)
		wantKind(t, "Create", err, sandbox.Unavailable)
		wantGone(t, d, "web")
		if instances, _ := w.fake.Instances(t.Context()); slices.Contains(instances, warm) || ops.count(sandboxtest.Start) != 0 {
			t.Errorf("boxes %v after %d starts, want %s gone and none", instances, ops.count(sandboxtest.Start), warm)
		}
		pass(200 * time.Millisecond) // it says nothing of the kind
		wantPool(t, w, d, 1, 1)
	})
}

// TestRecordOfAClaimThatFailsStays: its deletion fails, so Create does, and
// everything is undone as soon as it can be.
func TestRecordOfAClaimThatFailsStays(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		w.fake.SetHook(failing(sandboxtest.Claim))
		w.tap.set(nil, true)
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "web"}, nil)
		wantKind(t, "Create", err, sandbox.Internal)
		w.tap.set(nil, false)
		w.fake.SetHook(nil)
		pass(time.Minute)
		wantGone(t, d, "web")
		wantPool(t, w, d, 1, 1)
	})
}

// TestOthersDuringAFailingClaim: whoever stops, holds or looks up by name a
// sandbox that is being created meets the one that comes of it.
func TestOthersDuringAFailingClaim(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 1}, func(t *testing.T, w *warmWorld, d *daemon) {
		w.fake.SetHook(slow(sandboxtest.Claim, time.Hour))
		var wg sync.WaitGroup
		wg.Go(func() { create(t, d, sandbox.Spec{Name: "run", Ephemeral: true}) })
		synctest.Wait()
		release, err := d.Hold(t.Context(), ann, "run")
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if _, err := d.Stop(t.Context(), ann, "run"); err != nil {
				t.Errorf("Stop: %v", err)
			}
		})
		wg.Wait()
		pass(time.Hour)
		wantState(t, d, "run", sandbox.StateStopped, sandbox.EndStopped) // held
		release()
		if n, holds := d.Idle(); n != 1 || holds != 0 {
			t.Errorf("Idle = %d, %d; want 1, 0", n, holds)
		}
		pass(sandbox.OrphanGrace)
		wantGone(t, d, "run")
	})
}

// TestEndOfAWarmInstanceThatFails is tried again, also by the next daemon.
func TestEndOfAWarmInstanceThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmWorld(sandbox.Pool{Size: 2})
		d := w.bootWith(t, w.opts)
		warm := w.wall.Warmed()
		w.fake.SetHook(failing(sandboxtest.Stop))
		w.fake.Die(warm[0], sandbox.EndCrashed)
		pass(time.Minute)
		instances, _ := w.fake.Instances(t.Context())
		if !slices.Contains(instances, warm[0]) {
			t.Fatal("the instance went: the test proves nothing")
		}
		d.shutdown()
		if left, _ := w.fake.Instances(t.Context()); len(left) != len(instances) {
			t.Fatal("boxes went: the test proves nothing")
		}
		w.fake.SetHook(nil)
		w.opts.Pool.Size = 0
		d = w.bootWith(t, w.opts)
		w.check(t)
		d.shutdown()
	})
}

// TestStrayThatStays: an instance without a record that can't be removed at first
// is no less removed for that, also where there is no pool.
func TestStrayThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.fake.Plant("sb_aaaaaaaaaaaaaaaaaaaa")
		w.fake.SetHook(failing(sandboxtest.Stop))
		d := w.boot(t)
		pass(time.Minute)
		if len(w.fake.Running()) != 1 {
			t.Fatal("the instance went: the test proves nothing")
		}
		w.fake.SetHook(nil)
		pass(time.Minute)
		w.check(t)
		d.shutdown()
	})
}

// TestPoolOfADeadDaemon: its warm instances are no one's, and the next daemon
// warms its own once they have gone.
func TestPoolOfADeadDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWarmWorld(sandbox.Pool{Size: 2})
		life, die := context.WithCancel(t.Context())
		d := w.bootIn(life, t, w.opts)
		sb := create(t, d, sandbox.Spec{Name: "web"})
		pass(time.Second)
		old := w.wall.Warmed()
		die() // and no Close
		<-d.done
		if len(old) != 2 || len(w.fake.Running()) != 3 {
			t.Fatalf("warm %v, running %v", old, w.fake.Running())
		}
		ops := count(w.fake)
		ops.set(sandboxtest.Stop, time.Minute, nil)
		next := w.bootWith(t, w.opts)
		pass(59 * time.Second)
		if n := ops.count(sandboxtest.Warm); n != 0 {
			t.Error("boxes were warmed beside those that are being removed")
		}
		ops.set(sandboxtest.Stop, 0, nil)
		pass(2 * time.Minute)
		wantPool(t, w, next, 2, 2)
		for _, id := range w.wall.Warmed() {
			if slices.Contains(old, id) {
				t.Errorf("%s was adopted", id)
			}
		}
		if got := wantState(t, next, "web", sandbox.StateRunning, ""); got.ID != sb.ID || w.fake.Starts(sb.ID) != 1 {
			t.Errorf("adopted %+v", got)
		}
		next.shutdown()
		d.Close() // the dead end with the test
		w.check(t)
	})
}

// TestCloseDuringAClaim: it is undone as any create is.
func TestCloseDuringAClaim(t *testing.T) {
	withPool(t, sandbox.Pool{Size: 2}, func(t *testing.T, w *warmWorld, d *daemon) {
		w.fake.SetHook(slow(sandboxtest.Claim, time.Hour))
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { _, err = d.Create(t.Context(), ann, sandbox.Spec{Name: "web"}, nil) })
		synctest.Wait()
		var closes sync.WaitGroup
		for range 3 {
			closes.Go(d.Close)
		}
		wg.Wait()
		closes.Wait()
		wantKind(t, "Create", err, sandbox.Unavailable)
		if instances, _ := w.fake.Instances(t.Context()); len(instances) != 0 {
			t.Errorf("boxes left by Close: %v", instances)
		}
	})
}
