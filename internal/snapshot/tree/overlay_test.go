package tree_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/snapshot/tree"
)

// overlay lays a new upper layer over lowers, the highest first, and returns
// where the whole is seen.
func overlay(t *testing.T, upper string, lowers ...string) string {
	t.Helper()
	work, at := t.TempDir(), t.TempDir()
	opts := "upperdir=" + upper + ",workdir=" + work + ",redirect_dir=nofollow,metacopy=off,index=off,lowerdir="
	for i, l := range lowers {
		if i > 0 {
			opts += ":"
		}
		opts += l
	}
	if err := unix.Mount("overlay", at, "overlay", 0, opts); err != nil {
		t.Skipf("no overlays here: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(at, 0)) })
	return at
}

// TestLayer: what an overlay wrote, copied, is seen the same from above.
func TestLayer(t *testing.T) {
	needRoot(t)
	image := t.TempDir()
	fill(t, image)
	d := newDirs(t)
	first := overlay(t, d.src, image)
	must(t, os.Remove(filepath.Join(first, "pipe")))
	must(t, os.RemoveAll(filepath.Join(first, "d")))
	must(t, os.Mkdir(filepath.Join(first, "d"), 0o700))
	must(t, os.WriteFile(filepath.Join(first, "d", "new"), []byte("new"), 0o600))
	must(t, os.Remove(filepath.Join(first, "three")))
	must(t, os.Mkdir(filepath.Join(first, "three"), 0o755))
	must(t, os.Chmod(filepath.Join(first, "capable"), 0o700))
	want := describe(t, first)
	d.mustCopy(t, tree.Options{})
	if diff := cmp.Diff(want, describe(t, overlay(t, t.TempDir(), d.dst, image))); diff != "" {
		// The top of a new upper layer is as this test made it.
		if want = want[1:]; cmp.Diff(want, describe(t, overlay(t, t.TempDir(), d.dst, image))[1:]) != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	}
}

// TestForgedMark: a mark that somebody set on a file of his own hides what is
// below where it is taken for an overlay's, and nothing where it is not.
func TestForgedMark(t *testing.T) {
	needRoot(t)
	below := t.TempDir()
	must(t, os.Mkdir(filepath.Join(below, "d"), 0o755))
	must(t, os.WriteFile(filepath.Join(below, "d", "f"), nil, 0o600))
	for _, plain := range []bool{false, true} {
		d := newDirs(t)
		must(t, os.Mkdir(filepath.Join(d.src, "d"), 0o755))
		must(t, unix.Setxattr(filepath.Join(d.src, "d"), "trusted.overlay.opaque", []byte("y"), 0))
		d.mustCopy(t, tree.Options{Plain: plain})
		at := overlay(t, t.TempDir(), d.dst, below)
		_, err := os.Lstat(filepath.Join(at, "d", "f"))
		if seen := err == nil; seen != plain {
			t.Errorf("plain %v: seen %v", plain, seen)
		}
	}
}
