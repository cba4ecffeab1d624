package boxservice_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

// newService is a service whose runtime is a fake; nil: nobody is there.
func newService(t *testing.T, c boxservice.Config, f *fake) *boxservice.Service {
	t.Helper()
	s, err := boxservice.NewService(c)
	if err != nil {
		t.Fatal(err)
	}
	if s.Connector() != nil {
		s.Connector().SetDial(func(ctx context.Context) (rpc.Conn, error) {
			if f == nil {
				return nil, errors.New("nobody is there")
			}
			return f.dial(ctx)
		})
		t.Cleanup(func() { s.Close() })
	}
	return s
}

// answers has a fake's action answered with a text of JSON.
func (f *fake) answers(action, text string) {
	f.on(action, func(*api.Request) (any, error) { return json.RawMessage(text), nil })
}

func TestServiceWiring(t *testing.T) {
	t.Run("test_box_service_without_explicit_client_initializes_internal_connector", func(t *testing.T) {
		f := newFake(t)
		s := newService(t, boxservice.Config{Profile: "offline_readonly", HostRoot: t.TempDir()}, f)
		if s.Available() {
			t.Error("it is available before it is opened")
		}
		s.Open(t.Context())
		if !s.Available() || s.Client() != s.Connector().Client() || f.connections() != 1 {
			t.Errorf("available %v, connections %d", s.Available(), f.connections())
		}
		if asked := f.asked(); !slices.Equal(asked, []string{api.ActionPing, api.ActionInit, api.ActionListSkills}) {
			t.Errorf("the runtime was asked for %q", asked)
		}
	})
	t.Run("test_box_service_get_sessions_delegates_to_client", func(t *testing.T) {
		f := newFake(t)
		f.answers(api.ActionList, `{"sessions": [{"session_id": "test-session"}]}`)
		s := newService(t, boxservice.Config{}, f)
		if list := s.Sessions(t.Context()); len(list) != 0 {
			t.Errorf("before it is opened: %v", list)
		}
		s.Open(t.Context())
		f.asked()
		list := s.Sessions(t.Context())
		if len(list) != 1 || list[0].SessionID != "test-session" {
			t.Errorf("got %v", list)
		}
		if asked := f.asked(); !slices.Equal(asked, []string{api.ActionList}) {
			t.Errorf("the runtime was asked for %q", asked)
		}
		f.on(api.ActionList, func(*api.Request) (any, error) { return nil, errors.New("BoxError: no") })
		if list := s.Sessions(t.Context()); list == nil || len(list) != 0 {
			t.Errorf("where the runtime fails: %v", list)
		}
	})
	t.Run("test_box_service_dispose_delegates_to_internal_connector", func(t *testing.T) {
		f := newFake(t)
		s := newService(t, boxservice.Config{}, f)
		s.Open(t.Context())
		f.asked()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if state, _ := s.Connector().State(); state != boxservice.Closed || s.Available() {
			t.Errorf("the connector is %s, the service available: %v", state, s.Available())
		}
		if asked := f.asked(); len(asked) != 0 {
			t.Errorf("the runtime was asked for %q: its sessions are to go on", asked)
		}
	})
	t.Run("test_box_service_dispose_schedules_shutdown_on_event_loop", func(t *testing.T) {
		f := newFake(t)
		s := newService(t, boxservice.Config{}, f)
		s.Open(t.Context())
		f.asked()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if asked := f.asked(); !slices.Equal(asked, []string{api.ActionShutdown}) {
			t.Errorf("the runtime was asked for %q", asked)
		}
		if state, _ := s.Connector().State(); state != boxservice.Closed {
			t.Errorf("the connector is %s", state)
		}
		if _, err := s.ExecuteTool(t.Context(), boxservice.Query{}, map[string]any{"command": "true"}); !errors.Is(err, boxservice.ErrUnavailable) {
			t.Errorf("a command after the end: %v", err)
		}
	})
}

