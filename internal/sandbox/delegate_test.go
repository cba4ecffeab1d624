package sandbox_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// TestDelegate: what pods have of a workspace is locked, and no user unlocks it, through stops and daemons, until pods give it
// back.
func TestDelegate(t *testing.T) {
	src := sandbox.AccessList{{Path: "src", ReadOnly: true}}
	inLockBubble(t, func(t *testing.T, d *daemon, l sandboxtest.Locker, boot func() *daemon) {
		sb := create(t, d, shared("web"))
		check := func(when string, want sandbox.AccessList, held bool) {
			t.Helper()
			got := get(t, d, "web")
			if !slices.Equal(got.Access, want) || got.Delegated != held || !slices.Equal(l.Locked(sb.ID), want) || reportsLock(got) != (len(want) > 0) {
				t.Errorf("%s: access %v, held %t, the instance %v", when, got.Access, got.Delegated, l.Locked(sb.ID))
			}
		}
		delegate := func(access sandbox.AccessList, held bool) {
			t.Helper()
			if _, err := d.Delegate(t.Context(), ann, "web", sandbox.Delegation{Access: access, Held: held}); err != nil {
				t.Fatal(err)
			}
		}
		unlock := func() error {
			_, _, err := d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{})
			return err
		}
		delegate(src, true)
		delegate(src, true)
		check("delegated", src, true)
		if err := unlock(); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("an unlock meanwhile: %v", err)
		}
		check("an unlock was refused", src, true)
		d.Stop(t.Context(), ann, "web")
		d.Start(t.Context(), ann, "web")
		check("started again", src, true)
		d.shutdown()
		d = boot()
		check("with another daemon", src, true)
		delegate(nil, false)
		check("given back", nil, false)
		if err := unlock(); err != nil {
			t.Error(err)
		}

		d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{ReadOnly: true})
		if _, err := d.Delegate(t.Context(), ann, "web", sandbox.Delegation{Access: src, Held: true}); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("where a user has locked it: %v", err)
		}
		check("locked by a user", sandbox.AccessList{{Path: ".", ReadOnly: true}}, false)
		if err := unlock(); err != nil {
			t.Error(err)
		}

		l.SetWriters(sb.ID, sandbox.Writer{PID: 7, Program: "vim", Path: "/workspace/src/a", How: guest.HowWrites})
		if _, err := d.Delegate(t.Context(), ann, "web", sandbox.Delegation{Access: src, Held: true}); sandbox.KindOf(err) != sandbox.Conflict {
			t.Errorf("while it is written to: %v", err)
		}
		check("a delegation was refused", nil, false)
		ended, err := d.Delegate(t.Context(), ann, "web", sandbox.Delegation{Access: src, Held: true, EndWriters: true})
		if err != nil || len(ended) != 1 {
			t.Errorf("with an end to who writes: %v, %v", ended, err)
		}
		check("who wrote was ended", src, true)
	})
}

// TestDelegateKilled: wherever a daemon is killed in a delegation, the record and the instance agree once the next one stands.
func TestDelegateKilled(t *testing.T) {
	src, docs := sandbox.AccessList{{Path: "src", ReadOnly: true}}, sandbox.AccessList{{Path: "docs", ReadOnly: true}}
	for n, done := 1, false; !done; n++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			l := sandboxtest.Locker{Fake: w.fake}
			boot := func() *daemon {
				return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{l}})
			}
			d := boot()
			sb := create(t, d, shared("web"))
			d.Delegate(t.Context(), ann, "web", sandbox.Delegation{Access: src, Held: true})
			d.shutdown()
			done = w.killedIn(t, n, l, sandboxtest.Lock, func(d *daemon) error {
				_, err := d.Delegate(context.Background(), ann, "web", sandbox.Delegation{Access: docs, Held: true})
				return err
			})
			d = boot()
			synctest.Wait()
			got := get(t, d, "web")
			if is := l.Locked(sb.ID); !slices.Equal(is, got.Access) || !got.Delegated || done && !slices.Equal(is, docs) {
				t.Errorf("step %d: record %v, held %t, instance %v, answered %t", n, got.Access, got.Delegated, is, done)
			}
			d.shutdown()
			w.check(t)
		})
	}
}
