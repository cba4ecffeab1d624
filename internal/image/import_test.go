package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// entry is a member of an archive, in order.
type entry struct {
	name string
	body []byte
	link string // a symlink's
	head func(h *tar.Header)
}

func pack(es ...entry) []byte {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, e := range es {
		h := &tar.Header{Name: e.name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(e.body)), Format: tar.FormatPAX}
		if e.link != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.link, 0
		}
		if e.head != nil {
			e.head(h)
		}
		must(tw.WriteHeader(h))
		if h.Size > 0 {
			_, err := tw.Write(e.body)
			must(err)
		}
	}
	must(tw.Close())
	return b.Bytes()
}

// saved is the archive that docker save writes of images, by their tags.
type saved struct {
	entries []entry
	list    []object
}

func (s *saved) add(b *built, tags ...string) *saved {
	conf := b.conf.json()
	if b.confBlob != nil {
		conf = b.confBlob
	}
	layers := []string{}
	for _, t := range b.tars {
		n := hexOf(t) + "/layer.tar"
		layers = append(layers, n)
		s.entries = append(s.entries, entry{name: hexOf(t) + "/", head: dir}, entry{name: n, body: t})
	}
	s.entries = append(s.entries, entry{name: hexOf(conf) + ".json", body: conf})
	s.list = append(s.list, object{"Config": hexOf(conf) + ".json", "RepoTags": tags, "Layers": layers})
	return s
}

func dir(h *tar.Header) { h.Typeflag = tar.TypeDir }

func (s *saved) tar() []byte {
	b := object{"x": s.list}.json() // json.Marshal, without its error
	list := b[len(`{"x":`) : len(b)-1]
	return pack(append(s.entries, entry{name: "manifest.json", body: list})...)
}

// laid is an archive with an OCI layout.
type laid struct {
	entries []entry
	index   []object
}

func (l *laid) blob(b []byte) {
	l.entries = append(l.entries, entry{name: "blobs/sha256/" + hexOf(b), body: b})
}

func (l *laid) add(b *built, annotations object) *laid {
	m := b.manifest()
	for _, blob := range append(append([][]byte{}, b.blobs...), b.confBlob, m) {
		l.blob(blob)
	}
	l.index = append(l.index, object{"mediaType": ociManifest, "digest": digest(m), "size": len(m), "annotations": annotations})
	return l
}

func (l *laid) tar() []byte {
	return pack(append([]entry{
		{name: "./", head: dir},
		{name: "./oci-layout", body: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "./index.json", body: object{"schemaVersion": 2, "manifests": l.index}.json()},
	}, l.entries...)...)
}

func (w *world) load(name string, b []byte) (image.Image, error) {
	return w.Import(w.t.Context(), me, name, bytes.NewReader(b), nil)
}

func zstdOf(b []byte) []byte {
	e, err := zstd.NewWriter(nil)
	must(err)
	defer e.Close()
	return e.EncodeAll(b, nil)
}

