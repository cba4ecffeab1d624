package snapshot_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/snapshot"
)

var errBoom = errors.New("boom")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string, o snapshot.Options) *snapshot.Store {
	t.Helper()
	s, err := snapshot.New(dir, o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func id(c string) string { return "sn_" + strings.Repeat("a", 19) + c }

func record(c, parent string) sandbox.Snapshot {
	return sandbox.Snapshot{
		ID: id(c), Owner: "uid:1000", Image: "host", Parent: parent, Source: "sb_x",
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
}

// fill writes one file as a layer.
func fill(_ context.Context, dir string) (sandbox.Saved, error) {
	if err := os.Mkdir(filepath.Join(dir, "root"), 0o755); err != nil {
		return sandbox.Saved{}, err
	}
	err := os.WriteFile(filepath.Join(dir, "root", "f"), []byte("x"), 0o644)
	return sandbox.Saved{Size: 4096, Notes: []string{"one"}}, err
}

// ids opens the store at dir anew, as the next daemon does.
func ids(t *testing.T, dir string) []string {
	t.Helper()
	s := open(t, dir, snapshot.Options{})
	list, err := s.Open(t.Context())
	must(t, err)
	must(t, s.Close())
	out := []string{}
	for _, rec := range list {
		out = append(out, rec.ID)
	}
	return out
}

func wantDir(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	got := []string{}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		t.Errorf("on disk (-want +got):\n%s", diff)
	}
}

func TestStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	s := open(t, dir, snapshot.Options{})
	a, err := s.Keep(t.Context(), record("a", ""), fill)
	must(t, err)
	want := record("a", "")
	want.Size, want.Notes = 4096, []string{"one"}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	_, err = s.Keep(t.Context(), record("b", a.ID), fill)
	must(t, err)
	if _, err := s.Keep(t.Context(), record("a", ""), fill); err == nil {
		t.Error("one of the same id was kept")
	}
	layers, err := s.Layers(t.Context(), id("b"))
	must(t, err)
	if diff := cmp.Diff([]string{filepath.Join(dir, id("a"), "layers"), filepath.Join(dir, id("b"), "layers")}, layers); diff != "" {
		t.Errorf("layers (-want +got):\n%s", diff)
	}
	for _, d := range append(layers, dir) {
		if st, err := os.Stat(d); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", d, st.Mode(), err)
		}
	}
	a.Removed, a.Shared = true, true
	must(t, s.Put(t.Context(), a))
	list, err := open(t, dir, snapshot.Options{}).Open(t.Context())
	must(t, err)
	if diff := cmp.Diff(a, list[0]); diff != "" || len(list) != 2 {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	must(t, s.Delete(t.Context(), id("b")))
	must(t, s.Delete(t.Context(), id("b")))
	must(t, s.Close())
	wantDir(t, dir, id("a"))
	for name, err := range map[string]error{
		"Put": s.Put(t.Context(), record("b", "")), "Put of a path": s.Put(t.Context(), sandbox.Snapshot{ID: "../x"}),
		"Delete of a path": s.Delete(t.Context(), "../"+filepath.Base(dir)),
	} {
		if sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("%s = %v", name, err)
		}
	}
	for _, bad := range []string{id("b"), "..", "../snapshots/" + id("a")} {
		if _, err := s.Layers(t.Context(), bad); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("Layers of %q = %v", bad, err)
		}
	}
	wantDir(t, dir, id("a"))
}

// TestKeepFails: whatever step fails, and wherever a daemon dies, the snapshot
// is there whole for the next one or not at all.
func TestKeepFails(t *testing.T) {
	for _, step := range []string{"make", "record", "sync", "name", "sync-name"} {
		t.Run(step, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "snapshots")
			s := open(t, dir, snapshot.Options{Step: func(name string) error {
				if name == step {
					return errBoom
				}
				return nil
			}})
			if _, err := s.Keep(t.Context(), record("a", ""), fill); !errors.Is(err, errBoom) {
				t.Errorf("Keep = %v", err)
			}
			must(t, s.Close())
			wantDir(t, dir)

			died := open(t, dir, snapshot.Options{
				Step: func(name string) error {
					if name == step {
						panic("killed")
					}
					return nil
				},
				Remove: func(string) error { return nil }, // the dead clean nothing up
			})
			func() {
				defer func() { _ = recover() }()
				_, _ = died.Keep(t.Context(), record("a", ""), fill)
			}()
			got := ids(t, dir)
			if whole := step == "sync-name"; (len(got) == 1) != whole {
				t.Errorf("the next daemon has %q", got)
			}
			wantDir(t, dir, got...)
		})
	}
	t.Run("fill", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "snapshots")
		s := open(t, dir, snapshot.Options{})
		_, err := s.Keep(t.Context(), record("a", ""), func(ctx context.Context, dir string) (sandbox.Saved, error) {
			_, _ = fill(ctx, dir)
			return sandbox.Saved{}, errBoom
		})
		if !errors.Is(err, errBoom) {
			t.Errorf("Keep = %v", err)
		}
		wantDir(t, dir)
	})
}

// TestOpen: what a daemon left half made or half deleted goes; what is not
// ours, or damaged, is left alone and is no snapshot.
func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	s := open(t, dir, snapshot.Options{Remove: func(string) error { return nil }})
	for _, c := range []string{"a", "b", "c"} {
		_, err := s.Keep(t.Context(), record(c, ""), fill)
		must(t, err)
	}
	must(t, s.Delete(t.Context(), id("b"))) // and its files stay
	must(t, os.MkdirAll(filepath.Join(dir, ".new-"+id("d"), "layers", "root"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, id("c"), "snapshot.json"), []byte(`{"id":`), 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "mine"), 0o700))
	if diff := cmp.Diff([]string{id("a")}, ids(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantDir(t, dir, "mine", id("a"), id("c"))
}

func TestChain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	s := open(t, dir, snapshot.Options{})
	a, b := record("a", id("b")), record("b", id("a")) // one below the other, for ever
	for _, rec := range []sandbox.Snapshot{a, b} {
		_, err := s.Keep(t.Context(), rec, fill)
		must(t, err)
	}
	if _, err := s.Layers(t.Context(), a.ID); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("Layers = %v", err)
	}
}
