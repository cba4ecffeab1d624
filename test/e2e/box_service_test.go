package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// TestBoxService has what LangBot's own tests ask of its BoxService, by their
// names, against a real runtime with real sandboxes.
func TestBoxService(t *testing.T) {
	t.Parallel()
	w := newBoxWorld(t, "process", nil)
	w.testSessionIDs(t)
	w.testMounts(t)
	w.testTruncation(t)
	w.testServiceStatus(t)
}

func (w *boxWorld) testSessionIDs(t *testing.T) {
	for _, tt := range []struct {
		name, force string
		q           boxservice.Query
		want        string
	}{
		{"test_box_service_defaults_session_id_from_query", "", chat("7"), "person_test_user"},
		{"test_box_service_session_id_uses_query_attributes_without_variables", "", boxservice.Query{ID: "7", LauncherType: "group", LauncherID: "room-1"}, "group_room-1"},
		{"test_box_service_session_id_falls_back_to_query_id_for_synthetic_queries", "", boxservice.Query{ID: "7"}, "query_7"},
		{
			"test_box_service_forced_template_ignores_pipeline_config", "{global}",
			boxservice.Query{ID: "7", LauncherType: "person", LauncherID: "test_user", Template: "{launcher_type}_{launcher_id}_{sender_id}"},
			"global",
		},
		{
			"test_box_service_empty_forced_template_respects_pipeline_config", "   ",
			boxservice.Query{ID: "7", LauncherType: "group", LauncherID: "room-1", Template: "{launcher_type}_{launcher_id}"},
			"group_room-1",
		},
	} {
		w.subtest(t, tt.name, func(t *testing.T) {
			s := w.service(t, boxservice.Config{ForceTemplate: tt.force})
			if id, err := s.SessionID(tt.q); err != nil || id != tt.want {
				t.Errorf("the query's session is %q, %v", id, err)
			}
			r := runTool(t, s, tt.q, "pwd")
			if r.SessionID != tt.want || !r.OK || r.Stdout != "/workspace\n" {
				t.Errorf("got %+v", r)
			}
			if all := w.sessions(t); len(all) != 1 || all[tt.want].SessionID != tt.want {
				t.Errorf("there are %v", all)
			}
		})
	}
	w.subtest(t, "test_box_service_forced_global_scope_overrides_pipeline_template", func(t *testing.T) {
		s := w.service(t, boxservice.Config{ForceTemplate: "{global}"})
		runTool(t, s, boxservice.Query{ID: "1", LauncherType: "group", LauncherID: "room-1"}, "echo mine > note")
		r := runTool(t, s, boxservice.Query{ID: "2", LauncherType: "person", LauncherID: "alice"}, "cat note")
		if r.SessionID != "global" || r.Stdout != "mine\n" || len(w.sessions(t)) != 1 {
			t.Errorf("got %+v", r)
		}
	})
}

