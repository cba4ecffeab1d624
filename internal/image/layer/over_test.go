package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func dirOf(name string, mode int64, uid, gid int) block {
	return entry(tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode, Uid: uid, Gid: gid}, "")
}

// merged are images whose layers say little of their directories, and what they show. The rule is
// that of engines that unpack a layer onto what the layers below show: containerd with a
// mounted snapshot (pkg/archive, applyNaive) and umoci (oci/layer, UnpackEntry). Both were run over these
// layers; where they differ, or we from both, the case says how.
var merged = []struct {
	name   string
	layers [][]block
	want   []string // but the root where it is 755 and root's
	err    string   // of the last layer
}{
	{
		name:   "implied-keeps-owner-and-mode",
		layers: [][]block{{dirOf("data", 0o700, 1234, 5678), file("data/old", "1")}, {file("data/key", "2")}},
		want:   []string{"data dir 700 1234:5678", `data/key file 644 0:0 "2"`, `data/old file 644 0:0 "1"`},
	},
	{
		name:   "implied-home",
		layers: [][]block{{dir("home"), dirOf("home/u", 0o750, 1000, 1000)}, {file("home/u/.profile", "2")}},
		want:   []string{"home dir 755 0:0", "home/u dir 750 1000:1000", `home/u/.profile file 644 0:0 "2"`},
	},
	{
		name:   "implied-in-part",
		layers: [][]block{{dirOf("srv", 0o711, 0, 0), dirOf("srv/a", 0o1777, 7, 7)}, {file("srv/a/b/c", "2")}},
		want:   []string{"srv dir 711 0:0", "srv/a dir 1777 7:7", "srv/a/b dir 755 0:0", `srv/a/b/c file 644 0:0 "2"`},
	},
	{
		name:   "implied-of-several-layers",
		layers: [][]block{{dirOf("d", 0o700, 1, 1), file("d/1", "1")}, {file("d/2", "2")}, {dirOf("d", 0o711, 3, 3)}, {file("d/4", "4")}},
		want:   []string{"d dir 711 3:3", `d/1 file 644 0:0 "1"`, `d/2 file 644 0:0 "2"`, `d/4 file 644 0:0 "4"`},
	},
	{
		name:   "implied-root",
		layers: [][]block{{dirOf("./", 0o711, 0, 0)}, {file("f", "2")}},
		want:   []string{". dir 711 0:0", `f file 644 0:0 "2"`},
	},
	{
		name:   "through-a-link",
		layers: [][]block{{dir("usr"), dir("usr/bin"), file("usr/bin/sh", "1"), symlink("bin", "usr/bin")}, {file("bin/tool", "2")}},
		want:   []string{"bin -> usr/bin", "usr dir 755 0:0", "usr/bin dir 755 0:0", `usr/bin/sh file 644 0:0 "1"`, `usr/bin/tool file 644 0:0 "2"`},
	},
	{
		name:   "through-an-absolute-link",
		layers: [][]block{{dirOf("usr/lib", 0o711, 5, 5), symlink("lib", "/usr/lib")}, {file("lib/a/b.so", "2")}},
		want:   []string{"lib -> /usr/lib", "usr dir 755 0:0", "usr/lib dir 711 5:5", "usr/lib/a dir 755 0:0", `usr/lib/a/b.so file 644 0:0 "2"`},
	},
	{
		name:   "through-links-of-two-layers",
		layers: [][]block{{dirOf("c", 0o700, 1, 1), symlink("b", "c")}, {symlink("a", "b")}, {file("a/f", "3")}},
		want:   []string{"a -> b", "b -> c", "c dir 700 1:1", `c/f file 644 0:0 "3"`},
	},
	{
		name:   "through-a-link-upwards",
		layers: [][]block{{symlink("a/l", "../b"), dirOf("b", 0o700, 1, 1)}, {file("a/l/f", "2")}},
		want:   []string{"a dir 755 0:0", "a/l -> ../b", "b dir 700 1:1", `b/f file 644 0:0 "2"`},
	},
	{
		name:   "through-a-link-out-of-the-root",
		layers: [][]block{{symlink("bin", "../../etc"), dirOf("etc", 0o700, 1, 1)}, {file("bin/passwd", "2")}},
		want:   []string{"bin -> ../../etc", "etc dir 700 1:1", `etc/passwd file 644 0:0 "2"`},
	},
	{
		name:   "through-an-absolute-link-out-of-the-root",
		layers: [][]block{{symlink("bin", "/../proc/self/root/tmp/..")}, {file("bin/out", "2")}},
		want: []string{
			"bin -> /../proc/self/root/tmp/..", "proc dir 755 0:0", "proc/self dir 755 0:0", "proc/self/root dir 755 0:0", `proc/self/root/out file 644 0:0 "2"`,
		},
	},
	{
		name:   "through-a-dangling-link",
		layers: [][]block{{symlink("data", "/mnt/data")}, {file("data/key", "2")}},
		want:   []string{"data -> /mnt/data", "mnt dir 755 0:0", "mnt/data dir 755 0:0", `mnt/data/key file 644 0:0 "2"`},
	},
	{
		name:   "through-a-link-of-the-same-layer",
		layers: [][]block{{dirOf("d", 0o700, 1, 1)}, {symlink("l", "d"), file("l/f", "2"), dirOf("l/e", 0o711, 2, 2)}},
		want:   []string{"d dir 700 1:1", "d/e dir 711 2:2", `d/f file 644 0:0 "2"`, "l -> d"},
	},
	{
		name:   "through-a-loop",
		layers: [][]block{{symlink("a", "b"), symlink("b", "a")}, {file("a/f", "2")}},
		err:    `layer entry "a/f": its parent "a" leads through more than 40 links`,
	},
	{
		name:   "through-a-link-to-itself",
		layers: [][]block{{symlink("a", "./a")}, {file("a/f", "2")}},
		err:    `layer entry "a/f": its parent "a" leads through more than 40 links`,
	},
	{
		name:   "listed-in-place-of-a-link",
		layers: [][]block{{file("usr/bin/sh", "1"), symlink("bin", "usr/bin")}, {dir("bin"), file("bin/tool", "2")}},
		want:   []string{"bin dir 755 0:0", `bin/tool file 644 0:0 "2"`, "usr dir 755 0:0", "usr/bin dir 755 0:0", `usr/bin/sh file 644 0:0 "1"`},
	},
	{
		name:   "link-that-a-later-layer-replaces",
		layers: [][]block{{symlink("d", "e"), file("e/x", "1")}, {file("d/early", "2")}, {dirOf("d", 0o700, 1, 1)}, {file("d/late", "4")}},
		want:   []string{"d dir 700 1:1", `d/late file 644 0:0 "4"`, "e dir 755 0:0", `e/early file 644 0:0 "2"`, `e/x file 644 0:0 "1"`},
	},
	{
		name:   "directory-that-a-later-layer-makes-a-link",
		layers: [][]block{{file("d/x", "1"), dirOf("e", 0o700, 1, 1)}, {symlink("d", "e")}, {file("d/f", "3")}},
		want:   []string{"d -> e", "e dir 700 1:1", `e/f file 644 0:0 "3"`},
	},
	{
		name:   "link-that-is-whited-out",
		layers: [][]block{{file("usr/bin/sh", "1"), symlink("bin", "usr/bin")}, {file(".wh.bin", ""), file("bin/tool", "2")}},
		want:   []string{"bin dir 755 0:0", `bin/tool file 644 0:0 "2"`, "usr dir 755 0:0", "usr/bin dir 755 0:0", `usr/bin/sh file 644 0:0 "1"`},
	},
	{
		name:   "directory-that-was-whited-out",
		layers: [][]block{{dirOf("d", 0o700, 1, 1), file("d/a", "1")}, {file(".wh.d", "")}, {file("d/b", "3")}},
		want:   []string{"d dir 755 0:0", `d/b file 644 0:0 "3"`},
	},
	{
		name:   "link-to-what-was-whited-out",
		layers: [][]block{{symlink("l", "d"), dirOf("d", 0o700, 1, 1), file("d/a", "1")}, {file(".wh.d", "")}, {file("l/b", "3")}},
		want:   []string{"d dir 755 0:0", `d/b file 644 0:0 "3"`, "l -> d"},
	},
	{
		name:   "whiteout-through-a-link",
		layers: [][]block{{file("usr/bin/sh", "1"), file("usr/bin/no", "1"), symlink("bin", "usr/bin")}, {file("bin/.wh.no", "")}},
		want:   []string{"bin -> usr/bin", "usr dir 755 0:0", "usr/bin dir 755 0:0", `usr/bin/sh file 644 0:0 "1"`},
	},
	{
		name:   "whiteout-in-an-implied-directory",
		layers: [][]block{{dirOf("d", 0o700, 1, 1), file("d/a", "1"), file("d/b", "1")}, {file("d/.wh.a", "")}},
		want:   []string{"d dir 700 1:1", `d/b file 644 0:0 "1"`},
	},
	{
		name:   "whiteout-of-nothing",
		layers: [][]block{{dir("e")}, {file("d/.wh.x", ""), file("d/y", "2"), file("e/.wh.x", "")}},
		want:   []string{"d dir 755 0:0", `d/y file 644 0:0 "2"`, "e dir 755 0:0"},
	},
	{
		name:   "opaque-through-a-link",
		layers: [][]block{{dirOf("usr/bin", 0o711, 1, 1), file("usr/bin/sh", "1"), symlink("bin", "usr/bin")}, {file("bin/.wh..wh..opq", ""), file("bin/new", "2")}},
		want:   []string{"bin -> usr/bin", "usr dir 755 0:0", "usr/bin dir 711 1:1", `usr/bin/new file 644 0:0 "2"`},
	},
	{
		name: "opaque-and-whiteouts",
		layers: [][]block{
			{file("d/a", "1"), file("d/b", "1"), file("d/e/f", "1")},
			{file("d/.wh.a", ""), file("d/e/.wh.f", ""), file("d/.wh..wh..opq", ""), file("d/.wh.b", ""), file("d/c", "2")},
		},
		want: []string{"d dir 755 0:0", `d/c file 644 0:0 "2"`},
	},
	{
		name:   "opaque-in-between",
		layers: [][]block{{dirOf("d", 0o700, 1, 1), file("d/a", "1")}, {dirOf("d", 0o711, 2, 2), file("d/.wh..wh..opq", "")}, {file("d/b", "3")}},
		want:   []string{"d dir 711 2:2", `d/b file 644 0:0 "3"`},
	},
	{
		name:   "opaque-hides-what-a-link-led-to",
		layers: [][]block{{dirOf("d/e", 0o700, 1, 1), symlink("l", "d/e")}, {file("d/.wh..wh..opq", ""), file("l/f", "2")}},
		want:   []string{"d dir 755 0:0", "d/e dir 755 0:0", `d/e/f file 644 0:0 "2"`, "l -> d/e"},
	},
	{
		name:   "hard-link-to-a-file-below",
		layers: [][]block{{entry(tar.Header{Typeflag: tar.TypeReg, Name: "a", Mode: 0o640, Uid: 7, Gid: 8}, "1")}, {link("d/b", "a")}},
		want:   []string{`a file 640 7:8 "1"`, "d dir 755 0:0", `d/b file 640 7:8 "1"`},
	},
	{
		name:   "hard-link-through-a-link-below",
		layers: [][]block{{dirOf("usr/bin", 0o711, 1, 1), file("usr/bin/sh", "1"), symlink("bin", "usr/bin")}, {link("bin/bash", "bin/sh")}},
		want:   []string{"bin -> usr/bin", "usr dir 755 0:0", "usr/bin dir 711 1:1", `usr/bin/bash file 644 0:0 "1"`, `usr/bin/sh file 644 0:0 "1"`},
	},
	{
		name:   "hard-link-to-a-link-below",
		layers: [][]block{{symlink("a", "/etc/passwd")}, {link("b", "a")}},
		want:   []string{"a -> /etc/passwd", "b -> /etc/passwd"},
	},
	{
		name:   "hard-link-to-what-was-whited-out",
		layers: [][]block{{file("a", "1")}, {file(".wh.a", "")}, {link("b", "a")}},
		err:    `layer entry "b": a hard link to "a", which neither the layer nor one below it has`,
	},
	{
		name:   "hard-link-to-a-directory-below",
		layers: [][]block{{dir("a")}, {link("b", "a")}},
		err:    `layer entry "b": a hard link to "a", which is neither a file nor a symbolic link`,
	},
	{
		name:   "hard-link-through-a-link-out-of-the-root",
		layers: [][]block{{symlink("e", "../../../../../../etc")}, {link("b", "e/passwd")}},
		err:    `layer entry "b": a hard link to "etc/passwd", which neither the layer nor one below it has`,
	},
	{
		name:   "file-below-in-the-way", // as umoci; containerd refuses it with a mounted snapshot, and not with others
		layers: [][]block{{file("f", "1")}, {file("f/x", "2")}},
		want:   []string{"f dir 755 0:0", `f/x file 644 0:0 "2"`},
	},
	{
		name:   "file-of-the-same-layer-in-the-way", // as containerd; umoci takes the file away
		layers: [][]block{{symlink("l", "f")}, {file("f", "2"), file("l/x", "2")}},
		err:    `layer entry "l/x": its parent "f" is no directory`,
	},
	{
		name:   "file-in-place-of-a-directory",
		layers: [][]block{{dirOf("d", 0o700, 1, 1), file("d/a", "1")}, {file("d", "2")}, {file("e", "3")}},
		want:   []string{`d file 644 0:0 "2"`, `e file 644 0:0 "3"`},
	},
	{
		name:   "device-in-place-of-a-file", // both make devices, and take no sockets
		layers: [][]block{{file("dev/null", "1"), file("x", "1"), dir("y")}, {device(tar.TypeChar, "dev/null", 1, 3), header('s', "x", "", ""), device(tar.TypeBlock, "z/sda", 8, 0)}},
		want:   []string{"dev dir 755 0:0", "y dir 755 0:0"},
	},
	{
		name:   "device-in-place-of-one-of-its-layer",
		layers: [][]block{{file("a", "1")}, {file("a", "2"), device(tar.TypeChar, "a", 1, 3), file("b", "2"), device(tar.TypeChar, "b", 1, 3)}},
		want:   nil,
	},
}