func TestImport(t *testing.T) {
	app, other := func() *built { return build(tree{"a": "low"}, tree{"a": "high"}) }, func() *built { return build(tree{"b": "2"}) }
	full := object{"io.containerd.image.name": "docker.io/library/app:1", "org.opencontainers.image.ref.name": "1"}
	link := (&saved{}).add(app(), "app:1") // the second layer's file is a link to where another image has it
	link.entries[3] = entry{name: link.entries[3].name, link: "../shared/layer.tar"}
	link.entries = append(link.entries, entry{name: "shared/layer.tar", body: app().tars[1]})
	index := (&laid{}).add(app(), nil)
	all := object{"schemaVersion": 2, "mediaType": ociIndex, "manifests": []object{
		{"mediaType": ociManifest, "digest": digest(nil), "size": 9, "platform": object{"os": "linux", "architecture": "s390x"}},
		{"mediaType": ociManifest, "digest": index.index[0]["digest"], "size": index.index[0]["size"], "platform": object{"os": "linux", "architecture": runtime.GOARCH}},
	}}.json()
	index.blob(all)
	index.index = []object{{"mediaType": ociIndex, "digest": digest(all), "size": len(all), "annotations": full}}
	twice := (&laid{}).add(app(), full)
	again := object{"io.containerd.image.name": "app:2"}
	twice.index = append(twice.index, object{"mediaType": ociManifest, "digest": twice.index[0]["digest"], "size": twice.index[0]["size"], "annotations": again})

	tests := []struct {
		name  string
		as    string
		in    []byte
		names []string // what it is found by; the first is what Import says
		want  tree
	}{
		{"docker-save", "", (&saved{}).add(app(), "app:1", "team/app:2").tar(), []string{"app:1", "team/app:2"}, tree{"a": "high"}},
		{"docker-save-renamed", "mine", (&saved{}).add(app(), "app:1").tar(), []string{"mine:latest"}, tree{"a": "high"}},
		{"docker-save-nameless", "mine:3", (&saved{}).add(app()).tar(), []string{"mine:3"}, tree{"a": "high"}},
		{"docker-save-selected", "docker.io/library/other:1", (&saved{}).add(app(), "app:1").add(other(), "other:1", "x:1").tar(), []string{"other:1"}, tree{"b": "2"}},
		{"docker-save-gzip", "", zip((&saved{}).add(app(), "app:1").tar()), []string{"app:1"}, tree{"a": "high"}},
		{"docker-save-linked-layers", "", link.tar(), []string{"app:1"}, tree{"a": "high"}},
		{"layout", "", (&laid{}).add(app(), full).tar(), []string{"app:1"}, tree{"a": "high"}},
		{"layout-zstd", "", zstdOf((&laid{}).add(app(), full).tar()), []string{"app:1"}, tree{"a": "high"}},
		{"layout-tag-alone", "mine:1", (&laid{}).add(app(), object{"org.opencontainers.image.ref.name": "1"}).tar(), []string{"mine:1"}, tree{"a": "high"}},
		{"layout-full-ref-name", "", (&laid{}).add(app(), object{"org.opencontainers.image.ref.name": "localhost/app:1"}).tar(), []string{"localhost/app:1"}, tree{"a": "high"}},
		{"layout-index", "", index.tar(), []string{"app:1"}, tree{"a": "high"}},
		{"layout-two-names", "", twice.tar(), []string{"app:1", "app:2"}, tree{"a": "high"}},
		{"root-file-system", "root:1", tree{"etc/os-release": "x", "bin/sh": "y"}.tar(), []string{"root:1"}, tree{"etc/os-release": "x", "bin/sh": "y"}},
		{"root-file-system-gzip", "root:1", zip(tree{"etc/os-release": "x"}.tar()), []string{"root:1"}, tree{"etc/os-release": "x"}},
		{"root-with-a-manifest", "root:1", tree{"manifest.json": `{"name":"an app"}`}.tar(), []string{"root:1"}, tree{"manifest.json": `{"name":"an app"}`}},
		{"root-with-entries-twice", "root:1", pack(entry{name: "a", body: []byte("1")}, entry{name: "a", body: []byte("2")}), []string{"root:1"}, tree{"a": "2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			img, err := w.load(tt.as, tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if img.Name != tt.names[0] {
				t.Errorf("name = %q, want %q", img.Name, tt.names[0])
			}
			for _, n := range tt.names {
				got, err := w.Find(t.Context(), me, n)
				if err != nil || !cmp.Equal(files(t, got), tt.want) {
					t.Errorf("Find(%s) = %v, %v", n, got, err)
				}
			}
			if imgs, err := w.List(t.Context(), ""); err != nil || len(imgs) != len(tt.names) {
				t.Errorf("List = %v, %v", imgs, err)
			}
			if left := append(w.leftovers(), w.left("partial")...); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			again, err := w.load(tt.as, tt.in)
			if diff := cmp.Diff(img, again); diff != "" || err != nil {
				t.Errorf("the second time: %v %s", err, diff)
			}
		})
	}
}

// The same image has the same layers whichever way it came.
func TestImportSharesWithPull(t *testing.T) {
	w := newWorld(t)
	d := w.push("app", "1", build(tree{"a": "1"}))
	pulled := w.mustPull(me, "app:1")
	saved, err := w.load("", (&saved{}).add(build(tree{"a": "1"}), "app:1").tar())
	if err != nil || !cmp.Equal(saved.Layers, pulled.Layers) {
		t.Errorf("docker save: %q, %v, want %q", saved.Layers, err, pulled.Layers)
	}
	l, err := w.load("", (&laid{}).add(build(tree{"a": "1"}), object{"io.containerd.image.name": "app:2"}).tar())
	if err != nil || l.Digest != d || !cmp.Equal(l.Layers, pulled.Layers) {
		t.Errorf("layout: %s %q, %v, want %s %q", l.Digest, l.Layers, err, d, pulled.Layers)
	}
}

