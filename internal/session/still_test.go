package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
)

// TestStillAllowed wakes sessions by calls that say nothing of their shape: what
// is allowed by now holds for them too. One that runs keeps what it has.
func TestStillAllowed(t *testing.T) {
	swapped := func(t *testing.T, dir, to string) {
		t.Helper()
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Fatal(err)
		}
		var err error
		if to == "" {
			err = os.Mkdir(dir, 0o755)
		} else {
			err = os.Symlink(to, dir)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name   string
		awake  bool
		change func(t *testing.T, c *session.Config, dir, outside string)
		want   sandbox.Kind
		text   string
	}{
		{"asleep/nothing-changed", false, func(*testing.T, *session.Config, string, string) {}, "", ""},
		{"awake/nothing-changed", true, func(*testing.T, *session.Config, string, string) {}, "", ""},
		{"asleep/roots-narrowed", false, func(_ *testing.T, c *session.Config, _, outside string) {
			c.AllowedMountRoots = []string{outside}
		}, sandbox.Denied, "outside allowed_mount_roots"},
		{"awake/roots-narrowed", true, func(_ *testing.T, c *session.Config, _, outside string) {
			c.AllowedMountRoots = []string{outside}
		}, "", ""},
		{"asleep/wall-no-longer-allowed", false, func(_ *testing.T, c *session.Config, _, _ string) {
			c.AllowedIsolation = nil
		}, sandbox.Denied, "weaker than gvisor"},
		{"awake/wall-no-longer-allowed", true, func(_ *testing.T, c *session.Config, _, _ string) {
			c.AllowedIsolation = nil
		}, "", ""},
		{"asleep/another-directory", false, func(t *testing.T, _ *session.Config, dir, _ string) {
			swapped(t, dir, "")
		}, sandbox.Conflict, "another directory"},
		{"asleep/link-to-elsewhere", false, func(t *testing.T, _ *session.Config, dir, outside string) {
			swapped(t, dir, outside)
		}, sandbox.Denied, "outside allowed_mount_roots"},
		{"awake/renamed", true, func(t *testing.T, _ *session.Config, dir, _ string) { swapped(t, dir, "") }, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, outside := t.TempDir(), t.TempDir()
			dir := filepath.Join(root, "mounted")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				c := session.Config{
					Isolation: sandbox.WallGVisor, AllowedIsolation: []string{sandbox.WallProcess}, AllowedMountRoots: []string{root},
				}
				d := w.boot(t, c)
				spec := asked("k", "touch")
				spec.Isolation = sandbox.WallProcess
				spec.ExtraMounts = []sessions.Mount{{HostPath: dir, MountPath: "/mnt/m", Mode: sessions.MountWritable}}
				if _, err := d.Exec(t.Context(), ws, spec); err != nil {
					t.Fatal(err)
				}
				if !tc.awake {
					pass(ttl + time.Minute)
				}
				d.shutdown()
				tc.change(t, &c, dir, outside)
				d = w.boot(t, c)
				for range 2 { // a refusal is no less of one the second time
					wantAllowed(t, d, tc.want, tc.text)
				}
				if err := d.Delete(t.Context(), ws, "k"); err != nil {
					t.Errorf("Delete = %v", err)
				}
				d.shutdown()
				w.check(t)
			})
		})
	}
}

// TestStillAllowedStopped has the sandbox of a session be stopped by somebody.
func TestStillAllowedStopped(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := session.Config{Isolation: sandbox.WallProcess, AllowedMountRoots: []string{root}}
		d := w.boot(t, c)
		spec := asked("k", "touch")
		spec.HostPath = root
		if _, err := d.Exec(t.Context(), ws, spec); err != nil {
			t.Fatal(err)
		}
		if _, err := d.manager.Stop(t.Context(), ws, d.sandboxOf(t, "k").ID); err != nil {
			t.Fatal(err)
		}
		d.shutdown()
		c.AllowedMountRoots = []string{outside}
		d = w.boot(t, c)
		wantAllowed(t, d, sandbox.Denied, "outside allowed_mount_roots")
		d.shutdown()
		c.AllowedMountRoots = []string{root}
		d = w.boot(t, c)
		wantAllowed(t, d, "", "")
		d.shutdown()
		w.check(t)
	})
}

// wantAllowed borrows the session k, and starts a process in it.
func wantAllowed(t *testing.T, d *daemon, want sandbox.Kind, text string) {
	t.Helper()
	u, err := d.Borrow(t.Context(), ws, "k", session.Job{Action: "tool:read"})
	if err == nil {
		u.Finish("ok", nil)
	}
	_, startErr := d.StartProcess(t.Context(), ws, "k", sessions.ProcessSpec{ProcessID: "p", Command: "serve"})
	if startErr == nil {
		startErr = d.StopProcess(t.Context(), ws, "k", "p")
	}
	for what, err := range map[string]error{"Borrow": err, "StartProcess": startErr} {
		if sandbox.KindOf(err) != want || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s = %v, want %q %q", what, err, want, text)
		}
	}
}
