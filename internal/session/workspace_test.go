package session_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
)

// ws is a caller whose directories may be anyone's.
var ws = sandbox.Caller{Owner: "box:ws-1"}

// disks are volumes in memory.
type disks struct {
	mu   sync.Mutex
	made map[string]session.Volume // by owner and name
	soft string
}

func (d *disks) Ensure(_ context.Context, owner, name string, size, inodes int64) (session.Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made == nil {
		d.made = map[string]session.Volume{}
	}
	key := owner + "/" + name
	v, ok := d.made[key]
	if !ok {
		id, _ := sandbox.NewVolumeID(strings.NewReader(fmt.Sprintf("%020d", len(d.made))))
		v = session.Volume{ID: id, Size: max(size, 1<<20), Inodes: inodes, Unenforced: d.soft}
		d.made[key] = v
	}
	return v, nil
}

// Has implements sandbox.Volumes.
func (d *disks) Has(_ context.Context, owner, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, v := range d.made {
		if v.ID == id && strings.HasPrefix(key, owner+"/") {
			return nil
		}
	}
	return sandbox.Errorf(sandbox.NotFound, "volume %s: not found", id)
}

func (w *world) bootVolumes(t fataler, c session.Config, v *disks) *daemon {
	t.Helper()
	return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, Volumes: v},
		session.Options{Store: &w.store, Config: c, Volumes: v})
}

func (d *daemon) sandboxOf(t fataler, key string) *sandbox.Sandbox {
	t.Helper()
	info, err := d.Get(context.Background(), ws, key)
	if err != nil {
		t.Fatalf("Get %s: %v", key, err)
	}
	sb, err := d.manager.Get(context.Background(), ws, info.BackendSessionID)
	if err != nil {
		t.Fatalf("Get %s: %v", info.BackendSessionID, err)
	}
	return sb
}

func TestShape(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
		spec := asked("k", "echo x")
		spec.Network, spec.WorkspaceQuotaMB, spec.WorkspaceInodes, spec.ReadOnlyRootFS = "off", 64, 1000, true
		if _, err := d.Exec(t.Context(), ws, spec); err != nil {
			t.Fatal(err)
		}
		sb := d.sandboxOf(t, "k")
		l := sb.Spec.Limits
		if l.CPUs != 1 || l.Memory != 512<<20 || l.PIDs != 128 || l.Disk != 64<<20 || l.Inodes != 1000 || !l.Explicit["disk"] || !l.Explicit["memory"] {
			t.Errorf("limits %+v", l)
		}
		if sb.Spec.User != "user" || !sb.Spec.ReadOnlyRoot || sb.Spec.Network != "off" || len(sb.Spec.Env) != 0 || sb.Spec.Labels[session.Label] != "k" {
			t.Errorf("spec %+v", sb.Spec)
		}
		if len(sb.Spec.Mounts) != 1 || !sb.Spec.Mounts[0].Own || sb.Spec.Mounts[0].Target != tools.SkillsPath {
			t.Errorf("mounts %+v", sb.Spec.Mounts)
		}
		if info, _ := d.Get(t.Context(), ws, "k"); info.Quota != sessions.QuotaHard || info.Image != "" {
			t.Errorf("info %+v", info)
		}
		spec.Image = "host" // which is what the default image means here
		if _, err := d.Exec(t.Context(), ws, spec); err != nil {
			t.Error(err)
		}
	})
}

func TestHostDirectories(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	linked := filepath.Join(root, "linked")
	if err := os.Mkdir(linked, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(linked, ".skills")); err != nil {
		t.Fatal(err)
	}
	c := config()
	c.AllowedMountRoots = []string{root}
	inBubble(t, c, func(t *testing.T, _ *world, d *daemon) {
		spec := asked("k", "echo x")
		spec.HostPath = filepath.Join(root, "new", "deep")
		spec.ExtraMounts = []sessions.Mount{{HostPath: root, MountPath: "/mnt/all", Mode: "ro"}, {HostPath: outside, MountPath: "/mnt/no", Mode: "none"}}
		if _, err := d.Exec(t.Context(), ws, spec); err != nil {
			t.Fatal(err)
		}
		sb := d.sandboxOf(t, "k")
		if w := sb.Spec.Workspace; w.Mode != sandbox.WorkspaceWritable || w.Source.Path != spec.HostPath || w.Source.Ino == 0 {
			t.Errorf("workspace %+v", w)
		}
		if m := sb.Spec.Mounts[0]; m.Target != "/mnt/all" || !m.ReadOnly || len(sb.Spec.Mounts) != 2 {
			t.Errorf("mounts %+v", sb.Spec.Mounts)
		}
		elsewhere := asked("at-another-place", "echo x")
		elsewhere.HostPath, elsewhere.MountPath, elsewhere.Workdir, elsewhere.HostPathMode = root, "/data", "/data", "ro"
		if _, err := d.Exec(t.Context(), ws, elsewhere); err != nil {
			t.Fatal(err)
		}
		if m := d.sandboxOf(t, "at-another-place").Spec.Mounts; len(m) != 2 || m[0].Target != "/data" || !m[0].ReadOnly || m[0].Source.Path != root {
			t.Errorf("mounts %+v", m)
		}
		for name, change := range map[string]func(*sessions.Spec){
			"workspace-outside": func(s *sessions.Spec) { s.HostPath = outside },
			"mount-outside": func(s *sessions.Spec) {
				s.ExtraMounts = []sessions.Mount{{HostPath: outside, MountPath: "/x", Mode: "ro"}}
			},
			"mount-etc": func(s *sessions.Spec) {
				s.ExtraMounts = []sessions.Mount{{HostPath: "/etc", MountPath: "/x", Mode: "ro"}}
			},
			"by-dots":         func(s *sessions.Spec) { s.HostPath = root + "/../" + filepath.Base(outside) },
			"link-for-skills": func(s *sessions.Spec) { s.HostPath = linked },
		} {
			spec := asked(name, "echo x")
			change(&spec)
			_, err := d.Exec(t.Context(), ws, spec)
			wantClass(t, name, err, langbot.ClassValidation)
			wantGone(t, d, name)
		}
	})
}

