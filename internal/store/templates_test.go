package store_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// Templates, builds, tags and cached steps are as they were when the database
// is opened again, and go with their template.
func TestTemplates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	one := template.Template{ID: "t1", Owner: "uid:1", Name: "web", Public: true, CreatedAt: at, UpdatedAt: at, Spawns: 3, SpawnedAt: at}
	build := template.Record{
		ID: "b1", Template: "t1", Owner: "uid:1", Status: template.Failed, Tags: []string{"v1"}, Reason: &template.Reason{Message: "no", Step: "2"},
		Context: template.Context{Env: map[string]string{"A": "1"}, User: "user", Cwd: "/srv"}, Startup: &sandbox.Startup{Command: "serve"},
		CreatedAt: at, UpdatedAt: at,
	}
	tag := template.Tag{Template: "t1", Name: "v1", Build: "b1", CreatedAt: at}
	cached := template.Cached{Key: "k", Owner: "uid:1", Image: "host", Snapshot: "sn_x", Context: template.Context{User: "root"}, UsedAt: at}
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	s := db.Templates()
	for _, err := range []error{s.PutTemplate(t.Context(), one), s.PutBuild(t.Context(), build), s.PutTag(t.Context(), tag), s.PutCached(t.Context(), cached)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	taken := one
	taken.ID = "t2"
	if err := s.PutTemplate(t.Context(), taken); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a second template of that name: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = store.Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s = db.Templates()
	same(t, s.Templates, one)
	same(t, s.Builds, build)
	same(t, s.Tags, tag)
	same(t, s.Cache, cached)
	other := build
	other.ID = "b2"
	if err := s.PutBuild(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteBuild(t.Context(), "b2"); err != nil {
		t.Fatal(err)
	}
	same(t, s.Builds, build)
	if err := s.DeleteTemplate(t.Context(), "t1"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteCached(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	same(t, s.Templates)
	same(t, s.Builds)
	same(t, s.Tags)
	same(t, s.Cache)
}

func same[T any](t *testing.T, read func(context.Context) ([]T, error), want ...T) {
	t.Helper()
	got, err := read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
