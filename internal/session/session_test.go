package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

func TestReuse(t *testing.T) {
	t.Run("test_box_runtime_reuses_request_session", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			first := run(t, d, asked("person_1", "echo one"))
			if string(first.Stdout) != "one\n" || first.ExitCode == nil || *first.ExitCode != 0 || first.Status != sessions.StatusCompleted {
				t.Errorf("Exec = %+v", first)
			}
			run(t, d, asked("person_1", "echo two"))
			if boxes := w.fake.Running(); len(boxes) != 1 || w.fake.Starts(boxes[0]) != 1 {
				t.Errorf("boxes %q, want one that was started once", boxes)
			}
		})
	})
	t.Run("test_box_runtime_rejects_host_mount_conflict_in_same_session", func(t *testing.T) {
		root := t.TempDir()
		c := config()
		c.AllowedMountRoots = []string{root}
		inBubble(t, c, func(t *testing.T, _ *world, d *daemon) {
			one, two := asked("k", "echo x"), asked("k", "echo x")
			one.HostPath, two.HostPath = root+"/a", root+"/b"
			caller := sandbox.Caller{Owner: "box:ws"}
			if _, err := d.Exec(t.Context(), caller, one); err != nil {
				t.Fatal(err)
			}
			_, err := d.Exec(t.Context(), caller, two)
			wantFields(t, err, "host_path")
		})
	})
	t.Run("test_box_runtime_rejects_resource_limit_conflict_in_same_session", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			other := asked("k", "echo x")
			other.CPUs = 2
			_, err := d.Exec(t.Context(), ann, other)
			wantFields(t, err, "cpus")
		})
	})
}

func TestConflict(t *testing.T) {
	t.Run("all-conflicts-at-once", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			other := asked("k", "echo x")
			other.CPUs, other.MemoryMB, other.Network, other.Persistent, other.PIDsLimit = 2, 1024, "on", true, 64
			_, err := d.Create(t.Context(), ann, other)
			wantFields(t, err, "network", "persistent", "cpus", "memory_mb", "pids_limit")
		})
	})
	t.Run("what-only-we-have", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			other := asked("k", "echo x")
			other.Isolation, other.WorkspaceInodes = "gvisor", 500
			_, err := d.Create(t.Context(), ann, other)
			wantFields(t, err, "isolation", "workspace_inodes")
			other.Isolation, other.WorkspaceInodes = "process", 0
			if _, err := d.Create(t.Context(), ann, other); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("not-compared", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			other := asked("k", "env A")
			other.Workdir, other.TimeoutSec, other.Env = "/tmp", 3, map[string]string{"A": "b"}
			if res := run(t, d, other); string(res.Stdout) != "b" {
				t.Errorf("stdout %q", res.Stdout)
			}
		})
	})
	t.Run("owners-apart", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			_, err := d.Get(t.Context(), bob, "k")
			wantClass(t, "another's Get", err, langbot.ClassSessionNotFound)
			wantClass(t, "another's Delete", d.Delete(t.Context(), bob, "k"), langbot.ClassSessionNotFound)
			if _, err := d.Exec(t.Context(), bob, asked("k", "echo x")); err != nil {
				t.Fatal(err)
			}
			if n := len(w.fake.Running()); n != 2 {
				t.Errorf("%d boxes, want one for each owner", n)
			}
			if list, err := d.List(t.Context(), admin); err != nil || len(list) != 2 {
				t.Errorf("an admin's List = %v, %v", list, err)
			}
			if list, err := d.List(t.Context(), bob); err != nil || len(list) != 1 || list[0].Owner != bob.Owner {
				t.Errorf("List = %v, %v", list, err)
			}
		})
	})
}

func wantFields(t fataler, err error, fields ...string) {
	t.Helper()
	wantClass(t, "the call", err, langbot.ClassSessionConflict)
	var c *fault.ConflictError
	if !errors.As(err, &c) {
		t.Fatalf("%v has no ConflictError", err)
	}
	var got []string
	for _, f := range c.Fields {
		got = append(got, f.Field)
	}
	if strings.Join(got, " ") != strings.Join(fields, " ") {
		t.Errorf("conflict in %q, want %q", got, fields)
	}
	for _, f := range fields {
		if !strings.Contains(err.Error(), f+"=") {
			t.Errorf("%q does not name %s", err, f)
		}
	}
}

