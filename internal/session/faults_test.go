package session_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// fullStore is a store whose disk is full from its n-th write on, for a while.
type fullStore struct {
	session.Store
	left, lasts atomic.Int64
}

func (s *fullStore) full() bool { return s.left.Add(-1) < 0 && s.lasts.Add(-1) >= 0 }

func (s *fullStore) SaveSession(ctx context.Context, r record.Session) error {
	if s.full() {
		return syscall.ENOSPC
	}
	return s.Store.SaveSession(ctx, r)
}

func (s *fullStore) DeleteSession(ctx context.Context, id string) error {
	if s.full() {
		return syscall.ENOSPC
	}
	return s.Store.DeleteSession(ctx, id)
}

// Whichever writes fail, nothing is left that no record leads to, and all works
// again once there is room.
func TestDiskFull(t *testing.T) {
	for n := range 14 {
		for _, lasts := range []int64{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				s := &fullStore{Store: &w.store}
				s.left.Store(int64(n))
				s.lasts.Store(lasts)
				d := w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}}, session.Options{Store: s, Config: config()})
				_, _ = d.Exec(t.Context(), ann, asked("k", "touch"))
				_, _ = d.StartProcess(t.Context(), ann, "k", sessions.ProcessSpec{Command: "serve"})
				_ = d.StopProcess(t.Context(), ann, "k", "")
				pass(ttl + 2*time.Minute)
				_, _ = d.Exec(t.Context(), ann, asked("k", "echo x"))
				_ = d.Delete(t.Context(), ann, "k")
				pass(2 * time.Minute)
				w.agree(t, d)
				s.lasts.Store(0)
				run(t, d, asked("k", "echo x"))
				if err := d.Delete(t.Context(), ann, "k"); err != nil {
					t.Error(err)
				}
				pass(2 * time.Minute)
				if m := d.Metrics(); m.Sessions != 0 || m.Asleep != 0 || m.Processes != 0 {
					t.Errorf("metrics %+v", m)
				}
				if boxes, _ := w.fake.Instances(t.Context()); len(boxes) != 0 {
					t.Errorf("boxes %q are left", boxes)
				}
				d.shutdown()
				w.check(t)
			})
			if t.Failed() {
				t.Fatalf("full from write %d on, for %d", n, lasts)
			}
		}
	}
}
