package layer_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/image/layer"
)

func TestUnpack(t *testing.T) {
	needRoot(t)
	long := strings.Repeat("n", 255)
	tests := []struct {
		name   string
		blocks []block
		below  []block  // the layer below, if any
		want   []string // but the root
		notes  []string
	}{
		{
			name:   "plain",
			blocks: []block{dir("./"), dir("etc/"), file("etc/passwd", "root"), symlink("sh", "/bin/bash"), link("etc/again", "etc/passwd")},
			want:   []string{"etc dir 755 0:0", `etc/again file 644 0:0 "root"`, `etc/passwd file 644 0:0 "root"`, "sh -> /bin/bash"},
		},
		{
			name:   "names-are-cleaned",
			blocks: []block{file("/abs", "1"), file("./dot/./x", "2"), file("a//b", "3"), file("\xff\xfe", "4"), file(long, "5")},
			want: []string{
				"a dir 755 0:0", `a/b file 644 0:0 "3"`, `abs file 644 0:0 "1"`, "dot dir 755 0:0", `dot/x file 644 0:0 "2"`,
				long + ` file 644 0:0 "5"`, "\xff\xfe file 644 0:0 \"4\"",
			},
		},
		{
			name: "owners-and-modes",
			blocks: []block{
				entry(tar.Header{Typeflag: tar.TypeReg, Name: "su", Mode: 0o6755, Uid: 7, Gid: 65535}, "s"),
				entry(tar.Header{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o3777, Uid: 65535, Gid: 8}, ""),
				entry(tar.Header{Typeflag: tar.TypeReg, Name: "sticky", Mode: 0o1600}, ""),
				entry(tar.Header{Typeflag: tar.TypeDir, Name: "closed", Mode: 0}, ""), file("closed/in", ""),
				entry(tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o622, Uid: 3}, ""),
			},
			want: []string{
				"closed dir 0 0:0", `closed/in file 644 0:0 ""`, "fifo fifo 622 3:0", `sticky file 600 0:0 ""`,
				`su file 755 7:65535 "s"`, "tmp dir 1777 65535:8",
			},
			notes: []string{`set-uid and set-gid bits left out: "su", "tmp"`},
		},
		{
			name: "left-out",
			blocks: []block{
				device(tar.TypeChar, "dev/null", 1, 3), device(tar.TypeBlock, "dev/sda", 8, 0), device(tar.TypeBlock, "dev/zero", 0, 0),
				device(tar.TypeChar, "dev/tty", 5, 0), header('s', "dev/log", "", ""), file("dev/x", ""),
				withXattr("cap", "security.capability", "\x01\x00"), withXattr("label", "security.selinux", "l"),
				withXattr("t", "trusted.x", "1"), withXattr("acl", "system.posix_acl_access", "1"),
			},
			want: []string{
				`acl file 644 0:0 "x"`, `cap file 644 0:0 "x"`, "dev dir 755 0:0", `dev/x file 644 0:0 ""`, `label file 644 0:0 "x"`, `t file 644 0:0 "x"`,
			},
			notes: []string{
				`devices left out: "dev/null", "dev/sda", "dev/zero" and 1 more`, `sockets left out: "dev/log"`,
				`file capabilities left out: "cap"`, `extended attributes of security.* left out: "label"`,
				`extended attributes of trusted.* left out: "t"`, `extended attributes of system.* left out: "acl"`,
			},
		},
		{
			name: "later-takes-the-place",
			blocks: []block{
				file("f", "1"), file("f", "2"), symlink("l", "/etc"), file("l", "file"), dir("empty"), file("empty", "no more"),
				symlink("to-dir", "/"), dir("to-dir"), file("to-dir/x", "1"), file("h", "1"), link("l2", "h"), link("f", "h"),
			},
			want: []string{
				`empty file 644 0:0 "no more"`, `f file 644 0:0 "1"`, `h file 644 0:0 "1"`, `l file 644 0:0 "file"`, `l2 file 644 0:0 "1"`,
				"to-dir dir 755 0:0 opaque", `to-dir/x file 644 0:0 "1"`,
			},
		},
		{
			name: "directory-again-counts",
			blocks: []block{
				file("d/x", ""), entry(tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o700, Uid: 1}, ""),
				entry(tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o711, Uid: 2}, ""),
			},
			want: []string{"d dir 711 2:0", `d/x file 644 0:0 ""`},
		},
		{
			name: "whiteouts",
			blocks: []block{
				file("d/.wh.gone", ""), file("o/.wh..wh..opq", ""), file("o/x", ""), file(".wh..hidden", ""),
				file(".wh.filled", ""), file("filled/x", ""), file("both/x", ""), file(".wh.both", ""),
				file(".wh.redone", ""), file("redone", "r"), file("first", "f"), file(".wh.first", ""), file(".wh.dir", ""), dir("dir"),
			},
			below: []block{dir("d"), file("d/gone", ""), file(".hidden", ""), file("filled", ""), file("redone", ""), file("dir", "")},
			want: []string{
				".hidden whiteout", "both dir 755 0:0 opaque", `both/x file 644 0:0 ""`, "d dir 755 0:0", "d/gone whiteout",
				"dir dir 755 0:0 opaque", "filled dir 755 0:0 opaque", `filled/x file 644 0:0 ""`, `first file 644 0:0 "f"`,
				"o dir 755 0:0 opaque", `o/x file 644 0:0 ""`, `redone file 644 0:0 "r"`,
			},
		},
		{
			name:   "aufs",
			blocks: []block{file(".wh..wh.aufs", ""), dir(".wh..wh.plnk"), file(".wh..wh.plnk/1.2", "x"), file("a", ""), link(".wh.b", ".wh..wh.aufs")},
			below:  []block{file("b", "")},
			want:   []string{`a file 644 0:0 ""`, "b whiteout"},
			notes:  []string{`bookkeeping of aufs left out: ".wh..wh.aufs", ".wh..wh.plnk", ".wh..wh.plnk/1.2"`},
		},
		{
			name:   "global-header-and-vendors-records",
			blocks: []block{header('g', "pax_global_header", "", "14 comment=xy\n"), header('g', "other", "", "18 path=elsewhere\n"), pax("VENDOR.x=1", "SCHILY.acl.access=a"), file("f", "")},
			want:   []string{`f file 644 0:0 ""`},
			notes:  []string{`global headers left out: "elsewhere"`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, o := t.TempDir(), layer.Options{}
			if tt.below != nil {
				o.Below = []string{t.TempDir()}
				_, err := unpack(t, o.Below[0], archive(tt.below...), layer.Options{})
				must(t, err)
			}
			res, err := unpack(t, root, archive(tt.blocks...), o)
			must(t, err)
			if d := cmp.Diff(tt.want, list(t, root)[1:]); d != "" {
				t.Errorf("tree (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.notes, res.Notes); d != "" {
				t.Errorf("notes (-want +got):\n%s", d)
			}
		})
	}
}

