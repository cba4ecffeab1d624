package sandbox_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestSetUp: what a create asks for is done once, in an instance that runs and before the sandbox counts as
// made; what it finds out is remembered, also by a later daemon.
func TestSetUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, runs := newWorld(), 0
		d := w.bootStarting(t, nil)
		defer d.shutdown()
		ctx := sandbox.WithSetUp(t.Context(), func(_ context.Context, sb *sandbox.Sandbox, _ func(context.Context) (net.Conn, error), note func(sandbox.Event)) (*sandbox.Agent, error) {
			if runs++; len(w.fake.Running()) != 1 || sb.State != sandbox.StateCreated {
				t.Errorf("with %v running, in state %s", w.fake.Running(), sb.State)
			}
			note(sandbox.Event{Type: "setup", Message: "done"})
			return &sandbox.Agent{Provider: "claude", Base: "abc"}, nil
		})
		sb, err := d.Create(ctx, ann, sandbox.Spec{}, nil)
		if err != nil || runs != 1 || sb.Spec.Agent == nil || sb.Spec.Agent.Base != "abc" {
			t.Fatalf("Create = %+v, %v after %d runs", sb, err, runs)
		}
		events, err := d.Events(t.Context(), ann, sb.ID)
		if err != nil || len(events) < 2 || events[1].Type != "setup" {
			t.Errorf("events %+v, %v", events, err)
		}
		if _, err := d.Stop(t.Context(), ann, sb.ID); err != nil {
			t.Fatal(err)
		}
		again, err := d.Start(ctx, ann, sb.ID)
		if err != nil || runs != 1 || again.Spec.Agent.Base != "abc" {
			t.Errorf("Start = %+v, %v after %d runs", again, err, runs)
		}
		set, err := d.SetUp(t.Context(), ann, sb.ID, func(context.Context, *sandbox.Sandbox, func(context.Context) (net.Conn, error), func(sandbox.Event)) (*sandbox.Agent, error) {
			return &sandbox.Agent{Provider: "claude", Base: "def"}, nil
		})
		if err != nil || set.Spec.Agent.Base != "def" {
			t.Errorf("SetUp = %+v, %v", set, err)
		}
	})
}

// TestSetUpFails: nothing is left of a create whose set-up fails, or whose caller leaves meanwhile.
func TestSetUpFails(t *testing.T) {
	for name, fail := range map[string]func(cancel func()) error{
		"it-fails":      func(func()) error { return sandbox.Errorf(sandbox.Invalid, "x does not take its credentials") },
		"caller-leaves": func(cancel func()) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				d := w.bootStarting(t, nil)
				defer d.shutdown()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx = sandbox.WithSetUp(ctx, func(context.Context, *sandbox.Sandbox, func(context.Context) (net.Conn, error), func(sandbox.Event)) (*sandbox.Agent, error) {
					return nil, fail(cancel)
				})
				_, err := d.Create(ctx, ann, sandbox.Spec{Name: "web"}, nil)
				if err == nil || name == "it-fails" && err.Error() != "x does not take its credentials" {
					t.Errorf("Create = %v", err)
				}
				if left, _ := d.List(t.Context(), ann, sandbox.Filter{}); len(left) != 0 || len(w.fake.Running()) != 0 {
					t.Errorf("left: %+v, %v", left, w.fake.Running())
				}
			})
		})
	}
}

// withSandbox runs f with a sandbox that was made.
func withSandbox(t *testing.T, f func(t *testing.T, d *daemon, sb *sandbox.Sandbox)) {
	synctest.Test(t, func(t *testing.T) {
		d := newWorld().bootStarting(t, nil)
		defer d.shutdown()
		sb, err := d.Create(t.Context(), ann, sandbox.Spec{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		f(t, d, sb)
	})
}

// TestSetUpOfWhatStopped: only what runs is set up.
func TestSetUpOfWhatStopped(t *testing.T) {
	withSandbox(t, func(t *testing.T, d *daemon, sb *sandbox.Sandbox) {
		never := func(context.Context, *sandbox.Sandbox, func(context.Context) (net.Conn, error), func(sandbox.Event)) (*sandbox.Agent, error) {
			return nil, errors.New("it was run")
		}
		if _, err := d.Stop(t.Context(), ann, sb.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := d.SetUp(t.Context(), ann, sb.ID, never); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("SetUp = %v", err)
		}
	})
}

// TestSetUpHoldsNobodyUp: a sandbox that is set up for ever can be stopped, and removed.
func TestSetUpHoldsNobodyUp(t *testing.T) {
	withSandbox(t, func(t *testing.T, d *daemon, sb *sandbox.Sandbox) {
		_, err := d.SetUp(t.Context(), ann, sb.ID, func(ctx context.Context, _ *sandbox.Sandbox, _ func(context.Context) (net.Conn, error), _ func(sandbox.Event)) (*sandbox.Agent, error) {
			if _, err := d.Stop(ctx, ann, sb.ID); err != nil {
				t.Error(err)
			}
			return &sandbox.Agent{}, nil
		})
		if sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("SetUp of what was stopped meanwhile = %v", err)
		}
		if err := d.Remove(t.Context(), ann, sb.ID, true); err != nil {
			t.Error(err)
		}
	})
}
