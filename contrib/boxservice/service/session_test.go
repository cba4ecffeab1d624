package service_test

import (
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice/service"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
)

// ran runs a command for a query and returns the key of its session.
func ran(t *testing.T, s *service.Service, q service.Query) string {
	t.Helper()
	r, err := s.ExecuteTool(t.Context(), q, map[string]any{"command": "pwd"})
	if err != nil || !r.OK {
		t.Fatalf("ExecuteTool = %+v, %v", r, err)
	}
	return r.SessionID
}

func TestSessionID(t *testing.T) {
	for _, tt := range []struct {
		name, force string
		query       service.Query
		want        string
	}{
		{"test_box_service_defaults_session_id_from_query", "", query("7"), "person_test_user"},
		{
			"test_box_service_session_id_uses_query_attributes_without_variables", "",
			service.Query{ID: "7", LauncherType: "group", LauncherID: "room-1"},
			"group_room-1",
		},
		{"test_box_service_session_id_falls_back_to_query_id_for_synthetic_queries", "", service.Query{ID: "7"}, "query_7"},
		{
			"test_box_service_forced_template_ignores_pipeline_config", "{global}",
			service.Query{
				ID: "7", LauncherType: "person", LauncherID: "test_user", SenderID: "test_user",
				Template: "{launcher_type}_{launcher_id}_{sender_id}",
			},
			"global",
		},
		{
			"test_box_service_empty_forced_template_respects_pipeline_config", "   ",
			service.Query{ID: "7", LauncherType: "group", LauncherID: "room-1", Template: "{launcher_type}_{launcher_id}"},
			"group_room-1",
		},
		{"nothing-is-known", "", service.Query{}, "query_unknown"},
		{"sender", "", service.Query{ID: "7", LauncherID: "room", Template: "{sender_id}"}, "room"},
		{"a-variable-of-the-query-comes-first", "", service.Query{LauncherID: "a", Variables: map[string]string{"launcher_id": "b"}, Template: "{launcher_id}"}, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt := &fakeRuntime{}
			s := initialized(t, rt, func(o *service.Options) { o.ForceTemplate = tt.force })
			if got, err := s.SessionID(tt.query); err != nil || got != tt.want {
				t.Errorf("SessionID = %q, %v, want %q", got, err, tt.want)
			}
			if got := ran(t, s, tt.query); got != tt.want || rt.started[0].SessionID != tt.want {
				t.Errorf("ran in %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("test_box_service_forced_global_scope_overrides_pipeline_template", func(t *testing.T) {
		rt := &fakeRuntime{}
		s := initialized(t, rt, func(o *service.Options) { o.ForceTemplate = "{global}" })
		for _, q := range []service.Query{
			{ID: "1", LauncherType: "group", LauncherID: "room-1"}, {ID: "2", LauncherType: "person", LauncherID: "alice"},
		} {
			if got := ran(t, s, q); got != "global" {
				t.Errorf("ran in %q, want global", got)
			}
		}
		if len(rt.started) != 1 {
			t.Errorf("%d sessions were started, want 1", len(rt.started))
		}
	})
	t.Run("bad-templates", func(t *testing.T) {
		if _, err := service.New(service.Options{Runtime: &fakeRuntime{}, ForceTemplate: "{"}); profile.Class(err) != langbot.ClassValidation {
			t.Errorf("New = %v", err)
		}
		s := initialized(t, &fakeRuntime{})
		for _, template := range []string{"{", "{query_id:4}", " "} {
			q := query("1")
			q.Template = template
			if _, err := s.ExecuteTool(t.Context(), q, map[string]any{"command": "pwd"}); profile.Class(err) != langbot.ClassValidation {
				t.Errorf("template %q: %v", template, err)
			}
		}
	})
}

// rooted is a service with these roots, and its runtime.
func rooted(t *testing.T, c hostroot.Config) (*service.Service, *fakeRuntime) {
	t.Helper()
	rt := &fakeRuntime{}
	return initialized(t, rt, func(o *service.Options) { o.Roots = roots(t, c) }), rt
}

// mounting is a command in a session with a directory of the host.
func mounting(id, path string) map[string]any {
	return map[string]any{"cmd": "pwd", "host_path": path, "host_path_mode": "rw", "session_id": id}
}

func TestHostMounts(t *testing.T) {
	t.Run("test_box_service_allows_host_mount_under_configured_root", func(t *testing.T) {
		root := mkdirs(t, "mounted-workspace")
		s, rt := rooted(t, hostroot.Config{AllowedMountRoots: []string{root}})
		r, err := s.Execute(t.Context(), service.Request{Query: query("11"), Payload: mounting("11", filepath.Join(root, "mounted-workspace"))})
		if err != nil || !r.OK || rt.started[0].SessionID != "11" {
			t.Errorf("Execute = %+v, %v", r, err)
		}
	})
	t.Run("test_box_service_rejects_host_mount_outside_allowed_roots", func(t *testing.T) {
		root := mkdirs(t, "allowed", "disallowed")
		s, rt := rooted(t, hostroot.Config{AllowedMountRoots: []string{filepath.Join(root, "allowed")}})
		_, err := s.Execute(t.Context(), service.Request{Query: query("12"), Payload: mounting("12", filepath.Join(root, "disallowed"))})
		if profile.Class(err) != langbot.ClassValidation || len(rt.started) > 0 {
			t.Errorf("Execute = %v, and %d sessions were started", err, len(rt.started))
		}
	})
	t.Run("test_box_service_uses_default_workspace_when_host_path_omitted", func(t *testing.T) {
		root := mkdirs(t, "default-workspace")
		ws := filepath.Join(root, "default-workspace")
		s, rt := rooted(t, hostroot.Config{DefaultWorkspace: ws, AllowedMountRoots: []string{root}})
		if got := ran(t, s, query("15")); got != "person_test_user" || rt.started[0].HostPath != ws || rt.execs[0].Cmd != "pwd" {
			t.Errorf("ran in %q with %q", got, rt.started[0].HostPath)
		}
	})
	t.Run("test_box_service_creates_default_workspace_on_initialize", func(t *testing.T) {
		root := mkdirs(t, "allowed-root")
		ws := filepath.Join(root, "allowed-root/default-workspace")
		s, _ := rooted(t, hostroot.Config{DefaultWorkspace: ws, AllowedMountRoots: []string{filepath.Join(root, "allowed-root")}})
		if !s.Available() || !there(ws) {
			t.Errorf("available %v, made %v", s.Available(), there(ws))
		}
	})
	t.Run("test_box_service_derives_workspace_and_allowed_root_from_host_root", func(t *testing.T) {
		host := filepath.Join(mkdirs(t), "shared-box-root")
		r := roots(t, hostroot.Config{HostRoot: host})
		s := initialized(t, &fakeRuntime{}, func(o *service.Options) { o.Roots = r })
		ws := filepath.Join(host, "default")
		if r.HostRoot() != host || r.DefaultWorkspace() != ws || len(r.Allowed()) != 1 || r.Allowed()[0] != host || !s.Available() || !there(ws) {
			t.Errorf("host root %q, workspace %q, allowed %q, made %v", r.HostRoot(), r.DefaultWorkspace(), r.Allowed(), there(ws))
		}
	})
}

func TestHostMountRules(t *testing.T) {
	t.Run("default-workspace-that-can-not-be", func(t *testing.T) {
		root := mkdirs(t, "allowed")
		s, rt := rooted(t, hostroot.Config{DefaultWorkspace: filepath.Join(root, "x"), AllowedMountRoots: []string{filepath.Join(root, "allowed")}})
		status := s.Status(t.Context())
		if status.Available || status.ConnectorError == "" {
			t.Errorf("Status = %+v", status)
		}
		if _, err := s.ExecuteTool(t.Context(), query("1"), map[string]any{"command": "x"}); err == nil || rt.calls > 0 {
			t.Errorf("ExecuteTool = %v, after %d calls", err, rt.calls)
		}
	})
	t.Run("further-mounts-go-by-the-same-rule", func(t *testing.T) {
		root := mkdirs(t, "allowed/more", "other")
		s, _ := rooted(t, hostroot.Config{AllowedMountRoots: []string{filepath.Join(root, "allowed")}})
		for path, ok := range map[string]bool{"allowed/more": true, "other": false} {
			for _, target := range []string{"/mnt/x", "/workspace/.skills/x"} {
				_, err := s.Execute(t.Context(), service.Request{Query: query("1"), Payload: map[string]any{
					"cmd": "pwd", "session_id": "s",
					"extra_mounts": []any{map[string]any{"host_path": filepath.Join(root, path), "mount_path": target}},
				}})
				if (err == nil) != ok {
					t.Errorf("%s at %s: %v, want ok %v", path, target, err, ok)
				}
			}
		}
	})
	t.Run("another-file-system", func(t *testing.T) {
		s := initialized(t, &fakeRuntime{}, func(o *service.Options) {
			o.SharesFilesystem = nil
			o.Roots = roots(t, hostroot.Config{HostRoot: "/nowhere/on/this/machine"})
		})
		if !s.Available() || there("/nowhere") {
			t.Error("the workspace of another machine was looked for here")
		}
		ran(t, s, query("1"))
		if _, err := s.Execute(t.Context(), service.Request{Query: query("1"), Payload: mounting("s", "/elsewhere")}); profile.Class(err) != langbot.ClassValidation {
			t.Errorf("Execute = %v", err)
		}
	})
}
