package sandbox_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// mortality is the life of a process that is killed at its n-th step: before,
// within or after something that it does to the world.
type mortality struct {
	left atomic.Int64 // steps until death; never reached from a negative number
	dead atomic.Bool
	life context.Context
	end  context.CancelFunc
}

func newMortality(steps int) *mortality {
	m := new(mortality)
	m.left.Store(int64(steps))
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

// step ends the calling goroutine if the process is dead, or dies now.
func (m *mortality) step() {
	if m.dead.Load() || m.left.Add(-1) == 0 {
		m.dead.Store(true)
		m.end()
		runtime.Goexit()
	}
}

// mortalStore is a store as a mortal process sees it.
type mortalStore struct {
	sandbox.Store
	*mortality
}

func (s mortalStore) Put(ctx context.Context, sb *sandbox.Sandbox) error {
	s.step()
	err := s.Store.Put(ctx, sb)
	s.step()
	return err
}

func (s mortalStore) Delete(ctx context.Context, id string) error {
	s.step()
	err := s.Store.Delete(ctx, id)
	s.step()
	return err
}

// mortalBackend is a backend as a mortal process sees it. Death within an
// operation comes by a Hook.
type mortalBackend struct {
	sandbox.Backend
	*mortality
}

func (b mortalBackend) Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	b.step()
	e, err := b.Backend.Start(ctx, sb)
	b.step()
	return e, err
}

func (b mortalBackend) Stop(ctx context.Context, id string) ([]string, error) {
	b.step()
	lost, err := b.Backend.Stop(ctx, id)
	b.step()
	return lost, err
}

func (b mortalBackend) Remove(ctx context.Context, id string) error {
	b.step()
	err := b.Backend.Remove(ctx, id)
	b.step()
	return err
}

func (b mortalBackend) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	b.step()
	return b.Backend.Dial(ctx, id, port)
}

func (b mortalBackend) Changes(ctx context.Context, id string, o sandbox.ChangesOptions, w io.Writer) error {
	// Called on a goroutine whose end is waited for: the dead get an error.
	if b.dead.Load() {
		return errBoom
	}
	return b.Backend.Changes(ctx, id, o, w)
}

// bootMortal boots a daemon that dies at its n-th step from now.
func (w *world) bootMortal(t fataler, n int) (*daemon, *mortality) {
	t.Helper()
	m := newMortality(-1)
	d := w.bootMortally(t, m)
	m.left.Store(int64(n))
	return d, m
}

// bootMortally boots a daemon that dies as m says, be it in Adopt.
func (w *world) bootMortally(t fataler, m *mortality) *daemon {
	t.Helper()
	w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
		switch op {
		case sandboxtest.Start, sandboxtest.Stop, sandboxtest.Remove:
			m.step()
		}
		return nil
	})
	return w.bootIn(m.life, t, sandbox.Options{
		Store:    mortalStore{&w.store, m},
		Backends: []sandbox.Backend{mortalBackend{w.fake, m}},
	})
}

// bury ends what is left of a dead daemon in memory.
func (w *world) bury(d *daemon, m *mortality) {
	m.dead.Store(true)
	m.end()
	<-d.done
	synctest.Wait()
	w.fake.SetHook(nil)
}

