package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// entry is one of a layer.
type entry struct {
	tar.Header
	text string
}

// layerOf makes a layer of entries.
func layerOf(t testing.TB, entries ...entry) v1.Layer {
	t.Helper()
	return static.NewLayer(tarOf(t, entries...), types.DockerUncompressedLayer)
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size = int64(len(e.text))
		if e.Mode == 0 {
			e.Mode = 0o755
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name, text string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name}, text}
}

// smallImage has busybox, a file that a second layer replaces and one that it
// takes away, and says how it wants to be run.
func smallImage(t testing.TB) v1.Image {
	t.Helper()
	base := append(busybox(t, "bin", "sh", "cat", "ls", "id", "echo", "env", "pwd", "mkdir", "dirname", "chown", "test"),
		file("etc/os-release", "NAME=Small\n"), file("etc/gone", "x"),
		file("etc/passwd", "root:x:0:0::/root:/bin/sh\nworker:x:1234:1234::/srv:/bin/sh\n"))
	return imageOf(t, v1.Config{
		User: "worker", Env: []string{"PATH=/bin", "COLOUR=green"}, WorkingDir: "/srv/app",
		Entrypoint: []string{"/bin/echo", "said:"}, Cmd: []string{"nothing"},
	}, layerOf(t, base...), layerOf(t, file("etc/os-release", "NAME=Smaller\n"), file("etc/.wh.gone", "")))
}

func TestImages(t *testing.T) {
	t.Parallel()
	img := smallImage(t)
	saved, ref := saveImage(t, img, "small:1"), serveImage(t, img, "small:1")
	behindEach(t, func(t *testing.T, wall string) {
		for from, image := range map[string]string{"archive": saved, "registry": ref} {
			t.Run(from, func(t *testing.T) { inImage(t, newHome(t), wall, image) })
		}
	})
}

// inImage looks at a small image from inside.
func inImage(t *testing.T, h *home, wall, image string) {
	run := func(args ...string) string {
		t.Helper()
		return h.ok(append([]string{"run", "--isolation", wall, "--image", image}, args...)...)
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"entrypoint-and-cmd", nil, "said: nothing\n"},
		{"other-arguments", []string{"--", "hello"}, "said: hello\n"},
		{"no-entrypoint", []string{"--entrypoint", "", "--", "cat", "/etc/os-release"}, "NAME=Smaller\n"},
		{
			"settings",
			[]string{"--entrypoint", "sh", "--", "-c", "id -un; pwd; echo $COLOUR $PATH; ls /etc/gone 2>&1; true"},
			"worker\n/srv/app\ngreen /bin\nls: /etc/gone: No such file or directory\n",
		},
		{
			"own-user",
			[]string{"--entrypoint", "", "--env", "COLOUR=red", "--", "sh", "-c", "echo $COLOUR; ls -d /workspace /tmp /run"},
			"red\n/run\n/tmp\n/workspace\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := run(tt.args...); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Ten hostile archives are refused for ten reasons, and what was there is
// there still.
func TestHostileImages(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	const part = 16 << 20
	var zeros bytes.Buffer
	z := gzip.NewWriter(&zeros)
	if _, err := z.Write(make([]byte, part)); err != nil {
		t.Fatal(err)
	}
	z.Close()
	bomb := bytes.Repeat(zeros.Bytes(), (1<<30)/part) // members follow one another in a stream
	good := []entry{file("etc/os-release", "x")}
	link := func(typ byte, name, target string) entry {
		return entry{Header: tar.Header{Typeflag: typ, Name: name, Linkname: target}}
	}
	xattr := file("etc/mark", "")
	xattr.PAXRecords = map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}
	owned := file("etc/owned", "")
	owned.Uid = 1 << 20
	tests := []struct {
		name string
		raw  []byte
	}{
		{"traversal", tarOf(t, append(good, file("../escaped", "x"))...)},
		{"through-a-loop", tarOf(t, append(good, link(tar.TypeSymlink, "way", "/way"), file("way/cron.d", "x"))...)},
		{"through-a-file", tarOf(t, append(good, file("etc/os-release/x", "x"))...)},
		{"hard-link-outside", tarOf(t, append(good, link(tar.TypeLink, "shadow", "../../etc/shadow"))...)},
		{"hard-link-to-nothing", tarOf(t, append(good, link(tar.TypeLink, "shadow", "etc/shadow"))...)},
		{"whiteout-of-parent", tarOf(t, append(good, file("etc/.wh...", ""))...)},
		{"forged-whiteout", tarOf(t, append(good, entry{Header: tar.Header{Typeflag: tar.TypeChar, Name: "etc/passwd"}})...)},
		{"overlay-mark", tarOf(t, append(good, xattr)...)},
		{"foreign-owner", tarOf(t, append(good, owned)...)},
		{"long-name", tarOf(t, append(good, file(strings.Repeat("n", 300), "x"))...)},
		{"bomb", bomb},
		{"cut", tarOf(t, append(good, file("big", strings.Repeat("x", 5000)))...)[:3000]},
		{"no-archive", []byte("#!/bin/sh\necho hello\n")},
	}
	seen := map[string]string{}
	for _, tt := range tests {
		r := h.run(bytes.NewReader(tt.raw), "image", "import", "--name", "hostile:"+tt.name, "-")
		reason := strings.TrimSpace(r.stderr)
		if i := strings.LastIndex(reason, "carboy: "); i >= 0 {
			reason = reason[i:]
		}
		t.Logf("%s: %s", tt.name, reason)
		if r.code == 0 || strings.Contains(reason, "internal") {
			t.Errorf("%s: exit code %d: %s", tt.name, r.code, r.stderr)
		}
		if other, ok := seen[reason]; ok {
			t.Errorf("%s is refused for the same reason as %s: %s", tt.name, other, reason)
		}
		seen[reason] = tt.name
	}
	if r := h.run(bytes.NewReader(tarOf(t, good...)), "image", "import", "--name", "good:1", "-"); r.code != 0 {
		t.Errorf("an honest archive: %s", r.stderr)
	}
	if out := h.ok("image", "ls"); strings.Contains(out, "hostile") || !strings.Contains(out, "good:1") {
		t.Errorf("images:\n%s", out)
	}
	if left, _ := filepath.Glob(h.dir + "/state/carboy/images/layers/*"); len(left) != 1 {
		t.Errorf("%d layers are left, want 1: %q", len(left), left)
	}
}

// An image that is removed while a sandbox uses it goes with the sandbox, and
// not before.
func TestImagesInUse(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	saved := saveImage(t, smallImage(t), "small:1")
	h.ok("image", "import", "--name", "small:1", saved)
	box := h.create("--image", "small:1")
	h.ok("image", "rm", "small:1")
	h.ok("image", "gc")
	h.ok("stop", box)
	h.ok("image", "gc")
	h.ok("start", box)
	if got := h.ok("exec", box, "--", "cat", "/etc/os-release"); got != "NAME=Smaller\n" {
		t.Errorf("got %q", got)
	}
	h.ok("rm", "-f", box)
	h.ok("image", "gc")
	if left, _ := filepath.Glob(h.dir + "/state/carboy/images/layers/*"); len(left) != 0 {
		t.Errorf("left: %s", fmt.Sprint(left))
	}
}
