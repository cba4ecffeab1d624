package sandbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// gateKilled are operations on sandboxes with a network, and what must be so
// after the daemon died in the middle of one and another came.
var gateKilled = []struct {
	name  string
	setup func(t *testing.T, w *gateWorld, d *daemon)
	do    func(w *gateWorld, d *daemon) (done bool, err error)
	want  func(t *testing.T, w *gateWorld, d *daemon, done bool)
}{
	{
		name: "create",
		do: func(_ *gateWorld, d *daemon) (bool, error) {
			_, err := d.Create(context.Background(), ann, networked("web"), nil)
			return err == nil, err
		},
		want: func(t *testing.T, _ *gateWorld, d *daemon, done bool) {
			if done {
				wantState(t, d, "web", sandbox.StateRunning, "")
			}
		},
	},
	{
		name: "start",
		setup: func(t *testing.T, _ *gateWorld, d *daemon) {
			create(t, d, networked("web"))
			d.Stop(t.Context(), ann, "web")
		},
		do: func(_ *gateWorld, d *daemon) (bool, error) {
			_, err := d.Start(context.Background(), ann, "web")
			return err == nil, err
		},
		want: func(t *testing.T, _ *gateWorld, d *daemon, done bool) {
			if sb := get(t, d, "web"); done && sb.State != sandbox.StateRunning {
				t.Errorf("web is %s, want running", sb.State)
			}
		},
	},
	{
		name:  "stop",
		setup: func(t *testing.T, _ *gateWorld, d *daemon) { create(t, d, networked("web")) },
		do: func(_ *gateWorld, d *daemon) (bool, error) {
			_, err := d.Stop(context.Background(), ann, "web")
			return err == nil, err
		},
		want: func(t *testing.T, _ *gateWorld, d *daemon, done bool) {
			if sb := get(t, d, "web"); done && sb.State != sandbox.StateStopped {
				t.Errorf("web is %s, want stopped", sb.State)
			}
		},
	},
	{
		name:  "remove",
		setup: func(t *testing.T, _ *gateWorld, d *daemon) { create(t, d, networked("web")) },
		do: func(_ *gateWorld, d *daemon) (bool, error) {
			err := d.Remove(context.Background(), ann, "web", true)
			return err == nil, err
		},
		want: func(t *testing.T, _ *gateWorld, d *daemon, done bool) {
			if done {
				wantGone(t, d, "web")
			}
		},
	},
	{
		name:  "set-policy",
		setup: func(t *testing.T, _ *gateWorld, d *daemon) { create(t, d, networked("web")) },
		do: func(_ *gateWorld, d *daemon) (bool, error) {
			_, err := d.SetPolicy(context.Background(), ann, "web", policy.Policy{})
			return err == nil, err
		},
		want: func(t *testing.T, w *gateWorld, d *daemon, done bool) {
			sb := get(t, d, "web")
			if rules := len(sb.Spec.Policy.Rules); done && rules != 0 {
				t.Errorf("a policy that was set is forgotten: %d rules", rules)
			}
			if sb.State != sandbox.StateRunning || w.fake.Starts(sb.ID) != 1 {
				t.Errorf("a change of policy left %s, started %d times", sb.State, w.fake.Starts(sb.ID))
			}
		},
	},
	{
		name:  "death-of-the-box",
		setup: func(t *testing.T, _ *gateWorld, d *daemon) { create(t, d, networked("web")) },
		do: func(w *gateWorld, d *daemon) (bool, error) {
			w.fake.Die(w.fake.Running()[0], sandbox.EndOutOfMemory)
			settle()
			return true, nil
		},
		want: func(t *testing.T, _ *gateWorld, d *daemon, _ bool) {
			wantState(t, d, "web", sandbox.StateStopped, sandbox.EndOutOfMemory)
		},
	},
}

// TestGateKilledAtEveryStep: a daemon that dies at any step of anything leaves
// no gate that its successor does not take over or take away, and none that
// goes by another policy than the record.
func TestGateKilledAtEveryStep(t *testing.T) {
	for _, tc := range gateKilled {
		t.Run(tc.name, func(t *testing.T) {
			n := 0
			for died := true; died; {
				if n++; n > 100 {
					t.Fatal("the operation never got through")
				}
				synctest.Test(t, func(t *testing.T) {
					w := newGateWorld()
					if tc.setup != nil {
						d := w.boot(t)
						tc.setup(t, w, d)
						d.shutdown()
					}
					m := newMortality(-1)
					d := w.bootMortally(t, m, new(faults))
					pass(time.Second)
					m.left.Store(int64(n))
					var done bool
					var err error
					go func() { done, err = tc.do(w, d) }()
					pass(2 * time.Second)
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
				})
				if t.Failed() {
					t.Fatalf("killed at step %d", n)
				}
			}
			if n < 6 {
				t.Errorf("only %d steps: the test does not see them", n)
			}
		})
	}
}

// TestGateKilledWhileItAdopts kills the daemon that takes over from another.
func TestGateKilledWhileItAdopts(t *testing.T) {
	for first := 1; first < 20; first += 3 {
		n := 0
		for died := true; died; {
			n++
			synctest.Test(t, func(t *testing.T) {
				w := newGateWorld()
				d := w.boot(t)
				create(t, d, networked("stays"))
				create(t, d, networked("goes"))
				d.shutdown()
				w.gate.Plant("sb_aaaaaaaaaaaaaaaaaaaa")

				m := newMortality(first)
				d = w.bootMortally(t, m, new(faults))
				go d.Remove(context.Background(), ann, "goes", true)
				go d.Create(context.Background(), ann, networked("new"), nil)
				pass(time.Second)
				w.bury(d, m)

				m = newMortality(n)
				d = w.bootMortally(t, m, new(faults))
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
				t.Fatalf("killed at step %d, then at step %d", first, n)
			}
		}
	}
}
