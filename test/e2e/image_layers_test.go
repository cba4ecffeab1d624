package e2e

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// impliedImage has a base with a home, a directory of a service and a link to its programs, and
// a layer that has a file in each and lists no directory, as builders without a container write it.
func impliedImage(t *testing.T) v1.Image {
	t.Helper()
	dir := func(name string, mode int64, id int) entry {
		return entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: id, Gid: id}}
	}
	base := append(busybox(t, "usr/bin", "sh", "stat", "touch", "cat"),
		entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "usr/bin"}},
		dir("home/u", 0o750, 1234), dir("data", 0o700, 1234),
		file("etc/passwd", "root:x:0:0::/root:/bin/sh\nu:x:1234:1234::/home/u:/bin/sh\n"))
	over := []entry{file("home/u/.profile", ""), file("data/key", "k\n"), file("bin/tool", "#!/bin/sh\necho tool\n")}
	return imageOf(t, v1.Config{User: "u", Env: []string{"PATH=/bin"}}, layerOf(t, base...), layerOf(t, over...))
}

// TestImpliedDirectories runs an image whose upper layer lists none of the directories that it
// has files in: they are as in the base, whichever way it came, and in a template of it.
func TestImpliedDirectories(t *testing.T) {
	t.Parallel()
	img := impliedImage(t)
	saved, ref := saveImage(t, img, "implied:1"), serveImage(t, img, "implied:1")
	const look = "tool; /bin/sh -c 'stat -c \"%n %u:%g %a\" /data /home/u; cat /data/key; touch /home/u/new && echo written'"
	const want = "tool\n/data 1234:1234 700\n/home/u 1234:1234 750\nk\nwritten\n"
	behindEach(t, func(t *testing.T, wall string) {
		for from, image := range map[string]string{"archive": saved, "registry": ref} {
			t.Run(from, func(t *testing.T) {
				h := newHome(t)
				if got := h.ok("run", "--isolation", wall, "--image", image, "--", "sh", "-c", look); got != want {
					t.Errorf("got  %q\nwant %q", got, want)
				}
			})
		}
		t.Run("template", func(t *testing.T) {
			h, dir := newHome(t), t.TempDir()
			h.ok("image", "import", "--name", "implied:1", saved)
			text := "FROM implied:1\nUSER u\nRUN tool >/home/u/built\n"
			if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			h.ok("template", "build", "--name", "implied", dir)
			if got := h.ok("run", "--isolation", wall, "--template", "implied", "--", "sh", "-c", "cat /home/u/built; "+look); got != "tool\n"+want {
				t.Errorf("got  %q\nwant %q", got, "tool\n"+want)
			}
		})
	})
}
