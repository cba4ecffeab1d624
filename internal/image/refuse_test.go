package image_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// deep nests arrays.
func deep(n int) []byte {
	return []byte(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n))
}

// TestRefusedImages damages an image in one way each. The first case is the
// same image undamaged.
func TestRefusedImages(t *testing.T) {
	layer := func(b *built, key string, v any) { b.layers[0][key] = v }
	conf := func(b *built, key string, v any) { b.config()[key] = v }
	tests := []struct {
		name   string
		damage func(b *built)
		kind   sandbox.Kind
		text   string
	}{
		{"control", func(*built) {}, "", ""},
		{"foreign-layer", func(b *built) {
			layer(b, "mediaType", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")
		}, sandbox.Unsupported, `it may not be distributed`},
		{"nondistributable-layer", func(b *built) {
			layer(b, "mediaType", "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd")
		}, sandbox.Unsupported, `it may not be distributed`},
		{"unknown-layer", func(b *built) { layer(b, "mediaType", "application/x-\x1b[31m") }, sandbox.Unsupported, `unknown media type "application/x-\x1b[31m"`},
		{"layer-digest", func(b *built) { layer(b, "digest", "sha512:"+strings.Repeat("0", 128)) }, sandbox.Invalid, "is not sha256:"},
		{"layer-digest-path", func(b *built) { layer(b, "digest", "../../../etc/passwd") }, sandbox.Invalid, "is not sha256:"},
		{"layer-without-size", func(b *built) { layer(b, "size", 0) }, sandbox.Invalid, "no size is given"},
		{"layer-of-negative-size", func(b *built) { layer(b, "size", -1) }, sandbox.Invalid, "no size is given"},
		{"layer-too-big", func(b *built) { layer(b, "size", int64(1)<<40) }, sandbox.Invalid, "at most 17179869184"},
		{"layer-missing", func(b *built) { layer(b, "digest", digest(nil)) }, sandbox.NotFound, "no such image or blob"},
		{"layer-of-other-size", func(b *built) { layer(b, "size", 5) }, sandbox.Invalid, "5 are missing"},
		{"other-diff-id", func(b *built) {
			b.conf["rootfs"].(object)["diff_ids"] = []string{digest([]byte("x")), digest(b.tars[1])}
		}, sandbox.Invalid, "unpacked it has the digest " + digest(build(tree{"a": "1"}).tars[0])},
		{"two-diff-ids-for-one", func(b *built) { b.layers[1] = b.layers[0] }, sandbox.Invalid, "two digests for what is in it"},
		{"too-few-diff-ids", func(b *built) { b.conf["rootfs"].(object)["diff_ids"] = []string{digest(b.tars[0])} }, sandbox.Invalid, "rootfs.diff_ids has 1 entries, and the manifest 2 layers"},
		{"diff-id-path", func(b *built) { b.conf["rootfs"].(object)["diff_ids"] = []string{"../x", "y"} }, sandbox.Invalid, `rootfs.diff_ids: "../x"`},
		{"rootfs-type", func(b *built) { b.conf["rootfs"].(object)["type"] = "x" }, sandbox.Invalid, `rootfs.type is "x"`},
		{"no-layers", func(b *built) { b.layers = []object{}; b.conf["rootfs"].(object)["diff_ids"] = []string{} }, sandbox.Invalid, "has no layer"},
		{"too-many-layers", func(b *built) {
			for len(b.layers) < 128 {
				b.layers = append(b.layers, b.layers[0])
			}
		}, sandbox.Invalid, "the image has 128 layers, and at most 127 can be mounted together"},
		{"other-machine", func(b *built) { b.conf["architecture"] = "s390x" }, sandbox.Unsupported, "linux/s390x, and this machine is linux/" + runtime.GOARCH},
		{"other-system", func(b *built) { b.conf["os"] = "windows" }, sandbox.Unsupported, "the image is for windows/"},
		{"schema-1", func(b *built) { b.man["schemaVersion"] = 1 }, sandbox.Unsupported, "schema 1"},
		{"schema-3", func(b *built) { b.man["schemaVersion"] = 3 }, sandbox.Invalid, "schemaVersion is 3"},
		{"an-artifact", func(b *built) {
			b.man["config"] = object{"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": digest(nil), "size": 2}
		}, sandbox.Unsupported, `its config is a "application/vnd.cncf.helm.config.v1+json"`},
		{"two-types", func(b *built) { b.manType = "application/vnd.docker.distribution.manifest.v2+json" }, sandbox.Invalid, "and came as"},
		{"unknown-type", func(b *built) { b.man["mediaType"] = "text/html"; b.manType = "text/html" }, sandbox.Unsupported, `unknown media type "text/html"`},
		{"image-and-index", func(b *built) { b.man["manifests"] = []object{{"digest": digest(nil)}} }, sandbox.Invalid, "both an image and an index"},
		{"manifest-too-big", func(b *built) { b.man["annotations"] = object{"x": strings.Repeat("x", 4<<20)} }, sandbox.Invalid, "it has more than 4194304 bytes"},
		{"manifest-too-deep", func(b *built) { b.man["annotations"] = object{"x": rawJSON(deep(70))} }, sandbox.Invalid, "manifest: JSON nested more than 64 deep"},
		{"config-too-deep", func(b *built) { b.conf["x"] = rawJSON(deep(5000)) }, sandbox.Invalid, "image configuration: JSON nested more than 64 deep"},
		{"config-too-big", func(b *built) {
			b.confBlob = b.conf.json()
			b.man["config"] = object{"mediaType": ociConfig, "digest": digest(b.confBlob), "size": 9 << 20}
		}, sandbox.Invalid, "at most 8388608"},
		{"config-no-json", func(b *built) { b.confBlob = []byte("<html>") }, sandbox.Invalid, "not the JSON"},
		{"config-other-digest", func(b *built) {
			b.confBlob = b.conf.json()
			b.man["config"] = object{"mediaType": ociConfig, "digest": digest(b.confBlob), "size": len(b.confBlob) + 1}
		}, sandbox.Invalid, "and should have"},
		{"env-without-name", func(b *built) { conf(b, "Env", []string{"A=1", "=x"}) }, sandbox.Invalid, "Env: =x is not NAME=value"},
		{"env-without-value", func(b *built) { conf(b, "Env", []string{"PATH"}) }, sandbox.Invalid, "Env: PATH is not NAME=value"},
		{"env-nul", func(b *built) { conf(b, "Env", []string{"A=\x00"}) }, sandbox.Invalid, `Env: A=\x00 has a NUL`},
		{"env-long", func(b *built) { conf(b, "Env", []string{"A=" + strings.Repeat("x", 128<<10)}) }, sandbox.Invalid, "131074 bytes, at most"},
		{"env-many", func(b *built) { conf(b, "Env", strings.Split(strings.Repeat("A=1 ", 4096)+"A=1", " ")) }, sandbox.Invalid, "Env: 4097 entries"},
		{"cmd-nul", func(b *built) { conf(b, "Cmd", []string{"a\x00b"}) }, sandbox.Invalid, "Cmd: "},
		{"entrypoint-much", func(b *built) {
			conf(b, "Entrypoint", strings.Split(strings.Repeat(strings.Repeat("x", 1<<17-2)+" ", 9), " "))
		}, sandbox.Invalid, "Entrypoint: 10 entries of"},
		{"user-control", func(b *built) { conf(b, "User", "root\n") }, sandbox.Invalid, "User: "},
		{"user-long", func(b *built) { conf(b, "User", strings.Repeat("u", 257)) }, sandbox.Invalid, "User: "},
		{"workdir-relative", func(b *built) { conf(b, "WorkingDir", "srv") }, sandbox.Invalid, "WorkingDir: srv is not absolute"},
		{"workdir-nul", func(b *built) { conf(b, "WorkingDir", "/\x00") }, sandbox.Invalid, "WorkingDir: "},
		{"signal", func(b *built) { conf(b, "StopSignal", "kill -9") }, sandbox.Invalid, "StopSignal: kill -9 is no signal"},
		{"signal-number", func(b *built) { conf(b, "StopSignal", "65") }, sandbox.Invalid, "StopSignal: 65 is no signal"},
		{"label-nul", func(b *built) { conf(b, "Labels", object{"a": "\x00"}) }, sandbox.Invalid, "Labels: "},
		{"label-nameless", func(b *built) { conf(b, "Labels", object{"": "x"}) }, sandbox.Invalid, "Labels: one has no name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			b := build(tree{"a": "1"}, tree{"b": "2"})
			tt.damage(b)
			w.push("app", "1", b)
			_, err := w.Pull(t.Context(), me, w.ref("app:1"), nil, nil)
			if tt.kind == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, tt.kind, tt.text)
			if imgs, err := w.List(t.Context(), ""); err != nil || len(imgs) > 0 {
				t.Errorf("List = %v, %v after a refusal", imgs, err)
			}
			if left := append(w.left("partial"), w.leftovers()...); len(left) > 0 && tt.name != "layer-missing" {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// leftovers lists what is in this process's temporary directories.
func (w *world) leftovers() (names []string) {
	for _, d := range w.left("tmp") {
		names = append(names, w.left("tmp/"+d)...)
	}
	return names
}

type rawJSON []byte

func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

// What does not say its platform is taken for this machine's, and says so.
func TestNoPlatform(t *testing.T) {
	w := newWorld(t)
	for _, lacks := range [][]string{{"os", "architecture"}, {"os"}, {"architecture"}} {
		b := build(tree{"a": "1"})
		for _, key := range lacks {
			delete(b.conf, key)
		}
		tag := strings.Join(lacks, "-")
		w.push("app", tag, b)
		img := w.mustPull(me, "app:"+tag)
		if img.OS != "linux" || img.Arch != runtime.GOARCH || len(img.Notes) != 1 || !strings.Contains(img.Notes[0], "taken for linux/"+runtime.GOARCH) {
			t.Errorf("without %v: %s/%s, %q", lacks, img.OS, img.Arch, img.Notes)
		}
	}
	b := build(tree{"a": "1"})
	w.push("app", "whole", b)
	if img := w.mustPull(me, "app:whole"); len(img.Notes) != 0 {
		t.Errorf("with a platform: %q", img.Notes)
	}
}

// All that the kernel and the format allow is accepted.
func TestAcceptedConfigurations(t *testing.T) {
	w := newWorld(t)
	for i, change := range []func(object){
		func(c object) { c["StopSignal"] = "9" },
		func(c object) { c["StopSignal"] = "TERM" },
		func(c object) { c["StopSignal"] = "SIGRTMIN+3" },
		func(c object) { c["User"] = "1000:1000" },
		func(c object) { c["Env"] = []string{"A=", "B==", "A=2"} },
		func(c object) { c["Labels"] = object{"a": "line\nline"} },
		func(c object) { clear(c) },
	} {
		b := build(tree{"a": "1"})
		change(b.config())
		tag := fmt.Sprint(i)
		w.push("app", tag, b)
		w.mustPull(me, "app:"+tag)
	}
}

func TestRefusedReferences(t *testing.T) {
	d := digest(nil)
	tests := []struct{ name, in, want, text string }{
		{"short", "debian", "debian:latest", ""},
		{"tag", "debian:12", "debian:12", ""},
		{"namespace", "library/debian:12", "debian:12", ""},
		{"full", "docker.io/library/debian:12", "debian:12", ""},
		{"user", "team/app", "team/app:latest", ""},
		{"library-below", "docker.io/library/a/b", "index.docker.io/library/a/b:latest", ""},
		{"looks-like-a-host", "docker.io/a.b/c", "index.docker.io/a.b/c:latest", ""},
		{"host-and-port", "localhost:5000/a/b:1", "localhost:5000/a/b:1", ""},
		{"ipv6", "[::1]:5000/a:1", "[::1]:5000/a:1", ""},
		{"digest", "debian@" + d, "debian@" + d, ""},
		{"tag-and-digest", "debian:12@" + d, "debian@" + d, ""},
		{"empty", "", "", "it is empty"},
		{"long", strings.Repeat("a", 513), "", "513 bytes"},
		{"machine", "host", "", "this machine's own system"},
		{"scheme", "https://bob:" + secret + "@x.example/a", "", "a scheme"},
		{"user-info", "bob:" + secret + "@x.example/a", "", `what follows "@"`},
		{"dots", "x.example/../../a", "", "not REPOSITORY"},
		{"dots-inside", "x.example/a/../b", "", "not REPOSITORY"},
		{"upper", "Debian", "", "not REPOSITORY"},
		{"empty-part", "a//b", "", "not REPOSITORY"},
		{"no-tag", "a:", "", "not REPOSITORY"},
		{"bad-tag", "a:-x", "", "not REPOSITORY"},
		{"query", "x.example/a?b", "", "not REPOSITORY"},
		{"host-with-path", "x.example%2f/a", "", "not REPOSITORY"},
		{"control", "a\x1b[31m", "", `a\x1b[31m: not REPOSITORY`},
		{"short-digest", "a@sha256:00", "", `what follows "@"`},
		{"sha512", "a@sha512:" + strings.Repeat("0", 128), "", `what follows "@"`},
		{"upper-digest", "a@sha256:" + strings.Repeat("A", 64), "", `what follows "@"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, _, _, _, err := image.ParseReference(tt.in)
			if tt.text == "" {
				if err != nil || got != tt.want {
					t.Errorf("ParseReference = %q, %v, want %q", got, err, tt.want)
				}
				return
			}
			wantError(t, err, sandbox.Invalid, tt.text)
			showsNone(t, err, "")
		})
	}
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{"debian", "a.b/c:1", "localhost:5000/x@" + digest(nil), "docker.io/library/x", "[::1]:1/a", "a/../b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		short, host, repo, id, err := image.ParseReference(s)
		if err != nil {
			if sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("%q: %v is %s", s, err, sandbox.KindOf(err))
			}
			return
		}
		short2, host2, repo2, id2, err := image.ParseReference(short)
		if err != nil || short2 != short || host2 != host || repo2 != repo || id2 != id {
			t.Errorf("%q is %q, which is %q %q %q %q, %v", s, short, short2, host2, repo2, id2, err)
		}
		for _, part := range strings.Split(repo+"/"+id, "/") {
			if part == "" || part == "." || part == ".." {
				t.Errorf("%q asks for %s/%s", s, repo, id)
			}
		}
	})
}