func TestDeadSandboxIsReplaced(t *testing.T) {
	t.Run("crashed", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			w.fake.Die(w.fake.Running()[0], sandbox.EndCrashed)
			synctest.Wait()
			if res := run(t, d, asked("k", "echo y")); string(res.Stdout) != "y\n" || len(res.Notices) != 1 {
				t.Errorf("Exec = %+v, want its output and a notice", res)
			}
		})
	})
	t.Run("silently-gone", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			sb, _ := d.manager.List(t.Context(), ann, sandbox.Filter{})
			if err := d.manager.Remove(t.Context(), ann, sb[0].ID, true); err != nil {
				t.Fatal(err)
			}
			if res := run(t, d, asked("k", "echo y")); string(res.Stdout) != "y\n" || len(res.Notices) != 1 || !strings.Contains(res.Notices[0], "replaced") {
				t.Errorf("Exec = %+v, want its output and a notice", res)
			}
		})
	})
	t.Run("stopped-on-purpose", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			run(t, d, asked("k", "echo x"))
			sb, _ := d.manager.List(t.Context(), ann, sandbox.Filter{})
			if _, err := d.manager.Stop(t.Context(), ann, sb[0].ID); err != nil {
				t.Fatal(err)
			}
			if res := run(t, d, asked("k", "echo y")); string(res.Stdout) != "y\n" || len(res.Notices) != 1 {
				t.Errorf("Exec = %+v, want its output and a notice", res)
			}
		})
	})
	t.Run("in-the-middle", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			_, err := d.Exec(t.Context(), ann, asked("k", "die"))
			wantClass(t, "Exec", err, langbot.ClassError)
			run(t, d, asked("k", "echo y"))
		})
	})
	t.Run("out-of-memory", func(t *testing.T) {
		inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
			res := run(t, d, asked("k", "dieoom"))
			if res.ExitCode == nil || *res.ExitCode != 137 || len(res.Limits) != 1 || res.Limits[0] != "memory" || len(res.Notices) == 0 {
				t.Errorf("Exec = %+v", res)
			}
			run(t, d, asked("k", "echo y"))
		})
	})
}

// A start that takes its time, or never ends, is nobody else's.
func TestSlowStartDelaysNoOther(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		release := make(chan struct{})
		var slow sync.Once
		first := make(chan struct{})
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			mine := false
			if op == sandboxtest.Start {
				slow.Do(func() { mine = true })
			}
			if mine {
				close(first)
				<-release
			}
			return nil
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(t, d, asked("slow", "echo late"))
		}()
		<-first
		from := time.Now()
		for n := range 5 {
			run(t, d, asked(fmt.Sprint("quick-", n), "echo x"))
		}
		if _, err := d.List(t.Context(), ann); err != nil {
			t.Error(err)
		}
		if _, err := d.Status(t.Context(), ann); err != nil {
			t.Error(err)
		}
		if err := d.Delete(t.Context(), ann, "quick-1"); err != nil {
			t.Error(err)
		}
		if took := time.Since(from); took != 0 {
			t.Errorf("the others waited for %v", took)
		}
		close(release)
		<-done
	})
}

func TestCapacity(t *testing.T) {
	c := config()
	c.Limits.MaxSessions = 2
	inBubble(t, c, func(t *testing.T, w *world, d *daemon) {
		hold := make(chan struct{})
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			if op == sandboxtest.Start {
				<-hold
			}
			return nil
		})
		done := make(chan struct{}, 2)
		for n := range 2 {
			go func() {
				run(t, d, asked(fmt.Sprint(n), "echo x"))
				done <- struct{}{}
			}()
		}
		synctest.Wait()
		_, err := d.Create(t.Context(), ann, asked("third", ""))
		wantClass(t, "Create while two are made", err, langbot.ClassCapacity)
		if err == nil || err.Error() != "session capacity reached (2)" {
			t.Errorf("error %q", err)
		}
		close(hold)
		<-done
		<-done
		_, err = d.Create(t.Context(), ann, asked("third", ""))
		wantClass(t, "Create beside two", err, langbot.ClassCapacity)
		if err := d.Delete(t.Context(), ann, "0"); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Create(t.Context(), ann, asked("third", "")); err != nil {
			t.Error(err)
		}
	})
}

