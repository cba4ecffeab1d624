package sandbox_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// inLockBubble is inBubble for a wall that can lock workspaces.
func inLockBubble(t *testing.T, test func(t *testing.T, d *daemon, l sandboxtest.Locker, boot func() *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		l := sandboxtest.Locker{Fake: w.fake}
		var last *daemon
		boot := func() *daemon {
			last = w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{l}})
			return last
		}
		test(t, boot(), l, boot)
		last.shutdown()
		w.check(t)
	})
}

// shared is a Spec whose workspace can be locked.
func shared(name string) sandbox.Spec {
	return sandbox.Spec{Name: name, Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceWritable, Source: sandbox.HostDir{Path: "/srv/tree", Dev: 1, Ino: 2, UID: 1000, GID: 1000}}}
}

// reportsLock is whether a record's report says that its workspace is locked.
func reportsLock(sb *sandbox.Sandbox) bool {
	return slices.ContainsFunc(sb.Enforced, func(e sandbox.Enforcement) bool {
		return e.Promise == "workspace" && e.Enforced && strings.HasPrefix(e.Mechanism, "locked")
	})
}

// TestLock: a lock is in the record, the report and the log, and outlives stops, crashes and daemons, until it is undone.
func TestLock(t *testing.T) {
	inLockBubble(t, func(t *testing.T, d *daemon, l sandboxtest.Locker, boot func() *daemon) {
		sb := create(t, d, shared("web"))
		check := func(when string, want bool) {
			t.Helper()
			got := get(t, d, "web")
			if got.Access.Whole() != want || reportsLock(got) != want || got.State == sandbox.StateRunning && l.Locked(sb.ID).Whole() != want {
				t.Errorf("%s: locked %t, reported %t, the instance %t", when, got.Access.Whole(), reportsLock(got), l.Locked(sb.ID).Whole())
			}
		}
		lock := func(readOnly bool) {
			t.Helper()
			if _, _, err := d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{ReadOnly: readOnly}); err != nil {
				t.Fatal(err)
			}
		}
		check("made", false)
		lock(false)
		lock(true)
		lock(true)
		check("locked", true)
		d.Stop(t.Context(), ann, "web")
		d.Start(t.Context(), ann, "web")
		check("started again", true)
		l.Die(sb.ID, sandbox.EndOutOfMemory)
		synctest.Wait()
		d.Start(t.Context(), ann, "web")
		check("started after its end", true)
		d.shutdown()
		d = boot()
		check("with another daemon", true)
		d.Stop(t.Context(), ann, "web")
		lock(false)
		check("unlocked while it is stopped", false)
		lock(true)
		d.Start(t.Context(), ann, "web")
		check("locked while it was stopped", true)
		lock(false)
		check("unlocked", false)
		var log []string
		evs, _ := d.Events(t.Context(), ann, "web")
		for _, e := range evs {
			if e.Type == "set" {
				log = append(log, strings.TrimPrefix(e.Message, "uid:1000 "))
			}
		}
		const locked, unlocked = "locked its workspace, which is read-only inside", "unlocked its workspace"
		if d := cmp.Diff([]string{unlocked, locked, locked, unlocked, locked, unlocked}, log); d != "" {
			t.Errorf("the log -want +got\n%s", d)
		}
	})
}

// TestLockBusy: what has a file open is named and in the way, and is ended where that is asked for.
func TestLockBusy(t *testing.T) {
	inLockBubble(t, func(t *testing.T, d *daemon, l sandboxtest.Locker, _ func() *daemon) {
		sb := create(t, d, shared("web"))
		writers := []sandbox.Writer{{PID: 7, Program: "vim", Path: "/workspace/a", How: guest.HowWrites}, {PID: 8, Program: "db", Path: "/workspace/b", How: guest.HowMaps}, {Path: "/workspace/c"}}
		l.SetWriters(sb.ID, writers...)
		_, _, err := d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{ReadOnly: true})
		const want = "sandbox web: its workspace is in use: by vim (pid 7), which has /workspace/a open for writing; by db (pid 8), which has /workspace/b in its memory; by a client's transfer, which has /workspace/c open for writing"
		if sandbox.KindOf(err) != sandbox.Conflict || err.Error() != want {
			t.Errorf("got %v", err)
		}
		if got := get(t, d, "web"); got.Access != nil || reportsLock(got) || l.Locked(sb.ID) != nil {
			t.Errorf("it is locked all the same: %+v", got)
		}
		got, ended, err := d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{ReadOnly: true, EndWriters: true})
		if err != nil || !got.Access.Whole() || !l.Locked(sb.ID).Whole() {
			t.Errorf("with an end to them: %v", err)
		}
		if d := cmp.Diff(writers, ended); d != "" {
			t.Errorf("ended -want +got\n%s", d)
		}
	})
}

