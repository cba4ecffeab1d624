package boxservice_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// noBackend is a runtime that answers, and has no wall.
func noBackend(t *testing.T) (*boxservice.Service, *fake) {
	t.Helper()
	f := newFake(t)
	f.on(api.ActionExec, func(*api.Request) (any, error) {
		return nil, errors.New("BoxBackendUnavailableError: no wall is available")
	})
	f.answers(api.ActionBackendInfo, `{"name": null, "available": false}`)
	f.answers(api.ActionStatus, `{"backend": {"name": null, "available": false}}`)
	s := newService(t, boxservice.Config{}, f)
	s.Open(t.Context())
	return s, f
}

// TestBackendGone is for what happens where no sandbox can be had: nothing runs
// anywhere else, and it is said.
func TestBackendGone(t *testing.T) {
	t.Run("test_box_service_fails_closed_when_backend_unavailable", func(t *testing.T) {
		s, _ := noBackend(t)
		_, err := s.ExecuteTool(t.Context(), boxservice.Query{ID: "9"}, map[string]any{"command": "echo hello"})
		if !errors.Is(err, boxservice.ErrBackend) || boxservice.Class(err) != api.ClassBackendUnavailable {
			t.Errorf("got %v", err)
		}
		if s.Usable(t.Context()) {
			t.Error("it is usable")
		}
	})
	t.Run("test_runtime_get_backend_info_when_no_backend", func(t *testing.T) {
		s, _ := noBackend(t)
		if b, err := s.Client().Backend(t.Context()); err != nil || b.Name != nil || b.Available {
			t.Errorf("got %+v, %v", b, err)
		}
		if got := s.Status(t.Context()); got.Available || got.ConnectorError != "No supported sandbox backend is available" {
			t.Errorf("its status is %+v", got)
		}
	})
	t.Run("test_service_records_errors_on_failure", func(t *testing.T) {
		s, _ := noBackend(t)
		began := time.Now()
		if _, err := s.ExecuteTool(t.Context(), boxservice.Query{ID: "50"}, map[string]any{"command": "echo hello"}); err == nil {
			t.Fatal("it ran")
		}
		list := s.Errors()
		if len(list) != 1 || list[0].Type != api.ClassBackendUnavailable || list[0].QueryID != "50" || list[0].Timestamp.Before(began.Add(-time.Second)) {
			t.Errorf("got %+v", list)
		}
		if n := s.Status(t.Context()).RecentErrorCount; n != 1 {
			t.Errorf("its status counts %d", n)
		}
	})
	t.Run("test_service_error_ring_buffer_capped", func(t *testing.T) {
		s, _ := noBackend(t)
		for i := range 60 {
			if _, err := s.ExecuteTool(t.Context(), boxservice.Query{ID: fmt.Sprint(100 + i)}, map[string]any{"command": "fail"}); err == nil {
				t.Fatal("it ran")
			}
		}
		list := s.Errors()
		if len(list) != 50 || list[0].QueryID != "110" || list[49].QueryID != "159" {
			t.Errorf("%d errors, the first of %s and the last of %s", len(list), list[0].QueryID, list[len(list)-1].QueryID)
		}
	})
}
