package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.Trim(string(b), `"`)
}

// TestBoxRuntime has what LangBot's own tests ask of its runtime and of its
// client, by their names, over a real connection.
func TestBoxRuntime(t *testing.T) {
	t.Parallel()
	w := newBoxWorld(t, "process", nil)
	w.testReuse(t)
	w.testObserved(t)
	w.testRPC(t)
}

func (w *boxWorld) testReuse(t *testing.T) {
	w.subtest(t, "test_box_runtime_reuses_request_session", func(t *testing.T) {
		w.exec(t, "req-1", "echo first > /tmp/first")
		first := w.sessions(t)["req-1"]
		if out := w.exec(t, "req-1", "cat /tmp/first"); out != "first\n" {
			t.Errorf("the second command sees %q", out)
		}
		if all := w.sessions(t); len(all) != 1 || all["req-1"].BackendSessionID != first.BackendSessionID || all["req-1"].LastUsedAt.Before(first.LastUsedAt) {
			t.Errorf("there are %v", all)
		}
	})
	conflict := func(first, second boxservice.Spec) func(t *testing.T) {
		return func(t *testing.T) {
			if _, err := w.client.Exec(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			_, err := w.client.Exec(t.Context(), second)
			if _, ok := errors.AsType[*boxservice.ConflictError](err); !ok || boxservice.Class(err) != api.ClassSessionConflict {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(err.Error(), "Box session "+first.SessionID+" already exists with ") {
				t.Errorf("it says %v", err)
			}
			if _, err := w.client.Exec(t.Context(), first); err != nil {
				t.Errorf("as it was: %v", err)
			}
		}
	}
	w.subtest(t, "test_box_runtime_rejects_host_mount_conflict_in_same_session", func(t *testing.T) {
		dirs := w.dirs(t, "first", "second")
		a, b := boxservice.NewSpec("req-mount", "echo first"), boxservice.NewSpec("req-mount", "echo second")
		a.HostPath, b.HostPath = dirs[0], dirs[1]
		conflict(a, b)(t)
	})
	a, b := boxservice.NewSpec("req-resource", "echo first"), boxservice.NewSpec("req-resource", "echo second")
	b.CPUs = 2
	w.subtest(t, "test_box_runtime_rejects_resource_limit_conflict_in_same_session", conflict(a, b))
	a, b = boxservice.NewSpec("r-conflict-1", "echo first"), boxservice.NewSpec("r-conflict-1", "echo second")
	b.Network = "on"
	w.subtest(t, "test_rpc_client_exec_raises_conflict_error", conflict(a, b))
}

func (w *boxWorld) testObserved(t *testing.T) {
	w.subtest(t, "test_runtime_get_status_reports_backend_and_sessions", func(t *testing.T) {
		got, err := w.client.Status(t.Context())
		if err != nil || got.Backend.Name == nil || *got.Backend.Name != "process" || !got.Backend.Available || got.ActiveSessions != 0 {
			t.Fatalf("got %+v, %v", got, err)
		}
		w.exec(t, "obs-1", "echo")
		if got, err = w.client.Status(t.Context()); err != nil || got.ActiveSessions != 1 {
			t.Errorf("with a session: %+v, %v", got, err)
		}
	})
	w.subtest(t, "test_runtime_get_sessions_returns_session_info", func(t *testing.T) {
		w.exec(t, "obs-2", "echo")
		all := w.sessions(t)
		got := all["obs-2"]
		if len(all) != 1 || got.BackendName != "process" || time.Since(got.CreatedAt) > time.Minute || got.LastUsedAt.Before(got.CreatedAt) {
			t.Errorf("got %+v", all)
		}
	})
}

func (w *boxWorld) testRPC(t *testing.T) {
	w.subtest(t, "test_rpc_client_execute", func(t *testing.T) {
		r, err := w.client.Exec(t.Context(), boxservice.NewSpec("r-1", "echo remote"))
		if err != nil || r.SessionID != "r-1" || r.Status != sessions.StatusCompleted || r.ExitCode == nil || *r.ExitCode != 0 || r.Stdout != "remote\n" {
			t.Errorf("got %+v, %v", r, err)
		}
	})
	w.subtest(t, "test_rpc_client_get_sessions", func(t *testing.T) {
		w.exec(t, "r-2", "echo hi")
		if list, err := w.client.List(t.Context()); err != nil || len(list) != 1 || list[0].SessionID != "r-2" {
			t.Errorf("got %+v, %v", list, err)
		}
	})
	w.subtest(t, "test_rpc_client_get_status", func(t *testing.T) {
		if got, err := w.client.Status(t.Context()); err != nil || got.Backend.Name == nil || got.Limits.MaxSessions == 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	w.subtest(t, "test_rpc_client_get_backend_info", func(t *testing.T) {
		if got, err := w.client.Backend(t.Context()); err != nil || got.Name == nil || *got.Name != "process" || !got.Available {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	w.subtest(t, "test_rpc_client_delete_session", func(t *testing.T) {
		w.exec(t, "r-del-1", "echo hi")
		if err := w.client.Delete(t.Context(), "r-del-1"); err != nil {
			t.Fatal(err)
		}
		if all := w.sessions(t); len(all) != 0 {
			t.Errorf("there are %v", all)
		}
	})
	w.subtest(t, "test_rpc_client_delete_session_raises_not_found", func(t *testing.T) {
		err := w.client.Delete(t.Context(), "nonexistent")
		if !errors.Is(err, boxservice.ErrNotFound) || boxservice.Class(err) != api.ClassSessionNotFound || !strings.HasPrefix(err.Error(), "session nonexistent not found") {
			t.Errorf("got %v", err)
		}
	})
	w.subtest(t, "test_rpc_client_create_session", func(t *testing.T) {
		got, err := w.client.Create(t.Context(), boxservice.NewSpec("r-create-1", "placeholder"))
		if err != nil || got.SessionID != "r-create-1" || got.BackendName != "process" {
			t.Fatalf("got %+v, %v", got, err)
		}
		if all := w.sessions(t); len(all) != 1 {
			t.Errorf("there are %v", all)
		}
	})
}