// TestLockRefuses: what can't be locked is told why, and stays as it is.
func TestLockRefuses(t *testing.T) {
	source := shared("").Workspace.Source
	for name, w := range map[string]struct {
		workspace sandbox.Workspace
		want      sandbox.Kind
	}{
		"private":   {sandbox.Workspace{Mode: sandbox.WorkspacePrivate}, sandbox.Unsupported},
		"view":      {sandbox.Workspace{Mode: sandbox.WorkspaceCOW, Source: source}, sandbox.Unsupported},
		"read-only": {sandbox.Workspace{Mode: sandbox.WorkspaceReadOnly, Source: source}, sandbox.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			inLockBubble(t, func(t *testing.T, d *daemon, _ sandboxtest.Locker, _ func() *daemon) {
				create(t, d, sandbox.Spec{Name: "web", Workspace: w.workspace})
				_, _, err := d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{ReadOnly: true})
				if sandbox.KindOf(err) != w.want {
					t.Errorf("got %v, want %s", err, w.want)
				}
				if got := get(t, d, "web"); got.Access != nil {
					t.Error("it is locked")
				}
			})
		})
	}
	t.Run("wall", func(t *testing.T) {
		inBubble(t, func(t *testing.T, _ *world, d *daemon) {
			create(t, d, shared("web"))
			if _, _, err := d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{ReadOnly: true}); sandbox.KindOf(err) != sandbox.Unsupported {
				t.Errorf("got %v", err)
			}
		})
	})
}

// TestLockKilled: a daemon that is killed at any step of a lock or an unlock leaves one or the other, and the record, the
// report and the instance agree about which once the next daemon stands.
func TestLockKilled(t *testing.T) {
	for _, readOnly := range []bool{true, false} {
		for n := 1; ; n++ {
			done := false
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				l := sandboxtest.Locker{Fake: w.fake}
				boot := func() *daemon {
					return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{l}})
				}
				d := boot()
				sb := create(t, d, shared("web"))
				if !readOnly {
					d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{ReadOnly: true})
				}
				d.shutdown()

				done = w.killedIn(t, n, l, sandboxtest.Lock, func(d *daemon) error {
					_, _, err := d.LockWorkspace(context.Background(), ann, "web", sandbox.LockChange{ReadOnly: readOnly})
					return err
				})

				d = boot()
				synctest.Wait()
				got := get(t, d, "web")
				if is := got.Access.Whole(); is != reportsLock(got) || is != l.Locked(sb.ID).Whole() || done && is != readOnly {
					t.Errorf("lock %t, step %d: locked %t, reported %t, the instance %v, answered %t", readOnly, n, is, reportsLock(got), l.Locked(sb.ID), done)
				}
				d.shutdown()
				w.check(t)
			})
			if done {
				if n < 2 {
					t.Errorf("only %d steps", n)
				}
				break
			}
		}
	}
}

// A lock that was not finished when its daemon died, and that something is in the way of by then, is given up, and said.
func TestLockGivenUp(t *testing.T) {
	inLockBubble(t, func(t *testing.T, d *daemon, l sandboxtest.Locker, boot func() *daemon) {
		sb := create(t, d, shared("web"))
		d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{ReadOnly: true})
		d.shutdown()
		l.Lock(t.Context(), sb.ID, sandbox.Lock{}) // as if it had not come so far
		l.SetWriters(sb.ID, sandbox.Writer{PID: 7, Program: "vim", Path: "/workspace/a"})
		d = boot()
		if got := get(t, d, "web"); got.Access != nil || reportsLock(got) {
			t.Errorf("it is said to be locked: %+v", got)
		}
		evs, _ := d.Events(t.Context(), ann, "web")
		if !slices.ContainsFunc(evs, func(e sandbox.Event) bool {
			return e.Type == sandbox.EventError && strings.Contains(e.Message, "vim (pid 7)")
		}) {
			t.Errorf("the log does not say so: %+v", evs)
		}
	})
}
