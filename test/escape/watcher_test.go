package escape

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWatcherNotices is the control of TestCompositions: what a way out would
// leave outside is noticed, and nothing else is.
func TestWatcherNotices(t *testing.T) {
	w := newWorld(t, setting{bin: binary(t), wall: walls()[0], user: "user", alone: true})
	c := newComposing(w)
	boxes, err := filepath.Glob(w.path("state/carboy/boxes/*/*/agent.key"))
	if err != nil || len(boxes) != 1 {
		t.Fatalf("the box's key: %q, %v", boxes, err)
	}
	key, box := boxes[0], filepath.Dir(boxes[0])
	canary, aside := w.path("outside/file"), w.path("aside")
	set := func(name, text string) func() error {
		return func() error { return os.WriteFile(name, []byte(text), 0o600) }
	}
	remove := func(name string) func() error { return func() error { return os.Remove(name) } }
	tests := []struct {
		name     string
		do, undo func() error
		want     string
	}{
		{
			"file-becomes-a-link",
			func() error { return errors.Join(os.Rename(key, aside), os.Symlink(canary, key)) },
			func() error { return os.Rename(aside, key) },
			"agent.key",
		},
		{
			"file-has-two-names",
			func() error { return os.Link(key, aside) },
			remove(aside),
			"agent.key",
		},
		{
			"mode",
			func() error { return os.Chmod(key, 0o644) },
			func() error { return os.Chmod(key, 0o600) },
			"agent.key",
		},
		{
			"owner",
			func() error { return os.Chown(key, 12345, -1) },
			func() error { return os.Chown(key, os.Geteuid(), -1) },
			"agent.key",
		},
		{"new-file", set(box+"/planted", ""), remove(box + "/planted"), "planted"},
		{"new-file-of-the-state", set(w.path("state/carboy/planted"), ""), remove(w.path("state/carboy/planted")), "planted"},
		{"canary-changed", set(canary, "owned\n"), set(canary, "outside\n"), "outside/file"},
		{"canary-made", set(w.path("outside/not-there"), "x"), remove(w.path("outside/not-there")), "not-there"},
		{"shared-tree", set(w.path(dirReadOnly+"/file"), "owned\n"), set(w.path(dirReadOnly+"/file"), "read-only\n"), dirReadOnly + "/file"},
		{
			"usage",
			func() error { return os.WriteFile(box+"/bundle/flood", bytes.Repeat([]byte("flood"), 2<<20), 0o600) },
			remove(box + "/bundle/flood"),
			"bytes more",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "owner" && os.Geteuid() != 0 {
				t.Skip("needs root, to give a file away")
			}
			if got := c.changed(); len(got) > 0 {
				t.Fatalf("nothing was done, and it noticed %q", got)
			}
			if err := tt.do(); err != nil {
				t.Fatal(err)
			}
			got := c.changed()
			if err := tt.undo(); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, tt.want) }) {
				t.Errorf("it noticed %q; want %s", got, tt.want)
			}
		})
	}
}