func (w *boxWorld) testMounts(t *testing.T) {
	w.subtest(t, "test_box_service_allows_host_mount_under_configured_root", func(t *testing.T) {
		dir := w.dirs(t, "mounted")[0]
		s := w.service(t, boxservice.Config{AllowedMountRoots: []string{w.root}})
		r, err := s.Execute(t.Context(), boxservice.Request{Query: chat("11"), Payload: map[string]any{
			"cmd": "pwd; echo written > here", "host_path": dir, "host_path_mode": "rw", "session_id": "11",
		}})
		if err != nil || !r.OK || r.Stdout != "/workspace\n" {
			t.Fatalf("got %+v, %v", r, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "here")); err != nil || string(b) != "written\n" {
			t.Errorf("the host has %q, %v", b, err)
		}
	})
	w.subtest(t, "test_box_service_uses_default_workspace_when_host_path_omitted", func(t *testing.T) {
		dir := w.dirs(t, "default")[0]
		s := w.service(t, boxservice.Config{AllowedMountRoots: []string{w.root}, DefaultWorkspace: dir})
		if r := runTool(t, s, chat("15"), "pwd; echo x > here"); !r.OK {
			t.Fatalf("got %+v", r)
		}
		if got := w.sessions(t)["person_test_user"].HostPath; got != dir {
			t.Errorf("its workspace is %s, want %s", got, dir)
		}
		if _, err := os.Stat(filepath.Join(dir, "here")); err != nil {
			t.Error(err)
		}
	})
	w.subtest(t, "test_box_service_creates_default_workspace_on_initialize", func(t *testing.T) {
		root := w.dirs(t, "allowed")[0]
		dir := filepath.Join(root, "made")
		w.service(t, boxservice.Config{AllowedMountRoots: []string{root}, DefaultWorkspace: dir})
		if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
			t.Error("it was not made")
		}
	})
	w.subtest(t, "test_box_service_derives_workspace_and_allowed_root_from_host_root", func(t *testing.T) {
		root := filepath.Join(w.root, "shared-box-root")
		s := w.service(t, boxservice.Config{HostRoot: root})
		if s.HostRoot() != root || s.DefaultWorkspace() != filepath.Join(root, "default") || !slices.Equal(s.AllowedMountRoots(), []string{root}) {
			t.Errorf("%s, %s, %q", s.HostRoot(), s.DefaultWorkspace(), s.AllowedMountRoots())
		}
		if fi, err := os.Stat(filepath.Join(root, "default")); err != nil || !fi.IsDir() {
			t.Error("the workspace was not made")
		}
	})
	w.subtest(t, "test_box_service_rejects_host_mount_outside_allowed_roots", func(t *testing.T) {
		dirs := w.dirs(t, "allowed", "disallowed")
		s := w.service(t, boxservice.Config{AllowedMountRoots: dirs[:1]})
		payload := map[string]any{"cmd": "pwd", "host_path": dirs[1], "session_id": "12"}
		if _, err := s.Execute(t.Context(), boxservice.Request{Query: chat("12"), Payload: payload}); boxservice.Class(err) != api.ClassValidation {
			t.Errorf("by the service: %v", err)
		}
		// The runtime looks for itself, whatever the service let pass.
		outside := t.TempDir()
		r, err := s.Execute(t.Context(), boxservice.Request{Query: chat("12"), TrustMounts: true, Payload: map[string]any{"cmd": "pwd", "host_path": outside, "session_id": "12"}})
		if boxservice.Class(err) != api.ClassValidation {
			t.Errorf("by the runtime: %+v, %v", r, err)
		}
		payload["host_path"] = dirs[0]
		if _, err := s.Execute(t.Context(), boxservice.Request{Query: chat("12"), Payload: payload}); err != nil {
			t.Errorf("where it is allowed: %v", err)
		}
	})
}

func (w *boxWorld) testTruncation(t *testing.T) {
	filler := strings.Repeat("x", 500)
	for _, tt := range []struct {
		name, command  string
		limit          int
		out            string // whole, or its begin and end where it is cut
		end            string
		cutOut, cutErr bool
	}{
		{"test_truncate_short_output_unchanged", "printf 'hello world'", 100, "hello world", "", false, false},
		{"test_truncate_preserves_head_and_tail", "printf 'HEAD_START|" + filler + "|TAIL_END'", 100, "HEAD_START|", "|TAIL_END", true, false},
		{"test_truncate_at_exact_limit_not_truncated", "printf " + strings.Repeat("a", 200), 200, strings.Repeat("a", 200), "", false, false},
		{"test_truncate_stderr_independently", "printf short; printf " + strings.Repeat("E", 300) + " >&2", 100, "short", "", false, true},
	} {
		w.subtest(t, tt.name, func(t *testing.T) {
			s := w.service(t, boxservice.Config{OutputLimit: tt.limit})
			r := runTool(t, s, chat("20"), tt.command)
			if r.StdoutTruncated != tt.cutOut || r.StderrTruncated != tt.cutErr {
				t.Errorf("cut: %v, %v", r.StdoutTruncated, r.StderrTruncated)
			}
			if !tt.cutOut && r.Stdout != tt.out {
				t.Errorf("got %q, want %q", r.Stdout, tt.out)
			}
			if tt.cutOut && !(strings.HasPrefix(r.Stdout, tt.out) && strings.HasSuffix(r.Stdout, tt.end)) {
				t.Errorf("of the begin and the end is left %q", r.Stdout)
			}
			for _, text := range []string{r.Stdout, r.Stderr} {
				if len(text) > tt.limit || len(text) == tt.limit && (tt.cutOut || tt.cutErr) && !strings.Contains(text, "characters truncated") {
					t.Errorf("%d characters: %q", len(text), text)
				}
			}
		})
	}
}

func (w *boxWorld) testServiceStatus(t *testing.T) {
	w.subtest(t, "test_service_get_status_aggregates_runtime_and_profile", func(t *testing.T) {
		s := w.service(t, boxservice.Config{})
		got := s.Status(t.Context())
		if got.Profile != "default" || got.Backend.Name == nil || *got.Backend.Name != "process" || !got.Backend.Available || !got.Available ||
			got.ActiveSessions != 0 || got.RecentErrorCount != 0 || got.ConnectorError != "" {
			t.Errorf("got %+v", got)
		}
		runTool(t, s, chat("1"), "true")
		if got := s.Status(t.Context()); got.ActiveSessions != 1 {
			t.Errorf("with a session: %+v", got)
		}
	})
}
