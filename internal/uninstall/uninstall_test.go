package uninstall_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/uninstall"
)

// world is a home with one of everything, and a directory outside.
func world(t *testing.T) (h uninstall.Home, outside string) {
	t.Helper()
	top := t.TempDir()
	in := func(s string) string { return filepath.Join(top, s, "carboy") }
	h.Dirs = home.Dirs{State: in("state"), Run: in("run"), Cache: in("cache"), Config: in("config")}
	outside = filepath.Join(top, "outside")
	for _, f := range []string{
		"state/carboy/boxes/gvisor/sb_1/disk.img", "state/carboy/boxes/process/sb_2/layers/a/b", "state/carboy/volumes/vol_1/disk.img",
		"state/carboy/snapshots/sn_1/x", "state/carboy/images/manifests/m", "state/carboy/secrets/s", "state/carboy/carboy.db",
		"state/carboy/carboy.db-wal", "state/carboy/daemon.lock", "cache/carboy/guest/g", "run/carboy/carboy.sock",
		"config/carboy/secrets.key", "config/carboy/config.json", "outside/canary",
	} {
		path := filepath.Join(top, f)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, make([]byte, 5000), 0o600))
	}
	return h, outside
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func survey(t *testing.T, h uninstall.Home, config bool) uninstall.Survey {
	t.Helper()
	s, err := h.Survey(t.Context(), config)
	must(t, err)
	return s
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestSurvey(t *testing.T) {
	h, _ := world(t)
	s := survey(t, h, false)
	if s.Sandboxes != 2 || s.Volumes != 1 || s.Snapshots != 1 || s.Images != 1 || !s.Secrets || len(s.Places) != 4 {
		t.Errorf("got %+v", s)
	}
	for _, p := range s.Places {
		if p.Bytes < 5000 || p.Unseen {
			t.Errorf("got %+v, want all of it", p)
		}
	}
	if diff := cmp.Diff([]string{filepath.Join(h.Dirs.Config, "config.json")}, s.Left); diff != "" {
		t.Error(diff)
	}
	if s := survey(t, h, true); len(s.Left) != 0 {
		t.Errorf("with the configuration, left are %q", s.Left)
	}
	if s := survey(t, uninstall.Home{Dirs: home.Dirs{State: "/nowhere/a", Run: "/nowhere/b", Cache: "/nowhere/c", Config: "/nowhere/d"}}, true); !s.Empty() {
		t.Errorf("of nothing: %+v", s)
	}
}

func TestDelete(t *testing.T) {
	h, outside := world(t)
	notes := filepath.Join(h.Dirs.State, "notes.txt")
	must(t, os.WriteFile(notes, nil, 0o600))
	// Links in the place of what is carboy's lead to somebody else's.
	must(t, os.RemoveAll(filepath.Join(h.Dirs.State, "snapshots")))
	must(t, os.Symlink(outside, filepath.Join(h.Dirs.State, "snapshots")))
	must(t, os.Symlink(outside, filepath.Join(h.Dirs.State, "volumes/vol_1/way")))
	for range 2 { // again, it is no error
		must(t, h.Delete(t.Context(), true))
	}
	for _, dir := range []string{h.Dirs.Cache, h.Dirs.Run, h.Dirs.Config} {
		if there(dir) {
			t.Errorf("%s is there still", dir)
		}
	}
	entries, err := os.ReadDir(h.Dirs.State)
	if err != nil || len(entries) != 1 || entries[0].Name() != "notes.txt" {
		t.Errorf("left are %v (%v), want notes.txt", entries, err)
	}
	if !there(filepath.Join(outside, "canary")) {
		t.Error("a link was followed")
	}
}

// roles fail to delete one directory, as at a kill or without its owner's rights.
type roles struct{ stuck string }

func (r roles) Delete(_ context.Context, dir string) error {
	if filepath.Base(dir) == r.stuck {
		return errors.New("stuck")
	}
	return os.RemoveAll(dir)
}

func (roles) Measure(context.Context, string) (int64, error) { return 0, nil }

func TestDeleteAgain(t *testing.T) {
	h, _ := world(t)
	h.Roles = roles{stuck: "volumes"}
	if err := h.Delete(t.Context(), true); err == nil {
		t.Fatal("it is done, and could not be")
	}
	if !there(filepath.Join(h.Dirs.State, "carboy.db")) || there(filepath.Join(h.Dirs.State, "images")) {
		t.Error("records went before what they are about, or nothing went after the error")
	}
	h.Roles = nil
	must(t, h.Delete(t.Context(), true))
	if there(h.Dirs.State) {
		t.Error("it is there still")
	}
}

// instances are a wall's or the gates'.
type instances struct {
	ids, stopped, removed []string
	bad                   string
}

func (w *instances) Name() string                                { return "wall" }
func (w *instances) Instances(context.Context) ([]string, error) { return w.ids, nil }
func (w *instances) Gates(context.Context) ([]string, error)     { return w.ids, nil }
func (w *instances) Close(ctx context.Context, id string) error {
	_, err := w.Stop(ctx, id)
	return err
}

func (w *instances) Stop(_ context.Context, id string) ([]string, error) {
	if id == w.bad {
		return nil, errors.New("it does not end")
	}
	w.stopped = append(w.stopped, id)
	return nil, nil
}

func (w *instances) Remove(_ context.Context, id string) error {
	w.removed = append(w.removed, id)
	return nil
}

func TestEnd(t *testing.T) {
	tests := []struct {
		name             string
		remove           bool
		bad              string
		stopped, removed []string
	}{
		{name: "stop", stopped: []string{"a", "b"}},
		{name: "remove", remove: true, stopped: []string{"a", "b"}, removed: []string{"a", "b"}},
		{name: "goes-on", remove: true, bad: "a", stopped: []string{"b"}, removed: []string{"b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wall, gate := &instances{ids: []string{"a", "b"}, bad: tt.bad}, &instances{ids: []string{"a", "b"}}
			err := uninstall.Home{Walls: []uninstall.Wall{wall}, Gate: gate}.End(t.Context(), tt.remove)
			if (err != nil) != (tt.bad != "") {
				t.Errorf("got %v", err)
			}
			if !slices.Equal(wall.stopped, tt.stopped) || !slices.Equal(wall.removed, tt.removed) {
				t.Errorf("stopped %q, removed %q", wall.stopped, wall.removed)
			}
			if len(gate.stopped) != 2 || tt.remove != (len(gate.removed) == 2) {
				t.Errorf("gates: stopped %q, removed %q", gate.stopped, gate.removed)
			}
		})
	}
}
