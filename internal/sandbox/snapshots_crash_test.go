package sandbox_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// mortalSaver is a mortalBackend that saves.
type mortalSaver struct{ mortalBackend }

func (b mortalSaver) Save(ctx context.Context, sb *sandbox.Sandbox, dir string) (sandbox.Saved, error) {
	b.step()
	s, err := b.Backend.Capabilities().Snapshots.Save(ctx, sb, dir)
	b.step()
	return s, err
}

func (b mortalSaver) Capabilities() sandbox.Capabilities {
	c := b.Backend.Capabilities()
	c.Snapshots = b
	return c
}

// mortalSnapshots are snapshots as a mortal process sees them.
type mortalSnapshots struct {
	sandbox.Snapshots
	*mortality
}

func (s mortalSnapshots) Keep(
	ctx context.Context, x sandbox.Snapshot, fill func(context.Context, string) (sandbox.Saved, error),
) (sandbox.Snapshot, error) {
	s.step()
	kept, err := s.Snapshots.Keep(ctx, x, fill)
	s.step()
	return kept, err
}

func (s mortalSnapshots) Put(ctx context.Context, x sandbox.Snapshot) error {
	s.step()
	err := s.Snapshots.Put(ctx, x)
	s.step()
	return err
}

func (s mortalSnapshots) Delete(ctx context.Context, id string) error {
	s.step()
	err := s.Snapshots.Delete(ctx, id)
	s.step()
	return err
}

// mortalLife boots a daemon that dies at its n-th step from now.
func (w *saving) mortalLife(t fataler, n int) (*daemon, *mortality) {
	t.Helper()
	m := newMortality(-1)
	hook := func(_ context.Context, op sandboxtest.Op, _ string) error {
		switch op {
		case sandboxtest.Start, sandboxtest.Stop, sandboxtest.Remove, sandboxtest.Save, sandboxtest.SnapshotKeep,
			sandboxtest.SnapshotPut, sandboxtest.SnapshotDelete:
			m.step()
		}
		return nil
	}
	w.fake.SetHook(hook)
	w.kept.SetHook(hook)
	d := w.bootIn(m.life, t, sandbox.Options{
		Store: mortalStore{&w.store, m}, Snapshots: mortalSnapshots{w.kept, m},
		Backends: []sandbox.Backend{mortalSaver{mortalBackend{w.fake, m}}},
	})
	m.left.Store(int64(n))
	return d, m
}

// killedInSnapshots are operations on snapshots in which a daemon is killed.
// Before each of them web runs, over lies over the snapshot a of it, and no
// snapshot lies over a.
var killedInSnapshots = []struct {
	name string
	do   func(d *daemon, a string) error
	want func(t *testing.T, w *saving, d *daemon, a string, done bool)
}{
	{
		name: "snapshot",
		do: func(d *daemon, _ string) error {
			_, err := d.Snapshot(context.Background(), ann, "over")
			return err
		},
		want: func(t *testing.T, _ *saving, d *daemon, a string, done bool) {
			list, err := d.Snapshots(t.Context(), ann)
			if err != nil || done && len(list) != 2 {
				t.Errorf("snapshots %v, %v", list, err)
			}
			for _, s := range list {
				if s.ID != a && s.Parent != a {
					t.Errorf("kept %+v", s)
				}
				create(t, d, sandbox.Spec{Snapshot: s.ID})
			}
			wantState(t, d, "over", sandbox.StateRunning, "")
		},
	},
	{
		name: "create",
		do: func(d *daemon, a string) error {
			_, err := d.Create(context.Background(), ann, sandbox.Spec{Name: "new", Snapshot: a}, nil)
			return err
		},
		want: func(t *testing.T, w *saving, d *daemon, a string, done bool) {
			sb, err := d.Get(t.Context(), ann, "new")
			if done && (err != nil || sb.Spec.Snapshot != a) {
				t.Errorf("new is %+v, %v", sb, err)
			}
			w.wantKept(t, a)
		},
	},
	{
		name: "remove-what-is-in-use",
		do:   func(d *daemon, a string) error { return d.RemoveSnapshot(context.Background(), ann, a) },
		want: func(t *testing.T, w *saving, d *daemon, a string, done bool) {
			w.wantKept(t, a)
			if _, err := d.GetSnapshot(t.Context(), ann, a); done && sandbox.KindOf(err) != sandbox.NotFound {
				t.Errorf("a removed snapshot is there: %v", err)
			}
			d.Stop(t.Context(), ann, "over")
			if _, err := d.Start(t.Context(), ann, "over"); err != nil {
				t.Errorf("what lies over it does not start: %v", err)
			}
		},
	},
	{
		name: "remove-both",
		do: func(d *daemon, a string) error {
			if err := d.RemoveSnapshot(context.Background(), ann, a); err != nil {
				return err
			}
			return d.Remove(context.Background(), ann, "over", true)
		},
		want: func(t *testing.T, w *saving, d *daemon, a string, done bool) {
			if done {
				w.wantKept(t)
				return
			}
			_, gone := d.GetSnapshot(t.Context(), ann, a)
			_, err := d.Get(t.Context(), ann, "over")
			if left := slices.Contains(w.kept.IDs(), a); left != (gone == nil || err == nil) {
				t.Errorf("the files are there: %v; the snapshot: %v; what lies over it: %v", left, gone, err)
			}
		},
	},
}

// TestKilledInSnapshots runs each operation in a daemon that is killed at its
// first step, its second, and so on until it gets through: the next daemon
// keeps what was promised, and no file that nothing leads to.
func TestKilledInSnapshots(t *testing.T) {
	for _, tc := range killedInSnapshots {
		t.Run(tc.name, func(t *testing.T) {
			steps := 0
			for died := true; died && !t.Failed(); {
				if steps++; steps > 100 {
					t.Fatal("the operation never got through")
				}
				synctest.Test(t, func(t *testing.T) {
					w := newSaving()
					d := w.life(t)
					create(t, d, sandbox.Spec{Name: "web"})
					a := snap(t, d, "web").ID
					create(t, d, sandbox.Spec{Name: "over", Snapshot: a})
					d.shutdown()

					d, m := w.mortalLife(t, steps)
					var done bool
					go func() { done = tc.do(d, a) == nil }()
					pass(2 * time.Second)
					if died = m.dead.Load(); !died && !done {
						t.Error("not killed, and yet not done")
					}
					w.bury(d, m)
					w.kept.SetHook(nil)

					d = w.life(t)
					pass(2 * time.Minute)
					w.check(t)
					tc.want(t, w, d, a, done)
					d.shutdown()
					w.check(t)
				})
			}
			if t.Failed() {
				t.Logf("killed at step %d", steps)
			}
			if steps < 4 {
				t.Errorf("only %d steps: the test does not see them", steps)
			}
		})
	}
}