func TestResult(t *testing.T) {
	data := archive(dir("d"), file("d/f", "12345"), file("g", "678"), file("d/.wh.x", ""), device(tar.TypeChar, "null", 1, 3))
	data = append(data, make([]byte, 8192)...) // tar pads to 10 KiB
	res, err := unpack(t, t.TempDir(), data, layer.Options{UserXattr: true})
	must(t, err)
	want := sha256.Sum256(data)
	if res.Bytes != 8 || res.Entries != 4 || res.DiffID != "sha256:"+hex.EncodeToString(want[:]) || res.RootOpaque {
		t.Errorf("Result = %+v, want 8 bytes, 4 entries, digest %x", res, want)
	}
}

func TestTimesAreKept(t *testing.T) {
	root := t.TempDir()
	_, err := unpack(t, root, archive(dir("./"), dir("d"), dir("d/e"), file("d/e/f", "x"), symlink("d/l", "nowhere"),
		link("d/e/g", "d/e/f"), file("d/e/h", "")), layer.Options{})
	must(t, err)
	for _, name := range []string{"", "d", "d/e", "d/e/f", "d/l"} {
		fi, err := os.Lstat(root + "/" + name)
		must(t, err)
		if !fi.ModTime().Equal(then) {
			t.Errorf("%q was modified at %v, want %v", name, fi.ModTime().UTC(), then.UTC())
		}
	}
}