func TestDeleteWaitsForCreation(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		hold := make(chan struct{})
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			if op == sandboxtest.Start {
				<-hold
			}
			return nil
		})
		created, deleted := make(chan error, 1), make(chan error, 1)
		go func() { _, err := d.Create(context.Background(), ann, asked("k", "")); created <- err }()
		synctest.Wait()
		go func() { deleted <- d.Delete(context.Background(), ann, "k") }()
		synctest.Wait()
		select {
		case err := <-deleted:
			t.Fatalf("Delete did not wait: %v", err)
		default:
		}
		close(hold)
		if err := <-created; err != nil {
			t.Error(err)
		}
		if err := <-deleted; err != nil {
			t.Error(err)
		}
		if boxes, _ := w.fake.Instances(t.Context()); len(boxes) != 0 {
			t.Errorf("boxes %q are left", boxes)
		}
	})
}

func TestFailedCreationLeavesNothing(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			if op == sandboxtest.Start {
				return errors.New("boom")
			}
			return nil
		})
		if _, err := d.Create(t.Context(), ann, asked("k", "")); err == nil || strings.Contains(err.Error(), "boom") {
			t.Errorf("Create = %v, want an error without its cause", err)
		}
		w.fake.SetHook(nil)
		if rs, _ := w.store.Sessions(t.Context()); len(rs) != 0 {
			t.Errorf("records %+v are left", rs)
		}
		if list, _ := d.List(t.Context(), ann); len(list) != 0 {
			t.Errorf("sessions %+v are left", list)
		}
		run(t, d, asked("k", "echo x"))
	})
}

func TestUnknown(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
		_, err := d.Get(t.Context(), ann, "x")
		wantClass(t, "Get", err, langbot.ClassSessionNotFound)
		if err == nil || err.Error() != "session x not found" {
			t.Errorf("Get: %q", err)
		}
		wantClass(t, "Delete", d.Delete(t.Context(), ann, "x"), langbot.ClassSessionNotFound)
		_, err = d.StartProcess(t.Context(), ann, "x", sessions.ProcessSpec{Command: "cat"})
		wantClass(t, "StartProcess", err, langbot.ClassSessionNotFound)
		run(t, d, asked("x", "echo"))
		_, err = d.Process(t.Context(), ann, "x", "y")
		wantClass(t, "Process", err, langbot.ClassProcessNotFound)
		if err == nil || err.Error() != "session x has no managed process with process_id=y" {
			t.Errorf("Process: %q", err)
		}
		_, err = d.Exec(t.Context(), ann, asked("x", "  "))
		wantClass(t, "Exec of nothing", err, langbot.ClassValidation)
		if err == nil || err.Error() != "cmd must not be empty" {
			t.Errorf("Exec: %q", err)
		}
	})
}

func TestHostileKeys(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		for name, key := range map[string]string{
			"nul": "a\x00b", "newline": "a\nb", "long": strings.Repeat("k", 10<<10), "empty": "", "bell": "\a", "not-utf8": "a\xffb",
		} {
			_, err := d.Create(t.Context(), ann, asked(key, ""))
			if profile.Class(err) != langbot.ClassValidation || len(err.Error()) > 500 {
				t.Errorf("%s: %v (class %q), want a validation error", name, err, profile.Class(err))
			}
		}
		for _, key := range []string{"../../etc/passwd", "/", "..", "a/b", "-rf", "$(id)", "漢字", `"`, "%s%n", "a b"} {
			run(t, d, asked(key, "echo x"))
			info, err := d.Get(t.Context(), ann, key)
			if err != nil || info.SessionID != key {
				t.Errorf("Get %q = %+v, %v", key, info, err)
			}
		}
		list, _ := d.manager.List(t.Context(), ann, sandbox.Filter{})
		for _, sb := range list {
			if !sandbox.ValidName(sb.Spec.Name) {
				t.Errorf("sandbox name %q", sb.Spec.Name)
			}
		}
	})
}

func TestSixtyFourAtOnce(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
		var wg sync.WaitGroup
		for n := range 64 {
			wg.Go(func() {
				for range 3 {
					if res := run(t, d, asked(fmt.Sprint("s", n), fmt.Sprint("echo ", n))); string(res.Stdout) != fmt.Sprintln(n) {
						t.Errorf("session %d: %q", n, res.Stdout)
					}
				}
			})
		}
		wg.Wait()
		if n := len(w.fake.Running()); n != 64 {
			t.Errorf("%d boxes", n)
		}
		if err := d.DropAll(t.Context(), "", nil); err != nil {
			t.Error(err)
		}
		if boxes, _ := w.fake.Instances(t.Context()); len(boxes) != 0 {
			t.Errorf("%d boxes are left", len(boxes))
		}
	})
}