func TestExtraMountsRecreate(t *testing.T) {
	root := t.TempDir()
	c := config()
	c.AllowedMountRoots = []string{root}
	inBubble(t, c, func(t *testing.T, w *world, d *daemon) {
		one := asked("k", "sleep 10")
		if _, err := d.Exec(t.Context(), ws, asked("k", "echo x")); err != nil {
			t.Fatal(err)
		}
		first := d.sandboxOf(t, "k").ID
		busy := start(t.Context(), d, ws, one)
		two := asked("k", "echo x")
		two.ExtraMounts = []sessions.Mount{{HostPath: root, MountPath: "/mnt/x", Mode: "rw"}}
		created := make(chan error, 1)
		go func() { _, err := d.Create(context.Background(), ws, two); created <- err }()
		if a := <-busy; a.err != nil { // it was not cut off
			t.Error(a.err)
		}
		if err := <-created; err != nil {
			t.Fatal(err)
		}
		if d.sandboxOf(t, "k").ID == first {
			t.Error("the sandbox has not the new mounts")
		}
		two.ExtraMounts = append(two.ExtraMounts, sessions.Mount{HostPath: "/nowhere", MountPath: "/y", Mode: "none"})
		second := d.sandboxOf(t, "k").ID
		if _, err := d.Exec(t.Context(), ws, two); err != nil || d.sandboxOf(t, "k").ID != second {
			t.Errorf("Exec = %v, and the sandbox was made anew for a mount that is none", err)
		}
		if n := len(w.fake.Running()); n != 1 {
			t.Errorf("%d boxes run", n)
		}
	})
}

func TestSoftQuota(t *testing.T) {
	root := t.TempDir()
	c := config()
	c.AllowedMountRoots = []string{root}
	soft := func(key, cmd string) sessions.Spec {
		spec := asked(key, cmd)
		spec.HostPath, spec.WorkspaceQuotaMB = root, 1
		return spec
	}
	full := filepath.Join(root, "big")
	t.Run("test_box_service_rejects_and_cleans_up_when_execution_exceeds_workspace_quota", func(t *testing.T) {
		inBubble(t, c, func(t *testing.T, w *world, d *daemon) {
			w.guests.does = func(string) { _ = os.WriteFile(full, make([]byte, 2<<20), 0o600) }
			_, err := d.Exec(t.Context(), ws, soft("k", "fill"))
			wantClass(t, "Exec", err, langbot.ClassValidation)
			if err == nil || !strings.HasPrefix(err.Error(), "workspace quota exceeded after execution: used=2097152 bytes limit=1048576 bytes host_path=") {
				t.Errorf("Exec = %v", err)
			}
			_, err = d.Get(t.Context(), ws, "k")
			wantClass(t, "Get", err, langbot.ClassSessionNotFound)
		})
	})
	t.Run("test_box_service_rejects_execution_when_workspace_already_exceeds_quota", func(t *testing.T) {
		inBubble(t, c, func(t *testing.T, w *world, d *daemon) {
			_, err := d.Exec(t.Context(), ws, soft("k", "echo x"))
			if err == nil || !strings.HasPrefix(err.Error(), "workspace quota exceeded before execution: ") {
				t.Errorf("Exec = %v", err)
			}
			if boxes, _ := w.fake.Instances(t.Context()); len(boxes) != 0 {
				t.Errorf("boxes %q", boxes)
			}
		})
	})
	t.Run("watched", func(t *testing.T) {
		_ = os.Remove(full)
		inBubble(t, c, func(t *testing.T, w *world, d *daemon) {
			one := start(t.Context(), d, ws, within(soft("k", "sleep 1000"), 2000))
			if info, err := d.Get(t.Context(), ws, "k"); err != nil || info.Quota != sessions.QuotaSoft {
				t.Errorf("Get = %+v, %v", info, err)
			}
			_ = os.WriteFile(full, make([]byte, 2<<20), 0o600)
			a := <-one
			if a.err == nil || !strings.HasPrefix(a.err.Error(), "workspace quota exceeded after execution was stopped: used=") {
				t.Errorf("Exec = %+v, %v", a.res, a.err)
			}
			_, err := d.Get(t.Context(), ws, "k")
			wantClass(t, "Get", err, langbot.ClassSessionNotFound)
			if m := d.Metrics(); m.QuotaStops != 1 {
				t.Errorf("metrics %+v", m)
			}
		})
	})
	t.Run("hard-is-refused", func(t *testing.T) {
		_ = os.Remove(full)
		inBubble(t, c, func(t *testing.T, _ *world, d *daemon) {
			spec := soft("k", "echo x")
			spec.Quota = sessions.QuotaHard
			_, err := d.Exec(t.Context(), ws, spec)
			wantClass(t, "Exec", err, langbot.ClassValidation)
		})
	})
}