// TestOverLayers mounts what was unpacked, each layer over those below it.
func TestOverLayers(t *testing.T) {
	for _, tt := range merged {
		for _, kind := range []struct {
			name, options string
			o             layer.Options
		}{{"trusted", "", layer.Options{}}, {"user", "userxattr", layer.Options{UserXattr: true}}} {
			t.Run(tt.name+"/"+kind.name, func(t *testing.T) {
				privateMounts(t)
				base := t.TempDir()
				must(t, os.WriteFile(base+"/beside", nil, 0o600))
				before := besides(t, base)
				trees, err := over(t, base, kind.o, tt.layers)
				if d := cmp.Diff(before, besides(t, base)); d != "" {
					t.Errorf("something was made outside of the layers:\n%s", d)
				}
				if tt.err != "" {
					if err == nil || err.Error() != tt.err || sandbox.KindOf(err) != sandbox.Invalid {
						t.Errorf("Unpack = %v (%s)\nwant     %s", err, sandbox.KindOf(err), tt.err)
					}
					return
				}
				must(t, err)
				got := list(t, readOnly(t, trees, kind.options))
				if got[0] == ". dir 755 0:0" {
					got = got[1:]
				}
				if d := cmp.Diff(tt.want, append([]string(nil), got...)); d != "" {
					t.Errorf("view (-want +got):\n%s", d)
				}
			})
		}
	}
}

