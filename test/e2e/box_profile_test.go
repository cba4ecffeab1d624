package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// TestBoxProfiles has what LangBot's own tests ask of profiles and quotas, by
// their names, against a real runtime.
func TestBoxProfiles(t *testing.T) {
	t.Parallel()
	w := newBoxWorld(t, "process", nil)
	w.testProfiles(t)
	w.testQuota(t)
}

// testProfiles looks at what a session got by what the runtime says of it, and
// at a command's time by what the result says was adjusted.
func (w *boxWorld) testProfiles(t *testing.T) {
	w.subtest(t, "test_profile_default_provides_defaults", func(t *testing.T) {
		s := w.service(t, boxservice.Config{})
		r := runTool(t, s, chat("30"), "echo hi")
		got := w.sessions(t)["person_test_user"]
		if !r.OK || got.Network != "off" || got.Image != s.Profile().Image || len(r.Adjusted) != 0 {
			t.Errorf("got %+v, and adjusted %v", got, r.Adjusted)
		}
		spec, _, err := s.BuildSpec(t.Context(), boxservice.Request{Query: chat("30"), Payload: map[string]any{"cmd": "echo hi", "session_id": "a"}})
		if err != nil || spec.TimeoutSec != 30 {
			t.Errorf("its time is %d s, %v", spec.TimeoutSec, err)
		}
	})
	w.subtest(t, "test_profile_unlocked_field_can_be_overridden", func(t *testing.T) {
		s := w.service(t, boxservice.Config{})
		r, err := s.Execute(t.Context(), boxservice.Request{Query: chat("31"), Payload: map[string]any{"cmd": "echo hi", "timeout_sec": 60, "network": "on", "session_id": "31"}})
		if err != nil || !r.OK || len(r.Adjusted) != 0 {
			t.Fatalf("got %+v, %v", r, err)
		}
		if got := w.sessions(t)["31"]; got.Network != "on" {
			t.Errorf("got %+v", got)
		}
	})
	w.subtest(t, "test_profile_locked_field_cannot_be_overridden", func(t *testing.T) {
		dir := w.dirs(t, "workspace")[0]
		s := w.service(t, boxservice.Config{Profile: "offline_readonly", AllowedMountRoots: []string{w.root}})
		r, err := s.Execute(t.Context(), boxservice.Request{Query: chat("32"), Payload: map[string]any{
			"cmd": "! touch x && ! (echo > /dev/tcp/127.0.0.1/1) 2> /dev/null", "network": "on", "host_path": dir, "host_path_mode": "rw", "session_id": "32",
		}})
		if err != nil || !r.OK || adjusted(r, "network") != "off" || adjusted(r, "host_path_mode") != "ro" {
			t.Fatalf("got %+v, %v", r, err)
		}
		if got := w.sessions(t)["32"]; got.Network != "off" || got.HostPathMode != "ro" {
			t.Errorf("got %+v", got)
		}
	})
	for _, tt := range []struct {
		name  string
		asked any
	}{
		{"test_profile_timeout_clamped_to_max", 999},
		{"test_profile_timeout_clamped_for_coercible_inputs", "999"},
		{"test_profile_timeout_clamped_for_coercible_inputs/999.0", 999.0},
	} {
		w.subtest(t, tt.name, func(t *testing.T) {
			s := w.service(t, boxservice.Config{})
			r, err := s.ExecuteTool(t.Context(), chat("33"), map[string]any{"command": "echo hi", "timeout_sec": tt.asked})
			if err != nil || !r.OK || adjusted(r, "timeout_sec") != "120" {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
	w.subtest(t, "test_profile_default_applies_resource_limits", func(t *testing.T) {
		s := w.service(t, boxservice.Config{})
		runTool(t, s, chat("40"), "echo hi")
		p, got := s.Profile(), w.sessions(t)["person_test_user"]
		if got.CPUs != p.CPUs || got.MemoryMB != p.MemoryMB || got.PIDsLimit != p.PIDsLimit || got.ReadOnlyRootFS != p.ReadOnlyRootFS || got.WorkspaceQuotaMB != p.WorkspaceQuotaMB {
			t.Errorf("got %+v of %+v", got, p)
		}
	})
	w.subtest(t, "test_profile_offline_readonly_locks_read_only_rootfs", func(t *testing.T) {
		s := w.service(t, boxservice.Config{Profile: "offline_readonly"})
		r, err := s.Execute(t.Context(), boxservice.Request{Query: chat("41"), Payload: map[string]any{"cmd": "echo hi", "read_only_rootfs": false, "session_id": "41"}})
		if err != nil || !r.OK || adjusted(r, "read_only_rootfs") != "true" {
			t.Fatalf("got %+v, %v", r, err)
		}
		if got := w.sessions(t)["41"]; !got.ReadOnlyRootFS {
			t.Errorf("got %+v", got)
		}
	})
	w.subtest(t, "test_profile_network_extended_has_relaxed_limits", func(t *testing.T) {
		s := w.service(t, boxservice.Config{Profile: "network_extended"})
		runTool(t, s, chat("42"), "echo hi")
		if got := w.sessions(t)["person_test_user"]; got.Network != "on" || got.CPUs != 2 || got.MemoryMB != 1024 || got.ReadOnlyRootFS {
			t.Errorf("got %+v", got)
		}
	})
}

// adjusted is what a result says a field got in place of what was asked for.
func adjusted(r boxservice.ToolResult, field string) string {
	for _, a := range r.Adjusted {
		if a.Field == field {
			return show(a.Got)
		}
	}
	return ""
}

func (w *boxWorld) testQuota(t *testing.T) {
	service := func(t *testing.T, mb int) (s *boxservice.Service, dir string) {
		dir = w.dirs(t, "workspace")[0]
		return w.service(t, boxservice.Config{AllowedMountRoots: []string{w.root}, DefaultWorkspace: dir, WorkspaceQuotaMB: &mb}), dir
	}
	w.subtest(t, "test_box_service_applies_workspace_quota_from_config", func(t *testing.T) {
		s, _ := service(t, 32)
		runTool(t, s, chat("43"), "echo hi")
		if got := w.sessions(t)["person_test_user"]; got.WorkspaceQuotaMB != 32 || got.Quota == "" {
			t.Errorf("got %+v", got)
		}
	})
	w.subtest(t, "test_box_service_rejects_execution_when_workspace_already_exceeds_quota", func(t *testing.T) {
		s, dir := service(t, 1)
		if err := os.WriteFile(filepath.Join(dir, "already-too-large.bin"), make([]byte, 2<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := s.ExecuteTool(t.Context(), chat("44"), map[string]any{"command": "echo hi"})
		if boxservice.Class(err) != api.ClassValidation || !strings.Contains(err.Error(), "workspace quota exceeded before execution") {
			t.Errorf("got %v", err)
		}
		if all := w.sessions(t); len(all) != 0 {
			t.Errorf("a session was begun: %v", all)
		}
	})
	w.subtest(t, "test_box_service_rejects_and_cleans_up_when_execution_exceeds_workspace_quota", func(t *testing.T) {
		s, dir := service(t, 1)
		runTool(t, s, chat("45"), "echo hi")
		if all := w.sessions(t); len(all) != 1 {
			t.Fatalf("there are %v", all)
		}
		_, err := s.ExecuteTool(t.Context(), chat("45"), map[string]any{"command": "head -c 2097152 /dev/zero > output.bin"})
		// Where the command takes long enough for the watcher, that stops it.
		found := regexp.MustCompile(`^workspace quota exceeded after execution( was stopped)?: used=[0-9]+ bytes limit=1048576 bytes`)
		if boxservice.Class(err) != api.ClassValidation || !found.MatchString(err.Error()) {
			t.Errorf("got %v", err)
		}
		if all := w.sessions(t); len(all) != 0 {
			t.Errorf("the session is still there: %v", all)
		}
		if _, err := os.Stat(filepath.Join(dir, "output.bin")); err != nil {
			t.Error(err) // the command did run
		}
	})
}
