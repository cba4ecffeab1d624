package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/image/layer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func owned(mode int64, uid, gid int) func(h *tar.Header) {
	return func(h *tar.Header) { h.Typeflag, h.Mode, h.Uid, h.Gid = tar.TypeDir, mode, uid, gid }
}

// over is a layer that lists no directory, and implied two of them: one that is another's, and a link.
func over() []byte {
	return pack(entry{name: "data/key", body: []byte("k")}, entry{name: "bin/tool", body: []byte("t")})
}

// based is an image of a base with such directories and over.
func based(uid, gid int) *built {
	return buildOf(pack(entry{name: "data/", head: owned(0o700, uid, gid)}, entry{name: "usr/bin/sh", body: []byte("s")}, entry{name: "bin", link: "usr/bin"}), over())
}

// wantOver holds the uppermost layer of based to what its base has.
func wantOver(t *testing.T, img image.Image, uid, gid int) {
	t.Helper()
	top := img.Layers[len(img.Layers)-1]
	var st unix.Stat_t
	if err := unix.Lstat(top+"/data", &st); err != nil || st.Mode&0o7777 != 0o700 || int(st.Uid) != uid || int(st.Gid) != gid {
		t.Errorf("data has mode %o and owner %d:%d, %v", st.Mode&0o7777, st.Uid, st.Gid, err)
	}
	if _, err := os.Lstat(top + "/bin"); err == nil {
		t.Error("bin is in the layer, and hides the link below")
	}
	if b, err := os.ReadFile(top + "/usr/bin/tool"); err != nil || string(b) != "t" {
		t.Errorf("usr/bin/tool = %q, %v", b, err)
	}
}

// A layer is unpacked over those below it, whichever way the image comes.
func TestImpliedDirectories(t *testing.T) {
	w := newWorld(t)
	w.push("app", "1", based(1234, 5678))
	wantOver(t, w.mustPull(me, "app:1"), 1234, 5678)
	for name, in := range map[string][]byte{
		"saved":   (&saved{}).add(based(1, 2), "app:2").tar(),
		"laid":    (&laid{}).add(based(1, 2), object{"io.containerd.image.name": "app:3"}).tar(),
		"another": (&saved{}).add(based(3, 4), "app:4").tar(), // the same layer over another base
	} {
		img, err := w.load("", in)
		must(err)
		uid, gid := 1, 2
		if name == "another" {
			uid, gid = 3, 4
		}
		wantOver(t, img, uid, gid)
	}
	// Four bases, two of them one, and what lies over each.
	if n := len(w.left("layers")); n != 6 {
		t.Errorf("%d layers, want 6", n)
	}
}

// alone is a store of an earlier version, which unpacked each layer by itself.
func alone(t *testing.T) *world {
	return newWorld(t, func(o *image.Options) {
		o.Unpack = func(ctx context.Context, r io.Reader, dir string, _ []string) (layer.Result, error) {
			return layer.Unpack(ctx, r, dir, layer.Options{})
		}
	})
}

// upgrade makes the records of the store an earlier version's, and opens it with this one.
func (w *world) upgrade() {
	for _, name := range w.left("manifests") {
		path := filepath.Join(w.dir, "manifests", name)
		b, err := os.ReadFile(path)
		must(err)
		var rec map[string]any
		must(json.Unmarshal(b, &rec))
		delete(rec, "rule")
		for i, id := range rec["layers"].([]any) {
			id := strings.Replace(id.(string), "sha256:", "sha256-", 1)
			earlier := "sha256-" + hexOf(fmt.Append(nil, id)) // of no ChainID, as DiffIDs are none
			must(os.Rename(filepath.Join(w.dir, "layers", id), filepath.Join(w.dir, "layers", earlier)))
			rec["layers"].([]any)[i] = strings.Replace(earlier, "-", ":", 1)
		}
		must(os.WriteFile(path, object(rec).json(), 0o600))
	}
	w.opts.Unpack = nil
	w.reopen()
	w.requests("")
}