// besides lists what lies in base beside the layers.
func besides(t *testing.T, base string) (names []string) {
	es, err := os.ReadDir(base)
	must(t, err)
	for _, e := range es {
		if !strings.HasPrefix(e.Name(), "layer") {
			names = append(names, e.Name())
		}
	}
	return names
}

// over unpacks layers, each over those before it.
func over(t testing.TB, base string, o layer.Options, layers [][]block) (trees []string, err error) {
	for i, blocks := range layers {
		d := fmt.Sprintf("%s/layer%d", base, i)
		must(t, os.Mkdir(d, 0o755))
		o.Below = trees
		if _, err = unpack(t, d, archive(blocks...), o); err != nil {
			if i < len(layers)-1 {
				t.Fatalf("layer %d: %v", i, err)
			}
			return nil, err
		}
		trees = append(trees, d)
	}
	return trees, nil
}

// readOnly mounts trees, the lowest first, where only this test sees it.
func readOnly(t *testing.T, trees []string, options string) string {
	t.Helper()
	lowers := ""
	for _, tree := range trees {
		lowers = ":" + tree + lowers
	}
	at := t.TempDir()
	data := "lowerdir=" + lowers[1:]
	if options != "" {
		data += "," + options
	}
	if err := unix.Mount("overlay", at, "overlay", unix.MS_RDONLY, data); err != nil {
		t.Skipf("mount overlay: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

// The control: without the layers below, the same layers show what they must not.
func TestUnpackedAlone(t *testing.T) {
	privateMounts(t)
	for _, tt := range merged[:6] {
		var trees []string
		for _, blocks := range tt.layers {
			d := t.TempDir()
			_, err := unpack(t, d, archive(blocks...), layer.Options{})
			must(t, err)
			trees = append(trees, d)
		}
		if d := cmp.Diff(tt.want, list(t, readOnly(t, trees, ""))[1:]); d == "" {
			t.Errorf("%s: the same without the layers below", tt.name)
		}
		if ok, err := layer.Stands(context.Background(), trees, layer.Options{}); err != nil || ok {
			t.Errorf("%s: Stands = %v, %v", tt.name, ok, err)
		}
	}
}

// What a directory and a file have besides comes along.
func TestAttributesFromBelow(t *testing.T) {
	needRoot(t)
	h := tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o750}
	h.PAXRecords = map[string]string{"SCHILY.xattr.user.on.dir": "1"}
	hole := []block{
		pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=big", "GNU.sparse.realsize=67108864"),
		header('0', "GNUSparseFile.0/big", "", string(padded("1\n4096\n3\n"))+"abc"),
	}
	for _, o := range []layer.Options{{}, {UserXattr: true}} {
		trees, err := over(t, t.TempDir(), o, [][]block{
			append([]block{entry(h, ""), withXattr("f", "user.on.file", "2"), file("d/.wh..wh..opq", "")}, hole...),
			{file("d/x", "2"), link("g", "f"), link("large", "big")},
		})
		must(t, err)
		for _, tt := range []struct{ name, attr, want string }{{"d", "user.on.dir", "1"}, {"g", "user.on.file", "2"}, {"f", "user.on.file", "2"}} {
			var b [64]byte
			n, err := unix.Getxattr(trees[1]+"/"+tt.name, tt.attr, b[:])
			fi, serr := os.Lstat(trees[1] + "/" + tt.name)
			must(t, serr)
			if err != nil || string(b[:n]) != tt.want || !fi.ModTime().Equal(then) {
				t.Errorf("%s of %s = %q, %v, modified %v", tt.attr, tt.name, b[:max(n, 0)], err, fi.ModTime())
			}
		}
		if isOpaque(trees[1] + "/d") {
			t.Error("the mark of the directory below came along")
		}
		var st, other unix.Stat_t
		must(t, unix.Stat(trees[1]+"/large", &st))
		must(t, unix.Stat(trees[1]+"/big", &other))
		if st.Ino != other.Ino || st.Nlink != 2 || st.Size != 64<<20 || st.Blocks*512 > 1<<20 {
			t.Errorf("large: %+v, big: %+v", st, other)
		}
	}
}

// Names that lead round and round are given up in a time that does not depend on them; what is
// in one directory takes the steps there once.
func TestStepsAreBounded(t *testing.T) {
	needRoot(t)
	lower := []block{dir("d")}
	for i := range 30 {
		lower = append(lower, symlink(fmt.Sprintf("l%d", i), strings.Repeat("d/../", 30)+fmt.Sprintf("l%d", i+1)))
	}
	lower = append(lower, symlink("l30", "d"), symlink("m", "d"))
	var upper, benign []block
	for i := range 20 {
		upper = append(upper, file(fmt.Sprintf("l0/f%d", i), ""))
		benign = append(benign, file(fmt.Sprintf("m/f%d", i), ""))
	}
	o := layer.Options{Limits: layer.Limits{Steps: 10_000}}
	_, err := over(t, t.TempDir(), o, [][]block{lower, upper})
	if err == nil || !strings.HasSuffix(err.Error(), "its names lead through links in more than 10000 steps") {
		t.Errorf("Unpack = %v", err)
	}
	o.Limits.Steps = 10
	if _, err = over(t, t.TempDir(), o, [][]block{lower, benign}); err != nil {
		t.Errorf("benign: Unpack = %v", err)
	}
}

// What an entry changes of the way to the next one counts.
func TestWayChanges(t *testing.T) {
	needRoot(t)
	base := []block{dir("usr/bin"), symlink("bin", "usr/bin"), symlink("to", "bin")}
	for _, tt := range []struct {
		name  string
		layer []block
		want  string // a file, or the error
	}{
		{"control", []block{file("to/a", ""), file("to/b", "")}, "usr/bin/b"},
		{"a-directory", []block{file("to/a", ""), dir("bin"), file("to/b", "")}, "bin/b"},
		{"a-link", []block{file("to/a", ""), symlink("bin", "etc"), file("to/b", "")}, "etc/b"},
		{"a-whiteout", []block{file("to/a", ""), file(".wh.bin", ""), file("to/b", "")}, "bin/b"},
		{"hidden", []block{file("to/a", ""), file(".wh..wh..opq", ""), file("to/b", "")}, "to/b"},
		{"a-file", []block{file("to/a", ""), file("bin", ""), file("to/b", "")}, `layer entry "to/b": its parent "bin" is no directory`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trees, err := over(t, t.TempDir(), layer.Options{}, [][]block{base, tt.layer})
			if err != nil {
				if err.Error() != tt.want {
					t.Errorf("Unpack = %v, want %s", err, tt.want)
				}
				return
			}
			if _, err := os.Lstat(trees[1] + "/" + tt.want); err != nil {
				t.Errorf("%v in %q", err, list(t, trees[1]))
			}
		})
	}
}

// Stands takes what was unpacked without the layers below for right where that is no different.
func TestStands(t *testing.T) {
	needRoot(t)
	for _, tt := range []struct {
		name   string
		layers [][]block
		want   bool
	}{
		{"listed", [][]block{{dirOf("d", 0o700, 1, 1)}, {dirOf("d", 0o700, 1, 1), file("d/x", "")}}, true},
		{"implied-and-plain", [][]block{{dir("usr/bin")}, {file("usr/bin/x", "")}}, true},
		{"implied-and-new", [][]block{{dir("usr")}, {file("opt/a/x", "")}}, true},
		{"implied-closed", [][]block{{dirOf("a/d", 0o700, 0, 0)}, {file("a/d/x", "")}}, false},
		{"implied-others", [][]block{{dirOf("a/d", 0o755, 1, 0)}, {file("b", "")}, {file("a/d/x", "")}}, false},
		{"implied-link", [][]block{{symlink("bin", "usr/bin")}, {file("bin/x", "")}}, false},
		{"implied-anew", [][]block{{dirOf("d", 0o700, 1, 1)}, {file(".wh.d", "")}, {file("d/x", "")}}, true},
		{"implied-behind-opaque", [][]block{{dirOf("d/e", 0o700, 1, 1)}, {file("d/.wh..wh..opq", ""), file("d/e/x", "")}}, true},
		{"alone", [][]block{{dirOf("d", 0o700, 1, 1)}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var trees []string
			for _, blocks := range tt.layers {
				d := t.TempDir()
				_, err := unpack(t, d, archive(blocks...), layer.Options{})
				must(t, err)
				for _, b := range blocks { // whiteouts, which were made of whatever name
					if name, ok := strings.CutPrefix(string(b[512*2:bytes.IndexByte(b[512*2:], 0)+512*2]), ".wh."); ok && name[0] != '.' {
						must(t, unix.Mknod(d+"/"+name, unix.S_IFCHR, 0))
					}
				}
				trees = append(trees, d)
			}
			if ok, err := layer.Stands(t.Context(), trees, layer.Options{}); err != nil || ok != tt.want {
				t.Errorf("Stands = %v, %v, want %v", ok, err, tt.want)
			}
		})
	}
}
