package sandbox_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/store"
)

// TestOverSQLite: what one daemon wrote to a real database, the next reads to
// the last field, the token with it.
func TestOverSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	fake := sandboxtest.New(sandbox.DefaultIsolation)
	boot := func() (*sandbox.Manager, func()) {
		s, err := store.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := sandbox.NewManager(sandbox.Options{
			Store: s, Backends: []sandbox.Backend{fake}, Events: s, CPUs: 4, Memory: 8 << 30,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		return m, func() {
			m.Close()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	m, shutdown := boot()
	if _, err := m.Create(t.Context(), ann, sandbox.Spec{Name: "stopped", Workspace: cow()}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Stop(t.Context(), ann, "stopped"); err != nil {
		t.Fatal(err)
	}
	want, err := m.Create(t.Context(), ann, sandbox.Spec{
		Name: "web", Env: map[string]string{"A": "b"}, Limits: sandbox.Limits{CPUs: 0.5},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	shutdown()

	m, shutdown = boot()
	defer shutdown()
	got, err := m.Get(t.Context(), ann, "web")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" || got.Token == "" {
		t.Errorf("the next daemon's record (-want +got):\n%s", d)
	}
	wantStopped, err := m.Get(t.Context(), ann, "stopped")
	if err != nil || wantStopped.State != sandbox.StateStopped {
		t.Errorf("stopped = %+v, %v", wantStopped, err)
	}
	evs, err := m.Events(t.Context(), ann, "stopped")
	if err != nil || len(evs) != 3 {
		t.Errorf("events = %+v, %v; want 3", evs, err)
	}
	if err := m.Remove(t.Context(), ann, "stopped", false); err != nil {
		t.Error(err)
	}
}
