package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
)

func TestSessions(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		storetest.RunSessions(t, func(*testing.T) storetest.Sessions { return new(storetest.Memory) })
	})
	t.Run("sqlite", func(t *testing.T) {
		storetest.RunSessions(t, func(t *testing.T) storetest.Sessions { return mustOpen(t, dbPath(t)) })
	})
}

func TestSessionsOutliveTheProcess(t *testing.T) {
	path := dbPath(t)
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SaveSession(t.Context(), storetest.Session(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := mustOpen(t, path).Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]record.Session{storetest.Session(1)}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