func TestSharesFilesystemWithBox(t *testing.T) {
	yes, no := true, false
	runtime := boxservice.Runtime(newConnector(t, boxservice.Options{}, nil).Client())
	for _, tt := range []struct {
		name string
		c    boxservice.Config
		want bool
	}{
		{"test_true_for_stdio_connector", boxservice.Config{}, true},
		{"test_false_for_websocket_connector_via_endpoint", boxservice.Config{Connect: boxservice.Options{Endpoint: "ws://pod-x-box:5410"}}, false},
		{"test_false_for_websocket_connector_in_docker", boxservice.Config{Connect: boxservice.Options{Platform: boxservice.PlatformDocker}}, false},
		{"standalone", boxservice.Config{Connect: boxservice.Options{Standalone: true}}, false},
		{"test_false_when_client_injected_without_connector", boxservice.Config{Runtime: runtime}, false},
		{"test_explicit_override_wins", boxservice.Config{Runtime: runtime, SharesFilesystem: &yes}, true},
		{"test_explicit_override_wins/false", boxservice.Config{SharesFilesystem: &no}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := boxservice.NewService(tt.c)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.SharesFilesystem(); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if s.Connector() != nil && tt.c.SharesFilesystem == nil && s.Connector().UsesWebSocket() == tt.want {
				t.Errorf("the connector uses WebSocket: %v", s.Connector().UsesWebSocket())
			}
		})
	}
}

