package layer_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// hostile layers are refused, each for its own reason. The benign one beside
// it differs in that alone, and is unpacked.
var hostile = []struct {
	name   string
	layer  []block
	want   string
	benign []block
	limits layer.Limits // of both
}{
	{
		name: "dotdot", layer: []block{file("a/../../out", "x")}, benign: []block{file("a/..b/out", "x")},
		want: `layer entry "a/../../out": its name has a ".." component`,
	},
	{
		name: "dotdot-inside", layer: []block{dir("a"), file("a/../b", "x")}, benign: []block{dir("a"), file("a/./b", "x")},
		want: `layer entry "a/../b": its name has a ".." component`,
	},
	{
		name: "dotdot-after-the-root", layer: []block{file("/../out", "x")}, benign: []block{file("/out", "x")},
		want: `layer entry "/../out": its name has a ".." component`,
	},
	{
		name: "no-name", layer: []block{header('0', "", "", "x")}, benign: []block{header('0', "x", "", "x")},
		want: `layer entry "": its name is empty`,
	},
	{
		name:   "nul",
		layer:  []block{pax("GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.name=a\x00b", "GNU.sparse.size=1", "GNU.sparse.numblocks=1", "GNU.sparse.map=0,1"), header('0', "a", "", "x")},
		benign: []block{pax("GNU.sparse.major=0", "GNU.sparse.minor=1", "GNU.sparse.name=a-b", "GNU.sparse.size=1", "GNU.sparse.numblocks=1", "GNU.sparse.map=0,1"), header('0', "a", "", "x")},
		want:   `layer entry "a\x00b": its name holds a NUL byte`,
	},
	{
		name: "long-name", layer: []block{file(strings.Repeat("a/", 200)+"b", "")}, benign: []block{file(strings.Repeat("a/", 199)+"bc", "")},
		limits: layer.Limits{Path: 400},
		want:   `layer entry "` + strings.Repeat("a/", 100) + `": its name is 401 bytes long, over 400`,
	},
	{
		name: "long-component", layer: []block{file("d/"+strings.Repeat("x", 256), "")}, benign: []block{file("d/"+strings.Repeat("x", 255), "")},
		want: `layer entry "d/` + strings.Repeat("x", 198) + `": a component of its name is 256 bytes long, over 255`,
	},
	{
		name: "deep", layer: []block{file(strings.Repeat("a/", 512)+"b", "")}, benign: []block{file(strings.Repeat("a/", 511)+"b", "")},
		want: `layer entry "` + strings.Repeat("a/", 100) + `": its name has 513 components, over 512`,
	},
	{
		name: "file-as-root", layer: []block{symlink("./", "/etc")}, benign: []block{dir("./")},
		want: `layer entry "./": the layer's root can only be a directory`,
	},
	{
		name: "through-a-file", layer: []block{file("f", ""), file("f/x", "")}, benign: []block{dir("f"), file("f/x", "")},
		want: `layer entry "f/x": its parent "f" is no directory`,
	},
	{
		name: "through-a-fifo", layer: []block{header('6', "f", "", ""), symlink("f/x", "y")}, benign: []block{header('6', "f", "", ""), symlink("g/x", "y")},
		want: `layer entry "f/x": its parent "f" is no directory`,
	},
	{
		name: "in-place-of-a-full-directory", layer: []block{file("d/x", ""), symlink("d", "/etc")}, benign: []block{dir("d"), symlink("d", "/etc")},
		want: `layer entry "d": it would take the place of a directory that the layer filled`,
	},
	{
		name: "hard-link-out", layer: []block{link("l", "../../etc/passwd")}, benign: []block{file("etc/passwd", ""), link("l", "/etc/passwd")},
		want: `layer entry "l": its target "../../etc/passwd" can't be: its name has a ".." component`,
	},
	{
		name: "hard-link-to-the-host", layer: []block{link("l", "/etc/passwd")}, benign: []block{file("etc/passwd", ""), link("l", "/etc/passwd")},
		want: `layer entry "l": a hard link to "etc/passwd", which neither the layer nor one below it has`,
	},
	{
		name: "hard-link-through-a-link", layer: []block{symlink("e", "/etc"), link("l", "e/passwd")}, benign: []block{file("e/passwd", ""), link("l", "e/passwd")},
		want: `layer entry "l": a hard link to "etc/passwd", which neither the layer nor one below it has`,
	},
	{
		name: "hard-link-to-a-directory", layer: []block{dir("d"), link("l", "d")}, benign: []block{symlink("d", "/etc"), link("l", "d")},
		want: `layer entry "l": a hard link to "d", which is neither a file nor a symbolic link`,
	},
	{
		name: "hard-link-to-the-root", layer: []block{link("l", "/")}, benign: []block{file("r", ""), link("l", "/r")},
		want: `layer entry "l": a hard link to ".", which is neither a file nor a symbolic link`,
	},
	{
		name: "hard-link-to-a-whiteout", layer: []block{file(".wh.f", ""), link("l", "f")}, benign: []block{file("f", ""), link("l", "f")},
		want: `layer entry "l": a hard link to "f", which neither the layer nor one below it has`,
	},
	{
		name: "hard-link-to-a-whiteouts-name", layer: []block{file(".wh.f", ""), link("l", ".wh.f")}, benign: []block{file(".wh", ""), link("l", ".wh")},
		want: `layer entry "l": a hard link to ".wh.f", which a whiteout is called`,
	},
	{
		name: "hard-link-to-itself", layer: []block{file("f", ""), link("./f", "/f")}, benign: []block{file("f", ""), link("./g", "/f")},
		want: `layer entry "./f": a hard link to itself`,
	},
	{
		name: "symlink-to-nothing", layer: []block{header('2', "l", "", "")}, benign: []block{header('2', "l", "../../..", "")},
		want: `layer entry "l": a symbolic link without a target`,
	},
	{
		name: "long-symlink", layer: []block{symlink("l", strings.Repeat("x/", 2048))}, benign: []block{symlink("l", strings.Repeat("x/", 2000))},
		want: `layer entry "l": a symbolic link whose target is 4096 bytes long, over 4095`,
	},
	{
		name: "whiteout-device", layer: []block{device(tar.TypeChar, "etc/passwd", 0, 0)}, benign: []block{device(tar.TypeChar, "etc/passwd", 0, 1)},
		want: `layer entry "etc/passwd": a character device 0:0 forges a whiteout of overlayfs`,
	},
	{
		name: "overlay-mark", layer: []block{withXattr("f", "trusted.overlay.redirect", "/etc")}, benign: []block{withXattr("f", "trusted.overlays", "/etc")},
		want: `layer entry "f": the extended attribute "trusted.overlay.redirect" forges a mark of overlayfs`,
	},
	{
		name: "overlay-user-mark", layer: []block{withXattr("f", "user.overlay.metacopy", "")}, benign: []block{withXattr("f", "user.overlayer", "")},
		want: `layer entry "f": the extended attribute "user.overlay.metacopy" forges a mark of overlayfs`,
	},
	{
		name: "overlay-mark-nested", layer: []block{withXattr("f", "trusted.overlay.overlay.opaque", "y")}, benign: []block{withXattr("f", "user.opaque", "y")},
		want: `layer entry "f": the extended attribute "trusted.overlay.overlay.opaque" forges a mark of overlayfs`,
	},
	{
		name: "overlay-mark-on-a-whiteout", layer: []block{pax("SCHILY.xattr.trusted.overlay.opaque=y"), header('0', ".wh.f", "", "")}, benign: []block{pax("SCHILY.xattr.user.opaque=y"), header('0', ".wh.f", "", "")},
		want: `layer entry ".wh.f": the extended attribute "trusted.overlay.opaque" forges a mark of overlayfs`,
	},
	{
		name: "many-xattrs", layer: []block{withXattr("f", "user.k", strings.Repeat("v", 95))}, benign: []block{withXattr("f", "user.k", strings.Repeat("v", 94))},
		limits: layer.Limits{Xattr: 100},
		want:   `layer entry "f": its extended attributes take more than 100 bytes`,
	},
	{
		name: "xattr-without-a-name", layer: []block{pax("SCHILY.xattr.=v"), header('0', "f", "", "")}, benign: []block{pax("SCHILY.xattr=v"), header('0', "f", "", "")},
		want: `layer entry "f": an extended attribute without a usable name`,
	},
	{
		name: "xattr-with-a-long-name", layer: []block{withXattr("f", "user."+strings.Repeat("n", 251), "")}, benign: []block{withXattr("f", "user."+strings.Repeat("n", 250), "")},
		want: `layer entry "f": the name of an extended attribute is 256 bytes long, over 255`,
	},
	{
		name: "large-pax", layer: []block{pax("V.a=" + strings.Repeat("v", 1<<18)), header('0', "f", "", "")}, benign: []block{pax("V.a=" + strings.Repeat("v", 1<<17)), header('0', "f", "", "")},
		want: fmt.Sprintf(`layer entry "f": its PAX records take %d bytes, over %d`, 1<<18+3, 1<<18),
	},
	{
		name: "huge-pax", layer: []block{pax("V.a=" + strings.Repeat("v", 1<<20)), file("f", "")}, benign: []block{pax("V.a=v"), file("f", "")},
		want: `layer: a header of the archive is longer than 1 MiB`,
	},
	{
		name: "uid", layer: []block{entry(tar.Header{Typeflag: tar.TypeReg, Name: "f", Uid: 65536}, "")}, benign: []block{entry(tar.Header{Typeflag: tar.TypeReg, Name: "f", Uid: 65535}, "")},
		want: `layer entry "f": its owner 65536:0 is not within 0 to 65535`,
	},
	{
		name: "negative-gid", layer: []block{pax("gid=-1"), header('0', "f", "", "")}, benign: []block{pax("gid=1"), header('0', "f", "", "")},
		want: `layer entry "f": its owner 0:-1 is not within 0 to 65535`,
	},
	{
		name: "whiteout-of-nothing", layer: []block{file("d/.wh.", "")}, benign: []block{file("d/.wh.x", "")},
		want: `layer entry "d/.wh.": a whiteout of no name`,
	},
	{
		name: "whiteout-of-dot", layer: []block{file("d/.wh..", "")}, benign: []block{file("d/.wh..x", "")},
		want: `layer entry "d/.wh..": a whiteout of "."`,
	},
	{
		name: "whiteout-of-dotdot", layer: []block{file("d/.wh...", "")}, benign: []block{file("d/.wh....", "")},
		want: `layer entry "d/.wh...": a whiteout of ".."`,
	},
	{
		name: "whiteout-as-directory", layer: []block{dir(".wh.d")}, benign: []block{file(".wh.d", "")},
		want: `layer entry ".wh.d": a whiteout that is no plain file`,
	},
	{
		name: "opaque-as-link", layer: []block{symlink("d/.wh..wh..opq", "x")}, benign: []block{file("d/.wh..wh..opq", "")},
		want: `layer entry "d/.wh..wh..opq": a whiteout that is no plain file`,
	},
	{
		name: "whiteout-with-contents", layer: []block{file(".wh.d", "x")}, benign: []block{file(".wh.d", "")},
		want: `layer entry ".wh.d": a whiteout with contents`,
	},
	{
		name: "below-a-whiteout", layer: []block{file(".wh.d/x", "")}, benign: []block{file(".wh.d", ""), file("d/x", "")},
		want: `layer entry ".wh.d/x": it is below ".wh.d", the name of a whiteout`,
	},
	{
		name: "unknown-type", layer: []block{header('M', "f", "", "x")}, benign: []block{header('7', "f", "", "x")},
		want: `layer entry "f": its type 'M' is not known`,
	},
	{
		name: "many-entries", layer: []block{file("a", ""), file("b", ""), file("c", "")}, benign: []block{file("a", ""), file("b", "")},
		limits: layer.Limits{Entries: 2},
		want:   `layer: it has more than 2 entries`,
	},
	{
		name: "many-implied-directories", layer: []block{file("1/2/3/a", "")}, benign: []block{file("1/2/a", "")},
		limits: layer.Limits{Entries: 3},
		want:   `layer entry "1/2/3/a": it has more than 3 entries`,
	},
	{
		name: "large-file", layer: []block{file("a", strings.Repeat("x", 8192))}, benign: []block{file("a", strings.Repeat("x", 4096))},
		limits: layer.Limits{Bytes: 8192},
		want:   `layer: it unpacks to more than 8192 bytes`,
	},
	{
		name: "large-hole", limits: layer.Limits{Bytes: 1 << 20},
		layer:  []block{pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=f", "GNU.sparse.realsize=1099511627776"), header('0', "f", "", string(padded("0\n")))},
		benign: []block{pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=f", "GNU.sparse.realsize=1048576"), header('0', "f", "", string(padded("0\n")))},
		want:   `layer entry "f": with its 1099511627776 bytes the layer's files take more than 1048576`,
	},
	{
		name:   "sparse-map-too-short",
		layer:  []block{pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=f", "GNU.sparse.realsize=8"), header('0', "f", "", string(padded("0\n"))+"left")},
		benign: []block{pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=f", "GNU.sparse.realsize=8"), header('0', "f", "", string(padded("1\n0\n4\n"))+"left")},
		want:   `layer entry "f": the archive is damaged: sparse file contains unreferenced data`,
	},
	{
		name: "escapes-in-a-name", layer: []block{file("a\x1b]0;title\x07\n/..", "")}, benign: []block{file("a\x1b]0;title\x07\n/...", "")},
		want: `layer entry "a\x1b]0;title\a\n/..": its name has a ".." component`,
	},
}

func TestHostileLayers(t *testing.T) {
	needRoot(t)
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			outer := t.TempDir()
			for _, d := range []string{"root", "benign", "beside"} {
				must(t, os.Mkdir(outer+"/"+d, 0o755))
			}
			before := outside(t, outer)
			o := layer.Options{Limits: tt.limits}
			_, err := unpack(t, outer+"/root", archive(tt.layer...), o)
			if err == nil || err.Error() != tt.want || sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("Unpack = %v (%s)\nwant     %s", err, sandbox.KindOf(err), tt.want)
			}
			if _, err := unpack(t, outer+"/benign", archive(tt.benign...), o); err != nil {
				t.Errorf("benign: Unpack = %v", err)
			}
			if d := cmp.Diff(before, outside(t, outer)); d != "" {
				t.Errorf("something was made outside:\n%s", d)
			}
		})
	}
}