func TestOwnedWorkspace(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, w *world, _ *daemon) {
		v := &disks{}
		d := w.bootVolumes(t, config(), v)
		defer d.shutdown()
		spec := asked("k", "echo x")
		spec.HostPath, spec.WorkspaceQuotaMB = "/app/data/box/default", 10
		_, err := d.Exec(t.Context(), ws, spec)
		wantClass(t, "before it was declared", err, langbot.ClassValidation)
		if err == nil || !strings.Contains(err.Error(), "allowed_mount_roots") {
			t.Errorf("Exec = %v, want the setting's name", err)
		}
		d.Declare(ws.Owner, "/app/data/box", "/app/data/box/default", "/", "relative")
		res, err := d.Exec(t.Context(), ws, spec)
		if err != nil || len(res.Notices) != 1 || !strings.Contains(res.Notices[0], "volume") {
			t.Fatalf("Exec = %+v, %v", res, err)
		}
		sb := d.sandboxOf(t, "k")
		if sb.Spec.Workspace.Mode != sandbox.WorkspaceVolume || sb.Spec.Workspace.Volume == "" {
			t.Errorf("workspace %+v", sb.Spec.Workspace)
		}
		if res, _ := d.Exec(t.Context(), ws, spec); len(res.Notices) != 0 {
			t.Errorf("said again: %q", res.Notices)
		}
		spec.SessionID = "other"
		if _, err := d.Exec(t.Context(), ws, spec); err != nil {
			t.Fatal(err)
		}
		if other := d.sandboxOf(t, "other"); other.Spec.Workspace.Volume != sb.Spec.Workspace.Volume {
			t.Error("sessions that name one path have two workspaces")
		}
		if info, _ := d.Get(t.Context(), ws, "k"); info.Quota != sessions.QuotaHard || len(info.Notices) != 1 {
			t.Errorf("info %+v", info)
		}
		if _, err := d.Exec(t.Context(), sandbox.Caller{Owner: "box:ws-2"}, spec); profile.Class(err) != langbot.ClassValidation {
			t.Errorf("another's declaration: %v", err)
		}
		for _, p := range []string{"/app/data/boxes", "/app/data/box/../../etc", "/app/data"} {
			spec := asked("no", "echo x")
			spec.HostPath = p
			_, err := d.Exec(t.Context(), ws, spec)
			wantClass(t, p, err, langbot.ClassValidation)
		}
		windows := asked("win", "echo x")
		windows.HostPath = `C:\langbot\data\box\x`
		d.Declare(ws.Owner, `C:\langbot\data\box`)
		if _, err := d.Exec(t.Context(), ws, windows); err != nil {
			t.Error(err)
		}
	})
}

func TestOwnedPlaces(t *testing.T) {
	inBubble(t, config(), func(t *testing.T, _ *world, d *daemon) {
		if got := d.OwnedPlaces(ws.Owner, "/app/data/box/default/x"); len(got) != 0 {
			t.Errorf("before it was declared: %+v", got)
		}
		d.Declare(ws.Owner, "/app/data/box")
		var dirs []string
		for _, p := range d.OwnedPlaces(ws.Owner, "/app/data/box/default/x/y") {
			if !strings.HasPrefix(p.Volume, "box-") {
				t.Errorf("volume %q", p.Volume)
			}
			dirs = append(dirs, p.Dir)
		}
		if want := []string{".", "y", "x/y", "default/x/y"}; !slices.Equal(dirs, want) {
			t.Errorf("places %q, want %q", dirs, want)
		}
		for _, path := range []string{"/app/data/box/../x", "/app/data/boxes", "/etc", "/app/data", "data/box/default"} {
			if got := d.OwnedPlaces(ws.Owner, path); len(got) != 0 {
				t.Errorf("%s: %+v", path, got)
			}
		}
		if got := d.OwnedPlaces("box:ws-2", "/app/data/box/default"); len(got) != 0 {
			t.Errorf("another owner's: %+v", got)
		}
		if got := d.OwnedPlaces(ws.Owner, "/app/data/box"+strings.Repeat("/d", 500)); len(got) > 64 {
			t.Errorf("%d places", len(got))
		}
	})
}
