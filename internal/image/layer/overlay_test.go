package layer_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
)

// The kernel agrees: what a layer hides is hidden, and what it keeps is there.
func TestOverlay(t *testing.T) {
	lower := []block{
		file("gone", "1"), file("kept", "1"), file("both", "1"), file("opq/old", "1"), file("opq/replaced", "1"),
		file("dir/gone", "1"), file("dir/kept", "1"), file("hidden/x", "1"), file("refilled/old", "1"), file("early/old", "1"),
		symlink("link", "kept"), file("wasdir/x", "1"), file("twice/old", "1"),
	}
	upper := []block{
		file(".wh.gone", ""), file("both", "2"), file(".wh.both", ""), file("opq/new", "2"), file("opq/.wh..wh..opq", ""),
		file("opq/replaced", "2"), file("dir/.wh.gone", ""), file("dir/new", "2"), file(".wh.hidden", ""),
		file("refilled/new", "2"), file(".wh.refilled", ""), file(".wh.early", ""), file("early/new", "2"),
		file(".wh.link", ""), file(".wh.absent", ""), file("wasdir", "2"), file("twice", ""), dir("twice"), file("twice/new", "2"),
	}
	want := []string{
		"both 2", "dir", "dir/kept 1", "dir/new 2", "early", "early/new 2", "kept 1", "opq", "opq/new 2", "opq/replaced 2",
		"refilled", "refilled/new 2", "twice", "twice/new 2", "wasdir 2",
	}
	for _, tt := range []struct {
		name, options string
		o             layer.Options
	}{
		{"trusted", "", layer.Options{}},
		{"user", ",userxattr", layer.Options{UserXattr: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			merged := stack(t, tt.options, tt.o, lower, upper)
			if d := cmp.Diff(want, names(t, merged, "")); d != "" {
				t.Errorf("view (-want +got):\n%s", d)
			}
		})
	}
	// The control: marks of the other kind are not seen, so what should be
	// hidden shows.
	t.Run("marks-of-the-other-kind", func(t *testing.T) {
		merged := stack(t, ",userxattr", layer.Options{}, lower, upper)
		if _, err := os.Lstat(merged + "/opq/old"); err != nil {
			t.Errorf("opq/old is hidden by a mark that this mount does not know: %v", err)
		}
	})
}

// Overlayfs takes no notice of an opaque root, so Result has to tell.
func TestOverlayIgnoresAnOpaqueRoot(t *testing.T) {
	merged := stack(t, "", layer.Options{}, []block{file("old", "1")}, []block{file(".wh..wh..opq", ""), file("new", "2")})
	if d := cmp.Diff([]string{"new 2", "old 1"}, names(t, merged, "")); d != "" {
		t.Errorf("view (-want +got):\n%s", d)
	}
}

// stack unpacks layers, the lowest first, and mounts them on one another where
// only this test sees it.
func stack(t *testing.T, options string, o layer.Options, layers ...[]block) (merged string) {
	t.Helper()
	privateMounts(t)
	base, lowers := t.TempDir(), ""
	for i, blocks := range layers {
		d := fmt.Sprintf("%s/%d", base, i)
		must(t, os.Mkdir(d, 0o755))
		_, err := unpack(t, d, archive(blocks...), o)
		must(t, err)
		o.Below = append(o.Below, d)
		lowers = ":" + d + lowers
	}
	merged = base + "/merged"
	for _, d := range []string{merged, base + "/upper", base + "/work"} {
		must(t, os.Mkdir(d, 0o755))
	}
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work%s", lowers[1:], base, base, options)
	if err := unix.Mount("overlay", merged, "overlay", 0, data); err != nil {
		t.Skipf("mount overlay: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(merged, unix.MNT_DETACH) })
	return merged
}

// names lists the view below dir with the contents of files.
func names(t *testing.T, root, dir string) (lines []string) {
	t.Helper()
	entries, err := os.ReadDir(root + "/" + dir)
	must(t, err)
	for _, e := range entries {
		rel := dir + e.Name()
		if e.IsDir() {
			lines = append(append(lines, rel), names(t, root, rel+"/")...)
			continue
		}
		b, err := os.ReadFile(root + "/" + rel)
		must(t, err)
		lines = append(lines, rel+" "+string(b))
	}
	return lines
}
