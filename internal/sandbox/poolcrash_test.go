package sandbox_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// mortalWarmer is a Warmer as a mortal process sees it.
type mortalWarmer struct {
	mortalBackend
	w sandbox.Warmer
}

func (b mortalWarmer) Warm(ctx context.Context, id string, spec sandbox.Spec, owner string) error {
	b.step()
	err := b.w.Warm(ctx, id, spec, owner)
	b.step()
	return err
}

func (b mortalWarmer) Claim(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	b.step()
	e, err := b.w.Claim(ctx, sb)
	b.step()
	return e, err
}

func (b mortalWarmer) Personal(owner string, spec sandbox.Spec) bool {
	return b.w.Personal(owner, spec)
}

func (b mortalWarmer) Capabilities() sandbox.Capabilities {
	c := b.Backend.Capabilities()
	c.Warm = b
	return c
}

// bootMortalPool boots a daemon with a pool that dies as m says.
func (w *warmWorld) bootMortalPool(t fataler, m *mortality, claimFails bool) *daemon {
	t.Helper()
	w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
		switch op {
		case sandboxtest.Start, sandboxtest.Stop, sandboxtest.Remove, sandboxtest.Warm:
			m.step()
		case sandboxtest.Claim:
			m.step()
			if claimFails {
				return errBoom
			}
		}
		return nil
	})
	opts := w.opts
	opts.Store = mortalStore{&w.store, m}
	opts.Backends = []sandbox.Backend{mortalWarmer{mortalBackend{w.wall, m}, w.wall}}
	return w.bootIn(m.life, t, opts)
}

// TestKilledWithAPool kills a daemon at each of its steps while it warms an
// instance, claims it for somebody, fills the pool again and lets the sandbox go.
// The next daemon must have what was answered, and no instance beside.
func TestKilledWithAPool(t *testing.T) {
	for _, claimFails := range []bool{false, true} {
		t.Run(fmt.Sprintf("claim-fails-%v", claimFails), func(t *testing.T) {
			steps := 0
			for died := true; died; {
				if steps++; steps > 100 {
					t.Fatal("it never got through")
				}
				synctest.Test(t, func(t *testing.T) {
					w := newWarmWorld(sandbox.Pool{Size: 1})
					m := newMortality(steps)
					d := w.bootMortalPool(t, m, claimFails)
					pass(time.Second)
					var web, gone *sandbox.Sandbox
					var removed bool
					go func() {
						web, _ = d.Create(context.Background(), ann, sandbox.Spec{Name: "web"}, nil)
						time.Sleep(10 * time.Second)
						gone, _ = d.Create(context.Background(), bob, sandbox.Spec{Name: "gone"}, nil)
						removed = d.Remove(context.Background(), bob, "gone", true) == nil && gone != nil
					}()
					pass(time.Minute)
					died = m.dead.Load()
					if !died && (web == nil || !removed) {
						t.Error("not killed, and yet not done")
					}
					w.bury(d, m)

					w.opts.Pool.Size = 0
					d = w.bootWith(t, w.opts)
					pass(2 * time.Minute)
					w.check(t)
					if len(w.wall.Warmed()) != 0 {
						t.Errorf("warm instances are left: %v", w.wall.Warmed())
					}
					if web != nil {
						wantState(t, d, web.ID, sandbox.StateRunning, "")
					}
					if _, err := d.Get(t.Context(), bob, "gone"); removed && err == nil {
						t.Error("what was removed is there")
					}
					d.shutdown()
					if t.Failed() {
						t.Logf("killed at step %d", steps)
					}
				})
				if t.Failed() {
					return
				}
			}
			if steps < 20 {
				t.Errorf("only %d steps: the test does not see them", steps)
			}
		})
	}
}

// TestKilledWhileItDrains kills a daemon that is leaving at each step of that.
func TestKilledWhileItDrains(t *testing.T) {
	steps := 0
	for died := true; died; {
		steps++
		synctest.Test(t, func(t *testing.T) {
			w := newWarmWorld(sandbox.Pool{Size: 3})
			m := newMortality(-1)
			d := w.bootMortalPool(t, m, false)
			pass(time.Second)
			wantPool(t, w, d, 3, 3)
			m.left.Store(int64(steps))
			go d.Close()
			pass(time.Minute)
			died = m.dead.Load()
			w.bury(d, m)
			w.opts.Pool.Size = 0
			d = w.bootWith(t, w.opts)
			pass(time.Minute)
			w.check(t)
			d.shutdown()
		})
		if t.Failed() || steps > 100 {
			t.Fatalf("killed at step %d", steps)
		}
	}
	if steps < 10 {
		t.Errorf("only %d steps: the test does not see them", steps)
	}
}

// TestOneIDAlways: a machine whose randomness repeats itself gives no two
// instances one ID.
func TestOneIDAlways(t *testing.T) {
	for every := 2; every < 12; every++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWarmWorld(sandbox.Pool{Size: 4})
			w.opts.Rand = &stutter{every: every}
			d := w.bootWith(t, w.opts)
			var ids []string
			for i := range 30 {
				if sb, err := d.Create(t.Context(), ann, sandbox.Spec{Name: fmt.Sprintf("web-%d", i)}, nil); err == nil {
					ids = append(ids, sb.ID)
				}
				if i%3 == 0 {
					pass(time.Minute)
				}
			}
			slices.Sort(ids)
			if n := len(slices.Compact(slices.Clone(ids))); n != len(ids) || n < 2 {
				t.Errorf("every %d: IDs %v: want some, each once", every, ids)
			}
			d.shutdown()
			w.check(t)
		})
	}
}