func TestRefusedArchives(t *testing.T) {
	app := func() *saved { return (&saved{}).add(build(tree{"a": "1"}), "app:1") }
	oci := func() *laid { return (&laid{}).add(build(tree{"a": "1"}), object{"io.containerd.image.name": "app:1"}) }
	with := func(es ...entry) []byte { a := app(); a.entries = append(a.entries, es...); return a.tar() }
	set := func(i int, e entry) []byte { a := app(); e.name = a.entries[i].name; a.entries[i] = e; return a.tar() }
	listed := func(key string, v any) []byte { a := app(); a.list[0][key] = v; return a.tar() }
	laidOut := func(change func(l *laid)) []byte { l := oci(); change(l); return l.tar() }
	raw := func(es ...entry) []byte { return pack(es...) }
	loop := entry{link: "layer.tar"}
	tests := []struct {
		name, as string
		in       []byte
		kind     sandbox.Kind
		text     string
	}{
		{"control-docker-save", "", app().tar(), "", ""},
		{"control-layout", "", oci().tar(), "", ""},
		{"control-more-files", "", with(entry{name: "VERSION", body: []byte("1.0")}), "", ""},
		{"empty", "", nil, sandbox.Invalid, "archive: there is nothing in it"},
		{"no-tar", "", []byte(strings.Repeat("carboy", 1000)), sandbox.Invalid, "not a tar, or cut short, after 0 entries"},
		{"cut-short", "", app().tar()[:1000], sandbox.Invalid, "not a tar, or cut short, after 1 entries"},
		{"gzip-cut-short", "", zip(app().tar())[:100], sandbox.Invalid, "compression is damaged"},
		{"gzip-head-alone", "", []byte("\x1f\x8b\x08"), sandbox.Invalid, ""},
		{"zstd-damaged", "", append(zstdOf(app().tar())[:60], make([]byte, 100)...), sandbox.Invalid, "compression is damaged"},
		{"bomb", "", zip(make([]byte, 65<<20)), sandbox.Invalid, "it grows more than 1000 times"},
		{"too-big", "", append(app().tar(), make([]byte, 1<<20)...), sandbox.Invalid, "it has more than 1000000 bytes"},
		{"dots", "", with(entry{name: "../etc/passwd"}), sandbox.Invalid, "archive: ../etc/passwd has .. in its name"},
		{"dots-inside", "", with(entry{name: "a/../b"}), sandbox.Invalid, "archive: a/../b has .. in its name"},
		{"absolute", "", with(entry{name: "/etc/passwd"}), sandbox.Invalid, "archive: /etc/passwd is an absolute name"},
		{"twice", "", with(app().entries[1]), sandbox.Invalid, "layer.tar is there twice"},
		{"twice-otherwise-spelt", "", with(entry{name: "./" + app().entries[1].name}), sandbox.Invalid, "layer.tar is there twice"},
		{"list-without-images", "", (&saved{list: []object{}}).tar(), sandbox.Invalid, "the archive holds no image"},
		{"list-too-deep", "", raw(entry{name: "manifest.json", body: []byte(strings.Repeat("[", 60_000))}), sandbox.Invalid, "manifest.json: JSON nested more than 64 deep"},
		{"list-no-json", "", raw(entry{name: "manifest.json", body: []byte("[{]")}), sandbox.Invalid, "manifest.json: not the JSON"},
		{"list-huge", "", raw(entry{name: "manifest.json", body: []byte("[" + strings.Repeat(" ", 70_000) + "]")}), sandbox.Invalid, "manifest.json has 70002 bytes, at most 65536"},
		{"config-missing", "", listed("Config", "none.json"), sandbox.Invalid, "archive: none.json is missing"},
		{"config-outside", "", listed("Config", "../../etc/passwd"), sandbox.Invalid, "has .. in its name"},
		{"config-absolute", "", listed("Config", "/etc/passwd"), sandbox.Invalid, "is an absolute name"},
		{"config-empty-name", "", listed("Config", ""), sandbox.Invalid, "has no name"},
		{"config-other-content", "", set(2, entry{body: []byte("{}")}), sandbox.Invalid, "its content has the digest " + digest([]byte("{}"))},
		{"layer-missing", "", listed("Layers", []string{"x/layer.tar"}), sandbox.Invalid, "archive: x/layer.tar is missing"},
		{"layers-too-many", "", listed("Layers", []string{app().entries[1].name, app().entries[1].name}), sandbox.Invalid, "rootfs.diff_ids has 1 entries, and the manifest 2 layers"},
		{"layer-is-a-directory", "", listed("Layers", []string{app().entries[0].name}), sandbox.Invalid, "is not a file"},
		{"layer-other-content", "", set(1, entry{body: tree{"a": "2"}.tar()}), sandbox.Invalid, "unpacked it has the digest"},
		{"layer-a-link-out", "", set(1, entry{link: "../../etc/passwd"}), sandbox.Invalid, "is a link out of the archive"},
		{"layer-an-absolute-link", "", set(1, entry{link: "/etc/passwd"}), sandbox.Invalid, "is a link out of the archive"},
		{"layer-a-link-to-nothing", "", set(1, entry{link: "nothing"}), sandbox.Invalid, "/nothing is missing"},
		{"layer-a-loop", "", set(1, loop), sandbox.Invalid, "leads through more than 10 links"},
		{"layer-a-device", "", set(1, entry{head: func(h *tar.Header) { h.Typeflag, h.Size = tar.TypeChar, 0 }}), sandbox.Invalid, "layer.tar is not a file"},
		{"names-bad", "", listed("RepoTags", []string{"../x"}), sandbox.Invalid, "image reference ../x: not REPOSITORY"},
		{"names-many", "", listed("RepoTags", make([]string, 101)), sandbox.Invalid, "101 names, at most 100"},
		{"names-none", "", listed("RepoTags", nil), sandbox.Invalid, "the archive has no name for its image"},
		{"several", "", app().add(build(tree{"b": "1"}), "b:1").add(build(tree{"c": "1"})).tar(), sandbox.Invalid, "the archive holds 3 images: app:1, b:1, one without a name"},
		{"several-other-name", "x:1", app().add(build(tree{"b": "1"}), "b:1").tar(), sandbox.Invalid, "the archive holds 2 images: app:1, b:1"},
		{"layout-without-index", "", raw(entry{name: "oci-layout", body: []byte(`{"imageLayoutVersion":"1.0.0"}`)}), sandbox.Invalid, "archive: index.json is missing"},
		{"layout-other-version", "", raw(entry{name: "oci-layout", body: []byte(`{"imageLayoutVersion":"2"}`)}), sandbox.Invalid, `oci-layout: version "2"`},
		{"layout-without-images", "", (&laid{}).tar(), sandbox.Invalid, "the archive holds no image"},
		{"layout-blob-missing", "", laidOut(func(l *laid) { l.entries = l.entries[1:] }), sandbox.Invalid, "is missing"},
		{"layout-blob-other", "", laidOut(func(l *laid) { l.entries[0].body[20] ^= 1 }), sandbox.Invalid, "its content has the digest"},
		{"layout-blob-longer", "", laidOut(func(l *laid) { l.entries[0].body = append(l.entries[0].body, 0) }), sandbox.Invalid, "and should have"},
		{"layout-config-other", "", laidOut(func(l *laid) { l.entries[1].body = bytes.Replace(l.entries[1].body, []byte("app"), []byte("bpp"), 1) }), sandbox.Invalid, "image configuration sha256:"},
		{"layout-manifest-other", "", laidOut(func(l *laid) { l.entries[2].body = append(l.entries[2].body, ' ') }), sandbox.Invalid, "manifest sha256:"},
		{"layout-digest-path", "", laidOut(func(l *laid) { l.index[0]["digest"] = "sha256:../../../etc/passwd" }), sandbox.Invalid, "is not sha256:"},
		{"layout-huge-manifest", "", laidOut(func(l *laid) { l.index[0]["size"] = 1 << 30 }), sandbox.Invalid, "1073741824 bytes, at most"},
		{"root-without-name", "", tree{"bin/sh": "x"}.tar(), sandbox.Invalid, "a root file system, which has no name"},
		{"root-with-dots", "root:1", pack(entry{name: "../x"}), sandbox.Invalid, ".."},
		{"name-with-digest", "a@" + digest(nil), app().tar(), sandbox.Invalid, "give it a tag"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(o *image.Options) {
				o.Limits.Manifest = 64 << 10
				if tt.name == "too-big" {
					o.Limits.Archive = 1_000_000
				}
			})
			_, err := w.load(tt.as, tt.in)
			if tt.kind == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, tt.kind, tt.text)
			if left := append(append(w.left("manifests"), w.left("names")...), w.leftovers()...); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// A sparse file has fewer bytes in the archive than it says.
func TestSparseMember(t *testing.T) {
	b := pack(entry{name: "a", body: []byte("x")})
	h := b[:512]
	h[156] = tar.TypeGNUSparse
	copy(h[257:], "ustar  \x00")
	copy(h[483:], "00000000001\x00") // its real size
	copy(h[148:], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], []byte{'0' + byte(sum>>15&7), '0' + byte(sum>>12&7), '0' + byte(sum>>9&7), '0' + byte(sum>>6&7), '0' + byte(sum>>3&7), '0' + byte(sum&7), 0, ' '})
	app := (&saved{}).add(build(tree{"a": "1"}), "app:1").tar()
	w := newWorld(t)
	_, err := w.load("", append(b[:1024:1024], app...))
	wantError(t, err, sandbox.Invalid, "archive: a is a sparse file")
}

