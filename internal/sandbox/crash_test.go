package sandbox_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"slices"
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

func (b mortalBackend) Changes(ctx context.Context, sb *sandbox.Sandbox, o sandbox.ChangesOptions, w io.Writer) error {
	// Called on a goroutine whose end is waited for: the dead get an error.
	if b.dead.Load() {
		return errBoom
	}
	return b.Backend.Changes(ctx, sb, o, w)
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

// killedIn boots a daemon over one wall that dies at step n of do: at a write to the store, or in that operation of the
// wall. It reports whether do was answered before that, with success.
func (w *world) killedIn(t *testing.T, n int, b sandbox.Backend, in sandboxtest.Op, do func(d *daemon) error) (done bool) {
	t.Helper()
	m := newMortality(-1)
	d := w.bootIn(m.life, t, sandbox.Options{Store: mortalStore{&w.store, m}, Backends: []sandbox.Backend{b}})
	w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
		if op == in {
			m.step()
		}
		return nil
	})
	m.left.Store(int64(n))
	answered := make(chan bool, 1)
	go func() {
		ok := false
		defer func() { answered <- ok }() // step ends this goroutine
		ok = do(d) == nil
	}()
	done = <-answered
	w.bury(d, m)
	return done
}

// bury ends what is left of a dead daemon in memory.
func (w *world) bury(d *daemon, m *mortality) {
	m.dead.Store(true)
	m.end()
	<-d.done
	synctest.Wait()
	w.fake.SetHook(nil)
}

// killedCase is an operation that a daemon is killed in.
type killedCase struct {
	name  string
	setup func(t *testing.T, w *world, d *daemon)          // by a daemon that lives
	do    func(w *world, d *daemon) (done bool, err error) // by the one that dies
	want  func(t *testing.T, w *world, d *daemon, done bool)
}

// killedWhileAsked are operations that a caller waits for.
var killedWhileAsked = []killedCase{
	{
		name: "create",
		do: func(_ *world, d *daemon) (bool, error) {
			_, err := d.Create(context.Background(), ann, sandbox.Spec{Name: "web"}, nil)
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
					t.Error("a half-removed sandbox was kept without its instance")
				}
			}
		},
	},
}

// killedAlone are ends that a sandbox comes to.
var killedAlone = []killedCase{
	{
		name: "death-of-the-box",
		setup: func(t *testing.T, _ *world, d *daemon) {
			create(t, d, sandbox.Spec{Name: "web"})
		},
		do: func(w *world, d *daemon) (bool, error) {
			w.fake.Die(w.fake.Running()[0], sandbox.EndOutOfMemory)
			settle()
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
		do: func(*world, *daemon) (bool, error) { time.Sleep(time.Minute); settle(); return true, nil },
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

// TestKilledAtEveryStep runs each operation in a daemon that is killed at its
// first step, its second, and so on until the operation gets through. The
// next daemon must leave nothing between states and nothing orphaned, and
// must keep what was promised.
func TestKilledAtEveryStep(t *testing.T) {
	for _, tc := range slices.Concat(killedWhileAsked, killedAlone) {
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

// settle lets others of the bubble get as far as they do at this moment.
func settle() { time.Sleep(time.Nanosecond) }

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
				go d.Create(context.Background(), ann, sandbox.Spec{Name: "new"}, nil)
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