// Whatever a time is, a file system holds one near it.
func TestOddTimes(t *testing.T) {
	for _, mod := range []time.Time{time.Unix(-1, 0), time.Unix(1<<40, 0), time.Unix(-1<<40, 999_999_999), time.Unix(0, 1)} {
		_, err := unpack(t, t.TempDir(), archive(entry(tar.Header{Typeflag: tar.TypeReg, Name: "f", ModTime: mod}, "")), layer.Options{})
		if err != nil {
			t.Errorf("%v: %v", mod, err)
		}
	}
}

func TestXattrsAreKept(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	h := tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o755}
	h.PAXRecords = map[string]string{"SCHILY.xattr.user.on.dir": "2"}
	_, err := unpack(t, root, archive(withXattr("f", "user.key", "a=b\x00c"), entry(h, "")), layer.Options{})
	must(t, err)
	for _, tt := range []struct{ name, attr, want string }{{"f", "user.key", "a=b\x00c"}, {"d", "user.on.dir", "2"}} {
		var b [64]byte
		n, err := unix.Getxattr(root+"/"+tt.name, tt.attr, b[:])
		if err != nil || string(b[:n]) != tt.want {
			t.Errorf("%s of %s = %q, %v, want %q", tt.attr, tt.name, b[:max(n, 0)], err, tt.want)
		}
	}
}

// Sparse files keep their holes: a large one takes next to nothing.
func TestSparse(t *testing.T) {
	const size = 64 << 20
	root := t.TempDir()
	res, err := unpack(t, root, archive(
		pax("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=big", "GNU.sparse.realsize=67108864"),
		header('0', "GNUSparseFile.0/big", "", string(padded("1\n4096\n3\n"))+"abc"), file("after", "x")), layer.Options{})
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Stat(root+"/big", &st))
	if st.Size != size || st.Blocks*512 > 1<<20 || res.Bytes != size+1 {
		t.Errorf("size %d in %d blocks, %d bytes", st.Size, st.Blocks, res.Bytes)
	}
	b, err := os.ReadFile(root + "/big")
	must(t, err)
	if !bytes.Equal(b[4090:4110], []byte("\x00\x00\x00\x00\x00\x00abc\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")) {
		t.Errorf("around the data: %q", b[4090:4110])
	}
}

func TestRootOpaque(t *testing.T) {
	root := t.TempDir()
	res, err := unpack(t, root, archive(file(".wh..wh..opq", ""), file("f", "")), layer.Options{UserXattr: true})
	must(t, err)
	var b [2]byte
	n, err := unix.Getxattr(root, "user.overlay.opaque", b[:])
	if !res.RootOpaque || err != nil || string(b[:n]) != "y" {
		t.Errorf("RootOpaque = %v, mark %q, %v", res.RootOpaque, b[:max(n, 0)], err)
	}
}

// Names as long as they may be are no trouble, whatever they name.
func TestLongestNames(t *testing.T) {
	needRoot(t)
	deep := strings.Repeat(strings.Repeat("d", 255)+"/", 15) // 3840 bytes
	name := func(c string) string { return deep + strings.Repeat(c, 4096-len(deep)-1) }
	d := tar.Header{Typeflag: tar.TypeDir, Name: name("d") + "/", Mode: 0o755}
	d.PAXRecords = map[string]string{"SCHILY.xattr.user.on.dir": "2"}
	root := t.TempDir()
	res, err := unpack(t, root, archive(entry(d, ""), file(name("f"), "x"), symlink(name("s"), strings.Repeat("t", 4095)),
		link(name("l"), name("f")), entry(tar.Header{Typeflag: tar.TypeFifo, Name: name("p")}, ""), file(name("f"), "y")), layer.Options{})
	must(t, err)
	if res.Entries != 6 || len(res.Notes) != 0 {
		t.Errorf("Result = %+v", res)
	}
}

func TestTargetMustBeAnEmptyDirectory(t *testing.T) {
	full, empty := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(full+"/x", nil, 0o600))
	must(t, os.Symlink(empty, full+"/link"))
	for _, tt := range []struct {
		dir string
		ok  bool
	}{{full, false}, {full + "/x", false}, {full + "/link", false}, {full + "/none", false}, {empty, true}} {
		if _, err := unpack(t, tt.dir, archive(file("a", "")), layer.Options{}); (err == nil) != tt.ok {
			t.Errorf("Unpack(%s) = %v", tt.dir, err)
		}
	}
}