func TestImportIsCut(t *testing.T) {
	w := newWorld(t)
	in := (&saved{}).add(build(tree{"a": "1"}), "app:1").tar()
	boom := errors.New("the client is gone")
	_, err := w.Import(t.Context(), me, "", io.MultiReader(bytes.NewReader(in[:3000]), iotest.ErrReader(boom)), nil)
	if !errors.Is(err, boom) {
		t.Errorf("Import = %v, want %v", err, boom)
	}
	_, err = w.Import(t.Context(), me, "", io.MultiReader(bytes.NewReader(zip(in)[:300]), iotest.ErrReader(boom)), nil)
	if !errors.Is(err, boom) {
		t.Errorf("Import = %v, want %v", err, boom)
	}
	if left := w.leftovers(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A layer that comes again further up is mounted twice, as two trees; one below that which is
// the whole root is not mounted.
func TestLayersThatShowNothing(t *testing.T) {
	w := newWorld(t)
	b := build(tree{"a": "1"}, tree{"b": "1"}, tree{"a": "1"})
	w.push("app", "1", b)
	if img := w.mustPull(me, "app:1"); len(img.Layers) != 3 || img.Layers[0] == img.Layers[2] {
		t.Errorf("layers = %q", img.Layers)
	}
	b = build(tree{"a": "1"}, tree{".wh..wh..opq": "", "c": "1"}, tree{"d": "1"})
	w.push("app", "2", b)
	img := w.mustPull(me, "app:2")
	if got, want := files(t, img), (tree{"c": "1", "d": "1"}); !cmp.Equal(got, want) {
		t.Errorf("files = %v, want %v", got, want)
	}
}

func FuzzImport(f *testing.F) {
	f.Add("", (&saved{}).add(build(tree{"a": "1"}), "app:1").tar())
	f.Add("x", (&laid{}).add(build(tree{"a": "1"}), nil).tar())
	f.Add("x", tree{"bin/sh": "x"}.tar())
	f.Add("", zip((&saved{}).add(build(tree{"a": "1"}), "app:1").tar()))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name string, in []byte) {
		s, err := image.Open(dir, image.Options{Limits: image.Limits{Archive: 8 << 20}})
		must(err)
		defer s.Close()
		img, err := s.Import(t.Context(), me, name, bytes.NewReader(in), nil)
		if err != nil {
			return
		}
		got, err := s.Find(t.Context(), me, img.Name)
		if err != nil || got.Digest != img.Digest {
			t.Errorf("imported as %q, and found %+v, %v", img.Name, got, err)
		}
		must(s.Remove(t.Context(), me, img.Digest))
		if _, _, err := s.GC(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}