// TestKilledAtEveryStep runs each operation in a daemon that is killed at its
// first step, its second, and so on until the operation gets through. The
// next daemon must leave nothing between states and nothing orphaned, and
// must keep what was promised.
func TestKilledAtEveryStep(t *testing.T) {
	tests := []struct {
		name  string
		setup func(t *testing.T, w *world, d *daemon)          // by a daemon that lives
		do    func(w *world, d *daemon) (done bool, err error) // by the one that dies
		want  func(t *testing.T, w *world, d *daemon, done bool)
	}{
		{
			name: "create",
			do: func(_ *world, d *daemon) (bool, error) {
				_, err := d.Create(context.Background(), ann, sandbox.Spec{Name: "web"})
				return err == nil, err
			},
			want: func(t *testing.T, _ *world, d *daemon, done bool) {
				if done {
					wantState(t, d, "web", sandbox.StateRunning, "")
					return
				}
				if sb, err := d.Get(t.Context(), ann, "web"); err == nil && sb.State != sandbox.StateRunning {
					t.Errorf("a create that was never answered left %+v", sb)
				}
			},
		},
		{
			name: "start",
			setup: func(t *testing.T, _ *world, d *daemon) {
				create(t, d, sandbox.Spec{Name: "web"})
				d.Stop(t.Context(), ann, "web")
			},
			do: func(_ *world, d *daemon) (bool, error) {
				_, err := d.Start(context.Background(), ann, "web")
				return err == nil, err
			},
			want: func(t *testing.T, _ *world, d *daemon, done bool) {
				if sb := get(t, d, "web"); done && sb.State != sandbox.StateRunning {
					t.Errorf("web is %s, want running", sb.State)
				}
			},
		},
		{
			name:  "stop",
			setup: func(t *testing.T, _ *world, d *daemon) { create(t, d, sandbox.Spec{Name: "web"}) },
			do: func(_ *world, d *daemon) (bool, error) {
				_, err := d.Stop(context.Background(), ann, "web")
				return err == nil, err
			},
			want: func(t *testing.T, _ *world, d *daemon, done bool) {
				if sb := get(t, d, "web"); done && sb.State != sandbox.StateStopped {
					t.Errorf("web is %s, want stopped", sb.State)
				}
			},
		},
		{
			name:  "remove",
			setup: func(t *testing.T, _ *world, d *daemon) { create(t, d, sandbox.Spec{Name: "web"}) },
			do: func(_ *world, d *daemon) (bool, error) {
				err := d.Remove(context.Background(), ann, "web", true)
				return err == nil, err
			},
			want: func(t *testing.T, w *world, d *daemon, done bool) {
				if sb, err := d.Get(t.Context(), ann, "web"); err == nil {
					if done {
						t.Errorf("a removed sandbox is %s", sb.State)
					}
					if w.fake.Starts(sb.ID) != 1 {
						t.Error("a half-removed sandbox was kept without its box")
					}
				}
			},
		},
		{
			name: "death-of-the-box",
			setup: func(t *testing.T, _ *world, d *daemon) {
				create(t, d, sandbox.Spec{Name: "web"})
			},
			do: func(w *world, d *daemon) (bool, error) {
				w.fake.Die(w.fake.Running()[0], sandbox.EndOutOfMemory)
				synctestWait()
				return true, nil
			},
			want: func(t *testing.T, _ *world, d *daemon, _ bool) {
				wantState(t, d, "web", sandbox.StateStopped, sandbox.EndOutOfMemory)
			},
		},
		{
			name: "expiry",
			setup: func(t *testing.T, _ *world, d *daemon) {
				create(t, d, sandbox.Spec{Name: "web", TTL: time.Minute})
				create(t, d, sandbox.Spec{Name: "gone", TTL: time.Minute, OnExpiry: sandbox.OnExpiryRemove})
			},
			do: func(*world, *daemon) (bool, error) { time.Sleep(time.Minute); synctestWait(); return true, nil },
			want: func(t *testing.T, _ *world, d *daemon, _ bool) {
				wantState(t, d, "web", sandbox.StateStopped, sandbox.EndExpired)
				wantGone(t, d, "gone")
			},
		},
		{
			name: "finish-with-changes",
			setup: func(t *testing.T, w *world, d *daemon) {
				sb := create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: cow()})
				w.fake.SetChanges(sb.ID, []byte("M a.txt"))
			},
			do: func(_ *world, d *daemon) (bool, error) {
				_, err := d.Finish(context.Background(), ann, "run")
				return err == nil, err
			},
			want: func(t *testing.T, _ *world, d *daemon, _ bool) {
				if sb := get(t, d, "run"); sb.State != sandbox.StateStopped || !sb.Kept || sb.Spec.Ephemeral {
					t.Errorf("kept %+v", sb)
				}
			},
		},
		{
			name: "finish-without-changes",
			setup: func(t *testing.T, _ *world, d *daemon) {
				create(t, d, sandbox.Spec{Name: "run", Ephemeral: true, Workspace: cow()})
			},
			do: func(_ *world, d *daemon) (bool, error) {
				_, err := d.Finish(context.Background(), ann, "run")
				return err == nil, err
			},
			want: func(t *testing.T, _ *world, d *daemon, _ bool) { wantGone(t, d, "run") },
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			steps := 0
			for died := true; died; {
				if steps++; steps > 100 {
					t.Fatal("the operation never got through")
				}
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					if tc.setup != nil {
						d := w.boot(t)
						tc.setup(t, w, d)
						d.shutdown()
					}
					d, m := w.bootMortal(t, steps)
					var done bool
					var err error
					go func() { done, err = tc.do(w, d) }()
					pass(2 * time.Second)
					if tc.name == "expiry" {
						pass(time.Minute)
					}
					died = m.dead.Load()
					if !died && (!done || err != nil) {
						t.Errorf("not killed, and yet done = %v, %v", done, err)
					}
					w.bury(d, m)

					d = w.boot(t)
					pass(2 * time.Minute)
					w.check(t)
					tc.want(t, w, d, done)
					d.shutdown()
					if t.Failed() {
						t.Logf("killed at step %d", steps)
					}
				})
				if t.Failed() {
					return
				}
			}
			if steps < 6 {
				t.Errorf("only %d steps: the test does not see them", steps)
			}
		})
	}
}