func TestBoxDisabledByConfig(t *testing.T) {
	disabled := boxservice.Config{Connect: boxservice.Options{Disabled: true}}
	t.Run("test_initialize_skips_connector_when_disabled", func(t *testing.T) {
		f := newFake(t)
		s := newService(t, disabled, f)
		s.Open(t.Context())
		if f.connections() != 0 || s.Enabled() || s.Available() {
			t.Errorf("connections %d, enabled %v, available %v", f.connections(), s.Enabled(), s.Available())
		}
		if why := s.Status(t.Context()).ConnectorError; !strings.Contains(strings.ToLower(why), "disabled") {
			t.Errorf("it says %q", why)
		}
		if _, err := s.ExecuteTool(t.Context(), boxservice.Query{}, map[string]any{"command": "true"}); boxservice.Class(err) != api.ClassRuntimeUnavailable {
			t.Errorf("a command: %v", err)
		}
	})
	t.Run("test_get_status_reports_disabled", func(t *testing.T) {
		s := newService(t, disabled, nil)
		s.Open(t.Context())
		got := s.Status(t.Context())
		if got.Available || got.Enabled || !strings.Contains(strings.ToLower(got.ConnectorError), "disabled") {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("test_get_status_distinguishes_enabled_but_unavailable", func(t *testing.T) {
		s := newService(t, boxservice.Config{}, nil)
		s.Open(t.Context())
		got := s.Status(t.Context())
		if got.Available || !got.Enabled || !strings.Contains(got.ConnectorError, "nobody is there") {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("test_get_status_downgrades_available_when_backend_dead", func(t *testing.T) {
		f := newFake(t)
		f.answers(api.ActionStatus, `{"backend": {"name": "nsjail", "available": false}, "active_sessions": 0}`)
		s := newService(t, boxservice.Config{}, f)
		s.Open(t.Context())
		got := s.Status(t.Context())
		if !s.Available() || got.Available || !got.Enabled || got.Backend.Name == nil || *got.Backend.Name != "nsjail" ||
			got.ConnectorError != `Configured sandbox backend "nsjail" is unavailable` {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("test_get_status_keeps_available_true_when_backend_ok", func(t *testing.T) {
		f := newFake(t)
		f.answers(api.ActionStatus, `{"backend": {"name": "docker", "available": true}, "active_sessions": 2}`)
		s := newService(t, boxservice.Config{}, f)
		s.Open(t.Context())
		got := s.Status(t.Context())
		if !got.Available || got.Backend.Name == nil || *got.Backend.Name != "docker" || got.ActiveSessions != 2 || got.ConnectorError != "" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("test_disconnect_callback_is_no_op_when_disabled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			s := newService(t, disabled, f)
			s.Open(t.Context())
			s.Connector().Reconnect(s.Connector().Generation())
			time.Sleep(time.Hour)
			state, _ := s.Connector().State()
			if why := s.Status(t.Context()).ConnectorError; state != boxservice.Disabled || f.connections() != 0 || !strings.Contains(why, "disabled") {
				t.Errorf("it is %s, after %d connections: %s", state, f.connections(), why)
			}
		})
	})
}

func TestBuildSkillExtraMounts(t *testing.T) {
	yes, no := true, false
	live := t.TempDir()
	mounted := func(root, name string) boxservice.Mount {
		return boxservice.Mount{HostPath: root, MountPath: "/workspace/.skills/" + name, Mode: "rw"}
	}
	for _, tt := range []struct {
		name   string
		shares *bool
		skills []boxservice.Skill
		want   []boxservice.Mount
		warns  string
	}{
		{
			"test_skips_skill_with_missing_package_root", &yes,
			[]boxservice.Skill{{Name: "alive", PackageRoot: live}, {Name: "ghost", PackageRoot: "/nonexistent/path/should/never/exist"}},
			[]boxservice.Mount{mounted(live, "alive")},
			"ghost",
		},
		{
			"test_trusts_box_paths_when_filesystem_not_shared", &no,
			[]boxservice.Skill{{Name: "a", PackageRoot: "/box/skills/a"}, {Name: "b", PackageRoot: "/box/skills/b"}},
			[]boxservice.Mount{mounted("/box/skills/a", "a"), mounted("/box/skills/b", "b")},
			"",
		},
		{
			"test_skips_skill_with_empty_package_root", &yes,
			[]boxservice.Skill{{Name: "no_root"}, {Name: "whitespace", PackageRoot: "   "}},
			[]boxservice.Mount{},
			"",
		},
		{"test_empty_package_root_skipped_even_when_not_shared", &no, []boxservice.Skill{{Name: "no_root"}}, []boxservice.Mount{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log syncBuffer
			s := newService(t, boxservice.Config{
				SharesFilesystem: tt.shares, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Skills: func(context.Context, boxservice.Query) []boxservice.Skill { return tt.skills },
			}, nil)
			if d := cmp.Diff(tt.want, s.SkillMounts(t.Context(), boxservice.Query{ID: "1"})); d != "" {
				t.Error(d)
			}
			if said := strings.Contains(log.String(), "package_root missing"); said != (tt.warns != "") || !strings.Contains(log.String(), tt.warns) {
				t.Errorf("it logged %q", log.String())
			}
		})
	}
	t.Run("test_returns_empty_when_no_skill_manager", func(t *testing.T) {
		s := newService(t, boxservice.Config{}, nil)
		if got := s.SkillMounts(t.Context(), boxservice.Query{}); got == nil || len(got) != 0 {
			t.Errorf("got %v", got)
		}
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestServiceAfterReconnect has the runtime lose its connection: meanwhile
// nothing is available, and afterwards the workspace is there again, and the
// packages are those of now.
func TestServiceAfterReconnect(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.answers(api.ActionListSkills, `{"skills": [{"name": "old", "package_root": "/s/old"}]}`)
		yes := true
		var mu sync.Mutex
		var told []string
		note := func(s string) { mu.Lock(); defer mu.Unlock(); told = append(told, s) }
		s := newService(t, boxservice.Config{
			HostRoot: root, SharesFilesystem: &yes,
			Connect: boxservice.Options{
				OnConnect:    func(context.Context, *boxservice.Client) { note("connected") },
				OnDisconnect: func(error) { note("disconnected") },
			},
		}, f)
		s.Open(t.Context())
		if s.DefaultWorkspace() != filepath.Join(root, "default") || len(s.Skills()) != 1 || s.Skills()[0].Name != "old" {
			t.Fatalf("workspace %s, skills %v", s.DefaultWorkspace(), s.Skills())
		}
		if err := os.Remove(s.DefaultWorkspace()); err != nil {
			t.Fatal(err)
		}
		f.answers(api.ActionListSkills, `{"skills": [{"name": "new", "package_root": "/s/new"}]}`)
		f.newest().Close()
		synctest.Wait()
		if !s.Available() || len(s.Skills()) != 1 || s.Skills()[0].Name != "new" {
			t.Errorf("available %v, skills %v", s.Available(), s.Skills())
		}
		if _, err := os.Stat(s.DefaultWorkspace()); err != nil {
			t.Error(err)
		}
		s.Close()
		if !slices.Equal(told, []string{"connected", "disconnected", "connected", "disconnected"}) {
			t.Errorf("the platform was told %q", told)
		}
	})
}

// TestServiceComesLater opens a service before its runtime is there.
func TestServiceComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := newService(t, boxservice.Config{}, f)
		var there atomic.Bool
		s.Connector().SetDial(func(ctx context.Context) (rpc.Conn, error) {
			if !there.Load() {
				return nil, errors.New("nobody is there")
			}
			return f.dial(ctx)
		})
		s.Open(t.Context())
		if s.Available() {
			t.Fatal("it is available")
		}
		there.Store(true)
		time.Sleep(time.Minute)
		if !s.Available() {
			t.Errorf("it is not: %+v", s.Status(t.Context()))
		}
	})
}

func TestNewService(t *testing.T) {
	t.Run("test_unknown_profile_raises_error", func(t *testing.T) {
		_, err := boxservice.NewService(boxservice.Config{Profile: "nonexistent"})
		if boxservice.Class(err) != api.ClassValidation || !strings.Contains(err.Error(), "unknown box profile") || !strings.Contains(err.Error(), "network_extended") {
			t.Errorf("got %v", err)
		}
	})
}
