package service_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice/service"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
)

func TestLifecycle(t *testing.T) {
	t.Run("test_box_service_without_explicit_client_initializes_internal_connector", func(t *testing.T) {
		c := &fakeConnector{webSocket: true}
		s := newService(t, service.Options{Runtime: &fakeRuntime{}, Connector: c})
		if c.opened > 0 || s.Available() {
			t.Error("connected before it was told to")
		}
		s.Initialize(t.Context())
		if c.opened != 1 || !s.Available() {
			t.Errorf("opened %d times, available %v", c.opened, s.Available())
		}
	})
	t.Run("test_box_service_get_sessions_delegates_to_client", func(t *testing.T) {
		rt := &fakeRuntime{}
		got := initialized(t, rt).Sessions(t.Context())
		if len(got) != 1 || got[0].SessionID != "test-session" || rt.calls != 1 {
			t.Errorf("Sessions = %+v after %d calls", got, rt.calls)
		}
	})
	t.Run("no-sessions-where-nothing-can-tell", func(t *testing.T) {
		for name, s := range map[string]*service.Service{
			"error":     initialized(t, &fakeRuntime{err: errors.New("x")}),
			"not-ready": newService(t, service.Options{Runtime: &fakeRuntime{}}),
		} {
			if got := s.Sessions(t.Context()); got == nil || len(got) > 0 {
				t.Errorf("%s: Sessions = %#v", name, got)
			}
		}
	})
	t.Run("test_box_service_dispose_delegates_to_internal_connector", func(t *testing.T) {
		c := &fakeConnector{webSocket: true}
		s := newService(t, service.Options{Runtime: &fakeRuntime{}, Connector: c})
		for range 2 {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if c.closed != 1 {
			t.Errorf("closed %d times, want 1", c.closed)
		}
	})
	t.Run("test_box_service_dispose_schedules_shutdown_on_event_loop", func(t *testing.T) {
		c, rt := &fakeConnector{webSocket: true}, &fakeStopper{}
		s := newService(t, service.Options{Runtime: rt, Connector: c})
		s.Initialize(t.Context())
		if err := s.Close(t.Context()); err != nil || rt.stopped != 1 || c.closed != 1 {
			t.Errorf("Close = %v: runtime stopped %d times, connector closed %d", err, rt.stopped, c.closed)
		}
		s.Connected()
		if s.Disconnected(nil) || s.Available() {
			t.Error("a closed service came back")
		}
	})
}

// fakeStopper is a fakeRuntime that does not want to be shut down.
type fakeStopper struct {
	fakeRuntime
	stopped int
}

func (f *fakeStopper) Shutdown(context.Context) error {
	f.stopped++
	return errors.New("it is gone already")
}

func TestSharesFilesystemWithBox(t *testing.T) {
	shares := func(o service.Options) bool {
		o.Runtime = &fakeRuntime{}
		return newService(t, o).SharesFilesystem()
	}
	yes, no := func() bool { return true }, func() bool { return false }
	for name, tt := range map[string]struct {
		o    service.Options
		want bool
	}{
		"test_true_for_stdio_connector":                     {service.Options{Connector: &fakeConnector{}}, true},
		"test_false_for_websocket_connector_via_endpoint":   {service.Options{Connector: &fakeConnector{webSocket: true}}, false},
		"test_false_when_client_injected_without_connector": {service.Options{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shares(tt.o); got != tt.want {
				t.Errorf("SharesFilesystem = %v, want %v", got, tt.want)
			}
		})
	}
	t.Run("test_explicit_override_wins", func(t *testing.T) {
		if !shares(service.Options{SharesFilesystem: yes}) || !shares(service.Options{SharesFilesystem: yes, Connector: &fakeConnector{webSocket: true}}) ||
			shares(service.Options{SharesFilesystem: no, Connector: &fakeConnector{}}) {
			t.Error("what was said does not count")
		}
	})
}

func TestBoxDisabledByConfig(t *testing.T) {
	disabled := func(t *testing.T) (*service.Service, *fakeRuntime, *fakeConnector) {
		t.Helper()
		rt, c := &fakeRuntime{}, &fakeConnector{}
		host := filepath.Join(mkdirs(t), "box")
		s := newService(t, service.Options{Runtime: rt, Connector: c, Disabled: true, Roots: roots(t, hostroot.Config{HostRoot: host})})
		t.Cleanup(func() {
			if rt.calls > 0 || c.opened > 0 || c.closed > 0 || there(host) {
				t.Errorf("a disabled service made %d calls, opened %d and closed %d connections, made the workspace: %v", rt.calls, c.opened, c.closed, there(host))
			}
		})
		return s, rt, c
	}
	t.Run("test_initialize_skips_connector_when_disabled", func(t *testing.T) {
		s, _, _ := disabled(t)
		s.Initialize(t.Context())
		if s.Enabled() || s.Available() || s.Usable(t.Context()) || !strings.Contains(s.Status(t.Context()).ConnectorError, "disabled") {
			t.Errorf("Status = %+v", s.Status(t.Context()))
		}
		if _, err := s.ExecuteTool(t.Context(), query("1"), map[string]any{"command": "x"}); err == nil || !strings.Contains(err.Error(), "disabled") {
			t.Errorf("ExecuteTool = %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("test_get_status_reports_disabled", func(t *testing.T) {
		s, _, _ := disabled(t)
		for range 2 { // before it is initialized, too
			status := s.Status(t.Context())
			if status.Available || status.Enabled || !strings.Contains(status.ConnectorError, "disabled") || status.Profile != "default" {
				t.Errorf("Status = %+v", status)
			}
			s.Initialize(t.Context())
		}
	})
	t.Run("test_disconnect_callback_is_no_op_when_disabled", func(t *testing.T) {
		s, _, _ := disabled(t)
		s.Initialize(t.Context())
		s.Connected()
		if s.Disconnected(errors.New("gone")) || s.Available() || !strings.Contains(s.Status(t.Context()).ConnectorError, "disabled") {
			t.Errorf("Status = %+v", s.Status(t.Context()))
		}
	})
	t.Run("test_get_status_distinguishes_enabled_but_unavailable", func(t *testing.T) {
		rt := &fakeRuntime{}
		s := newService(t, service.Options{Runtime: rt, Connector: &fakeConnector{err: errors.New("docker daemon not running")}})
		s.Initialize(t.Context())
		status := s.Status(t.Context())
		if status.Available || !status.Enabled || !strings.Contains(status.ConnectorError, "docker daemon") || rt.calls > 0 {
			t.Errorf("Status = %+v after %d calls", status, rt.calls)
		}
		_, err := s.ExecuteTool(t.Context(), query("1"), map[string]any{"command": "x"})
		if profile.Class(err) != langbot.ClassRuntimeUnavailable || !strings.HasPrefix(err.Error(), "Box runtime is not available") || rt.calls > 0 {
			t.Errorf("ExecuteTool = %v after %d calls", err, rt.calls)
		}
	})
	t.Run("test_get_status_downgrades_available_when_backend_dead", func(t *testing.T) {
		s := initialized(t, &fakeRuntime{noBackend: true})
		status := s.Status(t.Context())
		if status.Available || !status.Enabled || status.Backend.Available || *status.Backend.Name != "fake" ||
			status.ConnectorError != `Configured sandbox backend "fake" is unavailable` || s.Usable(t.Context()) {
			t.Errorf("Status = %+v", status)
		}
	})
	t.Run("test_get_status_keeps_available_true_when_backend_ok", func(t *testing.T) {
		s := initialized(t, &fakeRuntime{})
		status := s.Status(t.Context())
		if !status.Available || !status.Backend.Available || status.ConnectorError != "" || !s.Usable(t.Context()) {
			t.Errorf("Status = %+v", status)
		}
	})
}

func TestStatus(t *testing.T) {
	t.Run("test_service_get_status_aggregates_runtime_and_profile", func(t *testing.T) {
		status := initialized(t, &fakeRuntime{}).Status(t.Context())
		if status.Profile != "default" || *status.Backend.Name != "fake" || !status.Backend.Available || status.ActiveSessions != 0 || status.RecentErrorCount != 0 {
			t.Errorf("Status = %+v", status)
		}
	})
	t.Run("no-backend-at-all", func(t *testing.T) {
		status := initialized(t, fakeNothing{&fakeRuntime{}}).Status(t.Context())
		if status.Available || status.ConnectorError != "No supported sandbox backend is available" {
			t.Errorf("Status = %+v", status)
		}
	})
	t.Run("runtime-that-fails", func(t *testing.T) {
		s := initialized(t, &fakeRuntime{err: errors.New("the line is cut")})
		status := s.Status(t.Context())
		if status.Available || status.ConnectorError != "the line is cut" || s.Usable(t.Context()) {
			t.Errorf("Status = %+v", status)
		}
	})
	t.Run("comes-and-goes", func(t *testing.T) {
		s := initialized(t, &fakeRuntime{})
		if !s.Disconnected(nil) || s.Available() || s.Status(t.Context()).ConnectorError != "Disconnected from Box runtime" {
			t.Errorf("Status = %+v", s.Status(t.Context()))
		}
		s.Connected()
		if !s.Available() || s.Status(t.Context()).ConnectorError != "" {
			t.Errorf("Status = %+v", s.Status(t.Context()))
		}
	})
	t.Run("gone-before-open-returned", func(t *testing.T) {
		c := &fakeConnector{webSocket: true}
		s := newService(t, service.Options{Runtime: &fakeRuntime{}, Connector: c})
		c.onOpen = func() { s.Connected(); s.Disconnected(nil) }
		s.Initialize(t.Context())
		if s.Available() {
			t.Error("a connection that has ended counts")
		}
	})
}

// fakeNothing is a fakeRuntime without a wall.
type fakeNothing struct{ *fakeRuntime }

func (fakeNothing) Status(context.Context) (sessions.RuntimeStatus, error) {
	return sessions.RuntimeStatus{}, nil
}

func TestBuildSkillExtraMounts(t *testing.T) {
	build := func(t *testing.T, shares bool, skills ...sessions.Skill) (mounts []sessions.Mount, log string) {
		t.Helper()
		var out bytes.Buffer
		s := newService(t, service.Options{
			Runtime: &fakeRuntime{}, SharesFilesystem: func() bool { return shares },
			Skills: func(context.Context, service.Query) []sessions.Skill { return skills },
			Log:    slog.New(slog.NewTextHandler(&out, nil)),
		})
		return s.SkillMounts(t.Context(), query("42")), out.String()
	}
	at := func(root, name string) sessions.Mount {
		return sessions.Mount{HostPath: root, MountPath: "/workspace/.skills/" + name, Mode: "rw"}
	}
	t.Run("test_skips_skill_with_missing_package_root", func(t *testing.T) {
		live := mkdirs(t)
		got, log := build(t, true, sessions.Skill{Name: "alive", PackageRoot: live}, sessions.Skill{Name: "ghost", PackageRoot: "/nonexistent/path/should/never/exist"})
		if d := cmp.Diff([]sessions.Mount{at(live, "alive")}, got); d != "" || !strings.Contains(log, "package_root missing") || !strings.Contains(log, "ghost") {
			t.Errorf("log %q, mounts (-want +got):\n%s", log, d)
		}
	})
	t.Run("test_trusts_box_paths_when_filesystem_not_shared", func(t *testing.T) {
		got, log := build(t, false, sessions.Skill{Name: "a", PackageRoot: "/box/skills/a"}, sessions.Skill{Name: "b", PackageRoot: "/box/skills/b"})
		if d := cmp.Diff([]sessions.Mount{at("/box/skills/a", "a"), at("/box/skills/b", "b")}, got); d != "" || log != "" {
			t.Errorf("log %q, mounts (-want +got):\n%s", log, d)
		}
	})
	empty := func(t *testing.T, got []sessions.Mount) {
		t.Helper()
		if got == nil || len(got) > 0 {
			t.Errorf("mounts %#v, want []", got)
		}
	}
	t.Run("test_skips_skill_with_empty_package_root", func(t *testing.T) {
		got, _ := build(t, true, sessions.Skill{Name: "no_root"}, sessions.Skill{Name: "whitespace", PackageRoot: "   "})
		empty(t, got)
	})
	t.Run("test_empty_package_root_skipped_even_when_not_shared", func(t *testing.T) {
		got, _ := build(t, false, sessions.Skill{Name: "no_root"})
		empty(t, got)
	})
	t.Run("test_returns_empty_when_no_skill_manager", func(t *testing.T) {
		empty(t, newService(t, service.Options{Runtime: &fakeRuntime{}}).SkillMounts(t.Context(), query("42")))
	})
	t.Run("a-name-that-leads-elsewhere", func(t *testing.T) {
		got, log := build(t, false, sessions.Skill{Name: "../../etc", PackageRoot: "/box/skills/x"})
		empty(t, got)
		if !strings.Contains(log, "not a name") {
			t.Errorf("log %q", log)
		}
	})
	t.Run("are-in-the-session", func(t *testing.T) {
		live, rt, listed := mkdirs(t), &fakeRuntime{}, 0
		s := initialized(t, rt, func(o *service.Options) {
			o.Skills = func(context.Context, service.Query) []sessions.Skill {
				listed++
				return []sessions.Skill{{Name: "a", PackageRoot: live}}
			}
		})
		if _, spec := tool(t, rt, s, map[string]any{}); !cmp.Equal(spec.ExtraMounts, []sessions.Mount{at(live, "a")}) || listed != 1 {
			t.Errorf("mounts %v, listed %d times", spec.ExtraMounts, listed)
		}
		// A caller that names them itself is believed, as far as they are skills.
		for path, ok := range map[string]bool{live: true, mkdirs(t): false} {
			m := at(path, "a")
			_, err := s.Execute(t.Context(), service.Request{Query: query("1"), Payload: map[string]any{"cmd": "x", "session_id": "s", "extra_mounts": []sessions.Mount{m}}})
			if (err == nil) != ok {
				t.Errorf("%v: %v, want ok %v", m, err, ok)
			}
		}
	})
}