// synctestWait lets others of the bubble get as far as they do at this moment.
func synctestWait() { time.Sleep(1) }

// TestKilledWhileItAdopts kills the daemon that cleans up after another, at
// every step too.
func TestKilledWhileItAdopts(t *testing.T) {
	for first := 1; first < 12; first += 2 {
		steps := 0
		for died := true; died; {
			steps++
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				d := w.boot(t)
				create(t, d, sandbox.Spec{Name: "stays"})
				create(t, d, sandbox.Spec{Name: "goes"})
				d.shutdown()
				w.fake.Plant("sb_aaaaaaaaaaaaaaaaaaaa")

				d, m := w.bootMortal(t, first)
				go d.Remove(context.Background(), ann, "goes", true)
				go d.Create(context.Background(), ann, sandbox.Spec{Name: "new"})
				pass(time.Second)
				w.bury(d, m)

				m = newMortality(steps)
				d = w.bootMortally(t, m)
				pass(time.Minute)
				died = m.dead.Load()
				w.bury(d, m)

				d = w.boot(t)
				pass(time.Minute)
				w.check(t)
				if sb := get(t, d, "stays"); sb.State != sandbox.StateRunning || sb.Starts != 1 {
					t.Errorf("a bystander is %+v", sb)
				}
				d.shutdown()
			})
			if t.Failed() {
				t.Fatalf("killed at step %d, then at step %d", first, steps)
			}
		}
	}
}

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
		w.check(t) // the planted box is gone
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

// fullStore refuses every Put while it is full.
type fullStore struct {
	sandbox.Store
	full atomic.Bool
}

func (s *fullStore) Put(ctx context.Context, sb *sandbox.Sandbox) error {
	if s.full.Load() {
		return sandbox.Errorf(sandbox.Exhausted, "the disk is full")
	}
	return s.Store.Put(ctx, sb)
}

func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := &fullStore{Store: &w.store}
		d := w.bootWith(t, sandbox.Options{Store: s, Backends: []sandbox.Backend{w.fake}})
		web := create(t, d, sandbox.Spec{Name: "web"})
		create(t, d, sandbox.Spec{Name: "old"})
		dying := create(t, d, sandbox.Spec{Name: "dying"})
		d.Stop(t.Context(), ann, "old")
		s.full.Store(true)
		calls := map[string]error{"Remove": d.Remove(t.Context(), ann, "web", true)}
		_, calls["Create"] = d.Create(t.Context(), ann, sandbox.Spec{Name: "new"})
		_, calls["Start"] = d.Start(t.Context(), ann, "old")
		_, calls["Stop"] = d.Stop(t.Context(), ann, "web")
		_, calls["SetTTL"] = d.SetTTL(t.Context(), ann, "web", time.Hour)
		for name, err := range calls {
			wantKind(t, name, err, sandbox.Exhausted)
		}
		wantGone(t, d, "new")
		wantState(t, d, "web", sandbox.StateRunning, "")
		wantState(t, d, "old", sandbox.StateStopped, sandbox.EndStopped)
		if got := w.fake.Starts(web.ID); got != 1 || len(w.fake.Running()) != 2 {
			t.Errorf("a refused change was acted on: %d starts, running %v", got, w.fake.Running())
		}
		w.fake.Die(dying.ID, sandbox.EndCrashed)
		pass(time.Minute)
		s.full.Store(false)
		pass(time.Minute)
		wantState(t, d, "dying", sandbox.StateStopped, sandbox.EndCrashed)
		d.shutdown()
		w.check(t)
	})
}

// secondPutFails is a store that takes the first Put and no other until told.
type secondPutFails struct {
	sandbox.Store
	puts atomic.Int64
}

func (s *secondPutFails) Put(ctx context.Context, sb *sandbox.Sandbox) error {
	if s.puts.Add(1) > 1 {
		return fmt.Errorf("put: %w", errBoom)
	}
	return s.Store.Put(ctx, sb)
}

// TestCreateThatCannotBeWrittenDown: the box is up and its record can't say
// so, nor that it is to be removed. It goes all the same.
func TestCreateThatCannotBeWrittenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := &secondPutFails{Store: &w.store}
		d := w.bootWith(t, sandbox.Options{Store: s, Backends: []sandbox.Backend{w.fake}})
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "web"})
		wantKind(t, "Create", err, sandbox.Internal)
		wantGone(t, d, "web")
		d.shutdown()
		w.check(t)
	})
}
