package sandbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

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
		_, calls["Create"] = d.Create(t.Context(), ann, sandbox.Spec{Name: "new"}, nil)
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

// TestCreateThatCannotBeWrittenDown: the instance is up and its record can't say
// so, nor that it is to be removed. It goes all the same.
func TestCreateThatCannotBeWrittenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		s := &secondPutFails{Store: &w.store}
		d := w.bootWith(t, sandbox.Options{Store: s, Backends: []sandbox.Backend{w.fake}})
		_, err := d.Create(t.Context(), ann, sandbox.Spec{Name: "web"}, nil)
		wantKind(t, "Create", err, sandbox.Internal)
		wantGone(t, d, "web")
		d.shutdown()
		w.check(t)
	})
}
