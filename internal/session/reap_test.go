package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/session"
)

const ttl = 300 * time.Second

func wantGone(t fataler, d *daemon, key string) {
	t.Helper()
	_, err := d.Get(context.Background(), ann, key)
	wantClass(t, "Get "+key, err, langbot.ClassSessionNotFound)
}

func wantSession(t fataler, d *daemon, key string, asleep bool) {
	t.Helper()
	info, err := d.Get(context.Background(), ann, key)
	if err != nil || info.Asleep != asleep {
		t.Errorf("Get %s = %+v, %v; want asleep %v", key, info, err, asleep)
	}
}

func TestIdleSessionIsRemoved(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		run(t, d, asked("k", "echo x"))
		pass(ttl - time.Second)
		wantSession(t, d, "k", false)
		run(t, d, asked("k", "echo x")) // begins its time anew
		pass(ttl - time.Second)
		wantSession(t, d, "k", false)
		pass(time.Minute)
		wantGone(t, d, "k")
		if boxes, _ := w.fake.Instances(t.Context()); len(boxes) != 0 {
			t.Errorf("boxes %q are left", boxes)
		}
	})
}

func TestTTLPassesDuringACommand(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
		if res := run(t, d, within(asked("k", "sleep 1000"), 2000)); res.Status != sessions.StatusCompleted {
			t.Errorf("Exec = %+v", res)
		}
		wantSession(t, d, "k", false)
		u, err := d.Use(t.Context(), ann, asked("k", ""))
		if err != nil {
			t.Fatal(err)
		}
		pass(3 * ttl)
		wantSession(t, d, "k", false)
		u.Release()
		pass(ttl + time.Minute)
		wantGone(t, d, "k")
	})
}

func TestNotReaped(t *testing.T) {
	t.Run("persistent", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			spec := asked("k", "echo x")
			spec.Persistent = true
			run(t, d, spec)
			pass(24 * time.Hour)
			wantSession(t, d, "k", false)
		})
	})
	t.Run("without-a-ttl", func(t *testing.T) {
		c, never := config(), 0
		c.SessionTTLSec = &never
		inBubble(t, c, func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			pass(24 * time.Hour)
			wantSession(t, d, "k", false)
		})
	})
	t.Run("while-a-process-runs", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			if _, err := d.StartProcess(t.Context(), ann, "k", sessions.ProcessSpec{Command: "serve"}); err != nil {
				t.Fatal(err)
			}
			pass(3 * ttl)
			wantSession(t, d, "k", false)
			if err := d.StopProcess(t.Context(), ann, "k", ""); err != nil {
				t.Fatal(err)
			}
			pass(ttl + time.Minute)
			wantGone(t, d, "k")
		})
	})
}

func TestSleep(t *testing.T) {
	t.Run("wakes-with-its-next-call", func(t *testing.T) {
		c := config()
		c.Limits.MaxSessions = 1
		inBubble(t, c, func(t *testing.T, w *world, d *daemon) {
			run(t, d, asked("k", "touch"))
			pass(ttl + time.Minute)
			wantSession(t, d, "k", true)
			if n := len(w.fake.Running()); n != 0 {
				t.Errorf("%d boxes run", n)
			}
			run(t, d, asked("other", "echo x")) // there is room
			_, err := d.Exec(t.Context(), ann, asked("k", "echo x"))
			wantClass(t, "waking without room", err, langbot.ClassCapacity)
			wantSession(t, d, "k", true)
			if err := d.Delete(t.Context(), ann, "other"); err != nil {
				t.Fatal(err)
			}
			if res := run(t, d, asked("k", "echo back")); string(res.Stdout) != "back\n" {
				t.Errorf("Exec = %+v", res)
			}
			wantSession(t, d, "k", false)
			if m := d.Metrics(); m.Slept != 1 || m.Woken != 1 || m.Created != 2 {
				t.Errorf("metrics %+v", m)
			}
		})
	})
	t.Run("wanted-otherwise", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "touch"))
			pass(ttl + time.Minute)
			spec := asked("k", "echo x")
			spec.CPUs = 2
			if res := run(t, d, spec); len(res.Notices) != 1 || !strings.Contains(res.Notices[0], "anew") {
				t.Errorf("Exec = %+v", res)
			}
		})
	})
	t.Run("for-seven-days", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "touch"))
			pass(7*24*time.Hour - time.Hour)
			wantSession(t, d, "k", true)
			pass(2 * time.Hour)
			wantGone(t, d, "k")
		})
	})
	t.Run("not-at-all", func(t *testing.T) {
		c, none := config(), 0
		c.KeepIdleSec = &none
		inBubble(t, c, func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "touch"))
			pass(ttl + time.Minute)
			wantGone(t, d, "k")
		})
	})
}