// The control of all that: without our care, the same layers do get out.
func TestCarelessUnpackingGetsOut(t *testing.T) {
	for name, blocks := range map[string][]block{
		"dotdot": {file("../out", "x")},
		"link":   {symlink("l", ".."), file("l/out", "x")},
	} {
		outer := t.TempDir()
		must(t, os.Mkdir(outer+"/root", 0o755))
		r := tar.NewReader(bytes.NewReader(archive(blocks...)))
		for h, err := r.Next(); err == nil; h, err = r.Next() {
			if p := filepath.Join(outer+"/root", h.Name); h.Typeflag == tar.TypeSymlink {
				must(t, os.Symlink(h.Linkname, p))
			} else {
				must(t, os.WriteFile(p, nil, 0o600))
			}
		}
		if _, err := os.Lstat(outer + "/out"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must(t, os.RemoveAll(outer+"/root"))
		must(t, os.Mkdir(outer+"/root", 0o755))
		must(t, os.Remove(outer+"/out"))
		if _, err := unpack(t, outer+"/root", archive(blocks...), layer.Options{}); (err == nil) != (name == "link") {
			t.Errorf("%s: Unpack = %v", name, err)
		}
		if _, err := os.Lstat(outer + "/out"); err == nil {
			t.Errorf("%s: it got out", name)
		}
	}
}

// outside lists what is in dir but not in the two layers there.
func outside(t testing.TB, dir string) (lines []string) {
	for _, l := range list(t, dir) {
		name, _, _ := strings.Cut(l, " ")
		if top, _, _ := strings.Cut(name, "/"); top != "root" && top != "benign" {
			lines = append(lines, l)
		}
	}
	return lines
}

// The reasons stand apart: nobody has to guess which rule refused.
func TestReasonsDiffer(t *testing.T) {
	rules := map[string]bool{}
	for _, tt := range hostile {
		_, reason, _ := strings.Cut(tt.want, ": ")
		rules[reason] = true
	}
	if len(rules) < 35 {
		t.Errorf("%d different reasons", len(rules))
	}
}
