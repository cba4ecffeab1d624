package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

func slow(op sandboxtest.Op, by time.Duration) func(context.Context, sandboxtest.Op, string) error {
	return func(ctx context.Context, o sandboxtest.Op, _ string) error {
		if o != op {
			return nil
		}
		select {
		case <-time.After(by):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestFailedStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "old"})
		d.Stop(t.Context(), ann, "old")
		w.fake.SetHook(failing(sandboxtest.Start))
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "new"}, nil)
		wantKind(t, "Create", err, sandbox.Internal)
		if !errors.Is(err, errBoom) || strings.Contains(err.Error(), "boom") {
			t.Errorf("Create = %q: the cause is to be wrapped and not shown", err)
		}
		wantGone(t, d, "new")
		_, err = d.Start(t.Context(), ann, "old")
		wantKind(t, "Start", err, sandbox.Internal)
		wantState(t, d, "old", sandbox.StateStopped, sandbox.EndStopped)
		w.check(t)
		w.fake.SetHook(nil)
		if _, err := d.Start(t.Context(), ann, "old"); err != nil {
			t.Errorf("Start: %v", err)
		}
	})
}

func failing(ops ...sandboxtest.Op) func(context.Context, sandboxtest.Op, string) error {
	return func(_ context.Context, op sandboxtest.Op, _ string) error {
		if slices.Contains(ops, op) {
			return errBoom
		}
		return nil
	}
}

// TestUndoThatFailsIsRetried: nothing can be stopped or removed for a while.
func TestUndoThatFailsIsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		w.fake.SetHook(failing(sandboxtest.Start, sandboxtest.Stop, sandboxtest.Remove))
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "new"}, nil)
		wantKind(t, "Create", err, sandbox.Internal)
		pass(time.Minute)
		_, err = d.Create(t.Context(), ann, sandbox.Spec{Name: "new"}, nil)
		wantKind(t, "Create of the name that is not free yet", err, sandbox.Conflict)
		w.fake.SetHook(nil)
		pass(time.Minute)
		wantGone(t, d, "new")
		w.check(t)
		create(t, d, sandbox.Spec{Name: "new"})
	})
}

func TestStopThatFailsIsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		create(t, d, sandbox.Spec{Name: "doomed"})
		w.fake.SetHook(failing(sandboxtest.Stop))
		_, err := d.Stop(t.Context(), ann, "web")
		wantKind(t, "Stop", err, sandbox.Internal)
		wantState(t, d, "web", sandbox.StateStopping, sandbox.EndStopped)
		_, err = d.Start(t.Context(), ann, "web")
		wantKind(t, "Start", err, sandbox.Internal)
		wantKind(t, "Remove", d.Remove(t.Context(), ann, "doomed", true), sandbox.Internal)
		_, err = d.Dial(t.Context(), ann, "web", 80)
		wantKind(t, "Dial", err, sandbox.Unavailable)
		w.fake.SetHook(nil)
		pass(time.Minute)
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndStopped)
		wantGone(t, d, "doomed")
	})
}

func TestCancelledCreateIsUndone(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world, d *daemon) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			w.fake.SetHook(slow(sandboxtest.Start, time.Minute))
			if ignores {
				w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
					if op == sandboxtest.Start {
						time.Sleep(time.Minute)
					}
					return nil
				})
			}
			_, err := d.Create(ctx, ann, sandbox.Spec{Name: "web"}, nil)
			wantKind(t, "Create", err, sandbox.Unavailable)
			wantGone(t, d, "web")
			w.check(t)
			w.fake.SetHook(nil)
		})
	}
}

// patientStore writes although the context has ended.
type patientStore struct{ sandbox.Store }

func (s patientStore) Put(ctx context.Context, sb *sandbox.Sandbox) error {
	return s.Store.Put(context.WithoutCancel(ctx), sb)
}

// TestCreateTooLateForItsCaller: nobody was told of the instance, so it goes.
func TestCreateTooLateForItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootWith(t, sandbox.Options{Store: patientStore{&w.store}, Backends: []sandbox.Backend{w.fake}})
		ctx, cancel := context.WithCancel(t.Context())
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			if op == sandboxtest.Start {
				cancel()
			}
			return nil
		})
		_, err := d.Create(ctx, ann, sandbox.Spec{Name: "web"}, nil)
		wantKind(t, "Create", err, sandbox.Unavailable)
		wantGone(t, d, "web")
		d.shutdown()
		w.check(t)
	})
}

func TestCancelledStartIsUndone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		d.Stop(t.Context(), ann, "web")
		w.fake.SetHook(slow(sandboxtest.Start, time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Start(ctx, ann, "web")
		wantKind(t, "Start", err, sandbox.Unavailable)
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndStopped)
	})
}

func TestCancelledStopIsEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		w.fake.SetHook(slow(sandboxtest.Stop, time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Stop(ctx, ann, "web"); err != nil {
			t.Errorf("Stop: %v", err)
		}
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndStopped)
	})
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		w.fake.SetHook(slow(sandboxtest.Start, time.Hour))
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { _, err = d.Create(t.Context(), ann, sandbox.Spec{Name: "new"}, nil) })
		synctest.Wait()
		d.Close()
		wg.Wait()
		wantKind(t, "Create", err, sandbox.Unavailable)
		_, err = d.Get(t.Context(), ann, "web")
		wantKind(t, "Get after Close", err, sandbox.Unavailable)
		_, err = d.Stop(t.Context(), ann, "web")
		wantKind(t, "Stop after Close", err, sandbox.Unavailable)
		w.check(t) // web runs on, and of new there is nothing
		if got := len(w.fake.Running()); got != 1 {
			t.Errorf("%d instances run, want 1", got)
		}
	})
}

// TestNothingSecretIsLogged runs a life with failures and looks through the log.
func TestNothingSecretIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newWorld()
		d := w.bootWith(t, sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{w.fake},
			Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		sb := create(t, d, sandbox.Spec{Name: "web", Env: map[string]string{"KEY": "hunter2"}})
		w.fake.SetHook(failing(sandboxtest.Stop, sandboxtest.Start))
		d.Stop(t.Context(), ann, "web")
		d.Create(t.Context(), ann, sandbox.Spec{Name: "new", Env: map[string]string{"KEY": "hunter2"}}, nil)
		w.fake.SetHook(nil)
		pass(time.Minute)
		d.shutdown()
		if !strings.Contains(log.String(), sb.ID) {
			t.Error("the log does not name the sandbox: the search proves nothing")
		}
		for _, secret := range []string{sb.Token, "hunter2"} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log shows %q", secret)
			}
		}
	})
}