// An image that an earlier version unpacked wrongly is not found by its name, so that it is pulled
// anew. Sandboxes that were made from it keep it.
func TestUnpackedByAnEarlierVersion(t *testing.T) {
	w := alone(t)
	d := w.push("app", "1", based(1234, 5678))
	w.mustPull(me, "app:1")
	w.upgrade()
	before, err := w.ByDigest(t.Context(), d)
	if err != nil || len(before.Layers) != 2 {
		t.Fatalf("ByDigest = %v, %v", before, err)
	}
	for range 2 { // the second time by what was noted
		_, err = w.Find(t.Context(), me, w.ref("app:1"))
		wantError(t, err, sandbox.NotFound, "an earlier version unpacked it")
	}
	if imgs, err := w.List(t.Context(), me); err != nil || len(imgs) != 1 || !strings.Contains(strings.Join(imgs[0].Notes, ""), "pull it or import it again") {
		t.Errorf("List = %+v, %v", imgs, err)
	}
	wantOver(t, w.mustPull(me, "app:1"), 1234, 5678)
	img, err := w.Find(t.Context(), me, w.ref("app:1"))
	must(err)
	wantOver(t, img, 1234, 5678)
	w.mustPull(me, "app:1")

	gone := func(inUse ...string) bool {
		t.Helper()
		_, _, err := w.GC(t.Context(), inUse)
		must(err)
		return slices.ContainsFunc(before.Layers, func(dir string) bool { _, err := os.Stat(dir); return err != nil })
	}
	if gone(d) {
		t.Error("layers that a sandbox may have mounted were removed")
	}
	if !gone() {
		t.Error("layers of the earlier version stay though nothing uses them")
	}
	img, err = w.Find(t.Context(), me, w.ref("app:1"))
	must(err)
	wantOver(t, img, 1234, 5678)
}

// One in which that shows nowhere is kept, and not fetched again.
func TestKeptFromAnEarlierVersion(t *testing.T) {
	w := alone(t)
	w.push("app", "1", build(tree{"a/b": "1"}, tree{"a/c": "2", "d/e": "3"}))
	w.push("single", "1", build(tree{"a/b": "alone"}))
	w.mustPull(me, "app:1")
	w.mustPull(me, "single:1")
	w.upgrade()
	for range 2 {
		for _, name := range []string{"app:1", "single:1"} {
			if img, err := w.Find(t.Context(), me, w.ref(name)); err != nil || len(img.Notes) > 0 {
				t.Errorf("Find(%s) = %+v, %v", name, img, err)
			}
		}
	}
	if got := w.requests(""); len(got) > 0 {
		t.Errorf("asked the registry: %q", got)
	}
	b, err := os.ReadFile(filepath.Join(w.dir, "manifests", w.left("manifests")[0]))
	if err != nil || !strings.Contains(string(b), `"rule":2`) {
		t.Errorf("record = %s, %v: it is looked into each time", b, err)
	}
}

// meetAt holds requests for blobs until meet is closed, and tells of each.
func meetAt(asked chan<- string, meet <-chan struct{}, blobs []string) func(http.ResponseWriter, *http.Request) bool {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if i := slices.IndexFunc(blobs, func(d string) bool { return strings.HasSuffix(r.URL.Path, d) }); i >= 0 && r.Method == http.MethodGet {
			asked <- blobs[i]
			<-meet
		}
		return false
	}
}

// The role that unpacks without root is told of the layers below, and looks at those of earlier
// versions.
func TestUnpackingRole(t *testing.T) {
	ask := func(order object, more []byte) (answer struct {
		Refused string `json:"refused"`
		Stands  bool   `json:"stands"`
	},
	) {
		t.Helper()
		var out bytes.Buffer
		must(image.UnpackMain(io.MultiReader(bytes.NewReader(append(order.json(), '\n')), bytes.NewReader(more)), &out))
		must(json.Unmarshal(out.Bytes(), &answer))
		return answer
	}
	base, alone, top := t.TempDir(), t.TempDir(), t.TempDir()
	b := based(1, 2)
	if a := ask(object{"dir": base}, b.tars[0]); a.Refused != "" {
		t.Fatal(a.Refused)
	}
	ask(object{"dir": alone}, b.tars[1])
	ask(object{"dir": top, "below": []string{base}}, b.tars[1])
	wantOver(t, image.Image{Layers: []string{top}}, 1, 2)
	if ask(object{"below": []string{base, alone}}, nil).Stands || !ask(object{"below": []string{base, top}}, nil).Stands {
		t.Error("what the layers show is not told from what they should")
	}
}

// Layers are fetched side by side, though each waits for those below it.
func TestFetchedSideBySide(t *testing.T) {
	w := newWorld(t)
	w.push("app", "1", build(tree{"a": "1"}, tree{"b": "2"}, tree{"c": "3"}))
	var all [3]string
	for i := range all {
		all[i] = build(tree{"a": "1"}, tree{"b": "2"}, tree{"c": "3"}).layers[i]["digest"].(string)
	}
	asked := make(chan string, 8)
	meet := make(chan struct{})
	w.on(meetAt(asked, meet, all[:]))
	done := make(chan error, 1)
	go func() {
		_, err := w.Pull(t.Context(), me, w.ref("app:1"), nil, nil)
		done <- err
	}()
	for range all {
		<-asked
	}
	close(meet)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
