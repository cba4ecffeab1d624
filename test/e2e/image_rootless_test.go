package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestImageWithoutRoot: an ordinary user's layers are unpacked, and removed, by a
// process that owns their files' ids.
func TestImageWithoutRoot(t *testing.T) {
	t.Parallel()
	h := newWorld(t).ordinaryHome(carboy)
	owned := file("srv/owned", "its owner's\n")
	owned.Uid, owned.Gid, owned.Mode = 12, 34, 0o600
	private := entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "srv/private", Mode: 0o700, Uid: 12, Gid: 34}}
	good := append(busybox(t, "bin"), owned, private, file("srv/private/in", ""))
	h.imports(tarOf(t, good...), "own:1", 0)
	images := filepath.Join(h.dir, "state/carboy/images")
	if n := filesOf(t, images, userSubID+12); n != 2 {
		t.Errorf("%d files belong to the layer's own user, want 2", n)
	}
	got := h.ok("run", "--image", "own:1", "--isolation", "gvisor", "--", "/bin/busybox", "stat", "-c", "%u:%g", "/srv/owned")
	if got != "12:34\n" {
		t.Errorf("its owner is %q", got)
	}
	implied, err := os.ReadFile(saveImage(t, impliedImage(t), "implied:1"))
	if err != nil {
		t.Fatal(err)
	}
	h.imports(implied, "implied:1", 0)
	got = h.ok("run", "--image", "implied:1", "--isolation", "gvisor", "--", "sh", "-c", "tool; stat -c '%u:%g %a' /data /home/u; touch /home/u/new && echo written")
	if want := "tool\n1234:1234 700\n1234:1234 750\nwritten\n"; got != want {
		t.Errorf("directories that a layer implies: got %q, want %q", got, want)
	}
	outside := file("../outside", "x")
	if r := h.imports(tarOf(t, outside), "bad:1", 125); !strings.Contains(r, "outside") {
		t.Errorf("it says %q", r)
	}
	h.ok("image", "rm", "own:1")
	h.ok("image", "gc")
	until(t, func() bool { return filesOf(t, images, userSubID+12) == 0 })
}

// imports imports an archive, and returns what is said.
func (h *home) imports(archive []byte, name string, code int) string {
	h.t.Helper()
	r := h.run(bytes.NewReader(archive), "image", "import", "--name", name, "-")
	if r.code != code {
		h.t.Fatalf("import %s: exit code %d: %s", name, r.code, r.stderr)
	}
	return r.stderr
}

// filesOf counts what belongs to uid below a directory, while others may delete it.
func filesOf(t *testing.T, dir string, uid uint32) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if d == nil {
			return nil
		}
		if fi, err := d.Info(); err == nil && fi.Sys().(*syscall.Stat_t).Uid == uid {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