func TestSleepEnds(t *testing.T) {
	t.Run("too-many", func(t *testing.T) {
		c := config()
		c.Limits.MaxSleeping = 2
		inBubble(t, c, func(t *testing.T, _ *world, d *daemon) {
			for n := range 4 {
				run(t, d, asked(fmt.Sprint(n), "touch"))
				pass(ttl + time.Minute)
			}
			wantGone(t, d, "0")
			wantGone(t, d, "1")
			wantSession(t, d, "2", true)
			wantSession(t, d, "3", true)
		})
	})
	t.Run("nobody-pushes-out-another's", func(t *testing.T) {
		c := config()
		c.Limits.MaxSleeping = 3
		inBubble(t, c, func(t *testing.T, _ *world, d *daemon) {
			if _, err := d.Exec(t.Context(), bob, asked("bob's", "touch")); err != nil {
				t.Fatal(err)
			}
			pass(ttl + time.Minute)
			for n := range 5 {
				run(t, d, asked(fmt.Sprint(n), "touch"))
				pass(ttl + time.Minute)
			}
			if s, err := d.Get(t.Context(), bob, "bob's"); err != nil || !s.Asleep {
				t.Errorf("the one that sleeps longest, and is its owner's only one = %+v, %v", s, err)
			}
			for n, gone := range []bool{true, true, true, false, false} {
				if _, err := d.Get(t.Context(), ann, fmt.Sprint(n)); (err != nil) != gone {
					t.Errorf("session %d of the other = %v", n, err)
				}
			}
		})
	})
	t.Run("stop-fails", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			run(t, d, asked("k", "touch"))
			w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
				if op == sandboxtest.Stop {
					return errors.New("boom")
				}
				return nil
			})
			pass(ttl + time.Minute)
			wantSession(t, d, "k", false)
			w.fake.SetHook(nil)
			pass(time.Minute)
			wantSession(t, d, "k", true)
		})
	})
}

func TestRemovalThatFailsIsTriedAgain(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		run(t, d, asked("k", "echo x"))
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			if op == sandboxtest.Remove {
				return errors.New("boom")
			}
			return nil
		})
		if err := d.Delete(t.Context(), ann, "k"); err == nil {
			t.Error("Delete succeeded")
		}
		wantGone(t, d, "k")
		w.fake.SetHook(nil)
		pass(2 * time.Minute)
		if boxes, _ := w.fake.Instances(t.Context()); len(boxes) != 0 {
			t.Errorf("boxes %q are left", boxes)
		}
		if rs, _ := w.store.Sessions(t.Context()); len(rs) != 0 {
			t.Errorf("records %+v are left", rs)
		}
		if _, err := d.Exec(t.Context(), ann, asked("k", "echo x")); err != nil {
			t.Error(err)
		}
	})
}

// hourly lets no sandbox of ann's last for more than an hour.
type hourly struct{}

func (hourly) Quota(owner string) sandbox.Quota {
	if owner == ann.Owner {
		return sandbox.Quota{TTL: time.Hour}
	}
	return sandbox.Quota{}
}
func (hourly) Admit(string, time.Time) error        { return nil }
func (hourly) Changed(string, int, bool, time.Time) {}

func TestOwnerWhoseSandboxesMustEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, Quotas: hourly{}},
			session.Options{Store: &w.store, Config: config()})
		spec := asked("k", "echo x")
		spec.Persistent = true
		run(t, d, spec)
		pass(2 * time.Hour)
		if n := len(w.fake.Running()); n != 0 {
			t.Errorf("%d boxes run", n)
		}
		if res := run(t, d, spec); len(res.Notices) != 1 || !strings.Contains(res.Notices[0], "started again") {
			t.Errorf("Exec = %+v", res)
		}
		d.shutdown()
		w.check(t)
	})
}

func TestStatus(t *testing.T) {
	t.Run("available", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			st, err := d.Status(t.Context(), ann)
			if err != nil || st.Backend.Name == nil || *st.Backend.Name != "process" || !st.Backend.Available ||
				st.ActiveSessions != 1 || st.SessionTTLSec != 300 || st.Limits.MaxSessions != 64 || st.Limits.MaxSleeping != 256 {
				t.Errorf("Status = %+v, %v", st, err)
			}
			if st, _ := d.Status(t.Context(), bob); st.ActiveSessions != 0 {
				t.Errorf("another's Status = %+v", st)
			}
		})
	})
	t.Run("wall-is-not-there", func(t *testing.T) {
		c := config()
		c.Isolation = sandbox.WallGVisor
		inBubble(t, c, func(t *testing.T, w *world, d *daemon) {
			if b := d.Backend(t.Context()); b.Name != nil || b.Available {
				t.Errorf("Backend = %+v", b)
			}
			_, err := d.Exec(t.Context(), ann, asked("k", "echo x"))
			wantClass(t, "Exec", err, langbot.ClassBackendUnavailable)
			if boxes, _ := w.fake.Instances(t.Context()); len(boxes) != 0 {
				t.Errorf("boxes %q behind another wall", boxes)
			}
		})
	})
	t.Run("test_box_service_fails_closed_when_backend_unavailable", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
				if op == sandboxtest.Check {
					return sandbox.Errorf(sandbox.Unsupported, "no user namespaces here")
				}
				return nil
			})
			if b := d.Backend(t.Context()); b.Name == nil || b.Available {
				t.Errorf("Backend = %+v", b)
			}
			_, err := d.Exec(t.Context(), ann, asked("k", "echo x"))
			wantClass(t, "Exec", err, langbot.ClassBackendUnavailable)
			if err == nil || !strings.Contains(err.Error(), "process backend error: no user namespaces here") {
				t.Errorf("Exec = %v", err)
			}
			w.fake.SetHook(nil)
			pass(10 * time.Second) // the answer is not held for long
			run(t, d, asked("k", "echo x"))
			if b := d.Backend(t.Context()); !b.Available {
				t.Errorf("Backend = %+v", b)
			}
		})
	})
}
