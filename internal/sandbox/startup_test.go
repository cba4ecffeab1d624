package sandbox_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// bootStarting boots a daemon that runs startups by run.
func (w *world) bootStarting(t fataler, run sandbox.StartFunc) *daemon {
	t.Helper()
	return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, Startup: run})
}

// A startup is run at each start, before that is done, and in an instance that runs.
func TestStartup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, runs := newWorld(), 0
		d := w.bootStarting(t, func(_ context.Context, sb *sandbox.Sandbox, _ func(context.Context) (net.Conn, error)) error {
			if len(w.fake.Running()) != 1 || sb.Spec.Startup.Command != "serve" {
				t.Errorf("run %d: with %v running, %+v", runs, w.fake.Running(), sb.Spec.Startup)
			}
			runs++
			return nil
		})
		defer d.shutdown()
		sb, err := d.Create(t.Context(), ann, sandbox.Spec{Startup: &sandbox.Startup{Command: "serve"}}, nil)
		if err != nil || runs != 1 {
			t.Fatalf("Create = %v after %d runs", err, runs)
		}
		if _, err := d.Stop(t.Context(), ann, sb.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Start(t.Context(), ann, sb.ID); err != nil || runs != 2 {
			t.Fatalf("Start = %v after %d runs", err, runs)
		}
		if _, err := d.Create(t.Context(), ann, sandbox.Spec{}, nil); err != nil || runs != 2 {
			t.Fatalf("a create without one = %v after %d runs", err, runs)
		}
	})
}

// A startup that fails leaves nothing of a create, and stops what is restarted.
func TestStartupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var fail error
		d := w.bootStarting(t, func(context.Context, *sandbox.Sandbox, func(context.Context) (net.Conn, error)) error { return fail })
		defer d.shutdown()
		spec := sandbox.Spec{Startup: &sandbox.Startup{Command: "serve"}}
		sb, err := d.Create(t.Context(), ann, spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		fail = sandbox.Errorf(sandbox.Unavailable, "it ended: no such port")
		if _, err := d.Create(t.Context(), ann, spec, nil); err == nil || !strings.Contains(err.Error(), "no such port") {
			t.Errorf("Create = %v", err)
		}
		if all, _ := d.List(t.Context(), ann, sandbox.Filter{}); len(all) != 1 || len(w.fake.Running()) != 1 {
			t.Errorf("left over: %d sandboxes, %v", len(all), w.fake.Running())
		}
		if _, err := d.Stop(t.Context(), ann, sb.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Start(t.Context(), ann, sb.ID); err == nil || !strings.Contains(err.Error(), "no such port") {
			t.Errorf("Start = %v", err)
		}
		if got, err := d.Get(t.Context(), ann, sb.ID); err != nil || got.State != sandbox.StateStopped || len(w.fake.Running()) != 0 {
			t.Errorf("after a failed start: %v, %v", got, err)
		}
	})
}

// A startup that takes too long is ended.
func TestStartupTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootStarting(t, func(ctx context.Context, _ *sandbox.Sandbox, _ func(context.Context) (net.Conn, error)) error {
			<-ctx.Done()
			return errors.New("cut")
		})
		defer d.shutdown()
		begun := time.Now()
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Startup: &sandbox.Startup{Command: "x", Timeout: 3 * time.Second}}, nil)
		if took := time.Since(begun); took != 3*time.Second || sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "within 3s") {
			t.Errorf("Create = %v after %v", err, took)
		}
	})
}
