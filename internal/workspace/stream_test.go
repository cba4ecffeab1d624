package workspace_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// rawEntry is one tar entry of a stream made by hand.
type rawEntry struct {
	name, link string
	typ        byte
	mode       int64
	rec        map[string]string
	body       string
}

const zeroDigest = "1111111111111111111111111111111111111111111111111111111111111111"

func rec(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m["CARBOY."+kv[i]] = kv[i+1]
	}
	return m
}

func header() rawEntry {
	return rawEntry{name: "carboy-changes", rec: rec("kind", "header", "version", "1", "since", "1000", "content", "1")}
}

func end(n string) rawEntry {
	return rawEntry{name: "carboy-end", rec: rec("kind", "end", "entries", n)}
}

func file(name, body string) rawEntry {
	return rawEntry{name: name, body: body, rec: rec("kind", "file", "size", itoa(len(body)), "digest", zeroDigest)}
}

func dir(name string) rawEntry {
	return rawEntry{name: name + "/", typ: tar.TypeDir, rec: rec("kind", "dir")}
}

func link(name, target string) rawEntry {
	return rawEntry{name: name, link: target, typ: tar.TypeSymlink, rec: rec("kind", "symlink")}
}

func itoa(n int) string { return strconv.Itoa(n) }

func raw(t testing.TB, entries ...rawEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, e := range entries {
		if e.typ == 0 {
			e.typ = tar.TypeReg
		}
		h := &tar.Header{Name: strings.ReplaceAll(e.name, "\x00", nulStandIn), Linkname: e.link, Typeflag: e.typ, Mode: e.mode, Size: int64(len(e.body)), Format: tar.FormatPAX, PAXRecords: e.rec}
		if err := tw.WriteHeader(h); err != nil {
			t.Skipf("archive/tar does not write it: %v", err)
		}
		if _, err := io.WriteString(tw, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(b.Bytes(), []byte(nulStandIn), []byte("\x00\x00"))
}

// nulStandIn stands in a name for what archive/tar writes in none. It is no
// ASCII, so that the name is in a record, which no checksum is over.
const nulStandIn = "\u0080"

func with(e rawEntry, kv ...string) rawEntry {
	e.rec = maps.Clone(e.rec)
	maps.Copy(e.rec, rec(kv...))
	return e
}

func TestReadRefuses(t *testing.T) {
	deep := strings.TrimSuffix(strings.Repeat("d/", workspace.MaxDepth+1), "/")
	var tower []rawEntry
	for i := 1; i < len(deep); i += 2 {
		tower = append(tower, dir(deep[:i]))
	}
	tests := []struct {
		name    string
		entries []rawEntry
		kind    sandbox.Kind // "" for a good stream
	}{
		{"good", []rawEntry{header(), dir("a"), file("a/b", "x"), link("l", "a"), end("3")}, ""},
		{"good-hole", []rawEntry{header(), with(file("a", ""), "size", "99"), end("1")}, ""},
		{"good-extents", []rawEntry{header(), with(file("a", "xy"), "size", "9", "extents", "1+1,8+1"), end("1")}, ""},
		{"no-header", []rawEntry{file("a", "x"), end("1")}, sandbox.Invalid},
		{"two-headers", []rawEntry{header(), header(), end("1")}, sandbox.Invalid},
		{"newer-version", []rawEntry{with(header(), "version", "2")}, sandbox.Unsupported},
		{"unknown-header-record", []rawEntry{with(header(), "x", "2")}, sandbox.Invalid},
		{"bad-time", []rawEntry{with(header(), "since", "-1")}, sandbox.Invalid},
		{"cut", []rawEntry{header(), file("a", "x")}, sandbox.Unavailable},
		{"wrong-count", []rawEntry{header(), file("a", "x"), end("2")}, sandbox.Invalid},
		{"after-the-end", []rawEntry{header(), end("0"), file("a", "x")}, sandbox.Invalid},
		{"dot-dot", []rawEntry{header(), file("../a", "x"), end("1")}, sandbox.Invalid},
		{"dot-dot-inside", []rawEntry{header(), dir("a"), file("a/../../b", "x"), end("2")}, sandbox.Invalid},
		{"dot-dot-directory", []rawEntry{header(), dir(".."), end("1")}, sandbox.Invalid},
		{"dot", []rawEntry{header(), dir("."), end("1")}, sandbox.Invalid},
		{"absolute", []rawEntry{header(), file("/etc/passwd", "x"), end("1")}, sandbox.Invalid},
		{"root", []rawEntry{header(), dir(""), end("1")}, sandbox.Invalid},
		{"double-slash", []rawEntry{header(), dir("a"), file("a//b", "x"), end("2")}, sandbox.Invalid},
		{"directory-with-two-slashes", []rawEntry{header(), dir("a/"), end("1")}, sandbox.Invalid},
		{"nul", []rawEntry{header(), file("a\x00b", "x"), end("1")}, sandbox.Invalid},
		{"long-name", []rawEntry{header(), file(strings.Repeat("n", 256), "x"), end("1")}, sandbox.Invalid},
		{"long-path", []rawEntry{header(), file(strings.Repeat("n/", 2100)+"n", "x"), end("1")}, sandbox.Invalid},
		{"too-deep", append(append([]rawEntry{header()}, tower...), end("513")), sandbox.Invalid},
		{"twice", []rawEntry{header(), file("a", "x"), file("a", "y"), end("2")}, sandbox.Invalid},
		{"out-of-order", []rawEntry{header(), file("b", "x"), file("a", "y"), end("2")}, sandbox.Invalid},
		{"sibling-before-child", []rawEntry{header(), dir("a"), file("a-b", "x"), file("a/b", "y"), end("3")}, sandbox.Invalid},
		{"child-of-a-file", []rawEntry{header(), file("a", "x"), file("a/b", "y"), end("2")}, sandbox.Invalid},
		{"child-of-a-link", []rawEntry{header(), link("a", "/etc"), file("a/b", "y"), end("2")}, sandbox.Invalid},
		{"child-of-nothing", []rawEntry{header(), file("a/b", "y"), end("1")}, sandbox.Invalid},
		{"grandchild", []rawEntry{header(), dir("a"), file("a/b/c", "y"), end("2")}, sandbox.Invalid},
		{"unknown-kind", []rawEntry{header(), with(file("a", "x"), "kind", "hardlink"), end("1")}, sandbox.Invalid},
		{"hard-link", []rawEntry{header(), {name: "a", link: "b", typ: tar.TypeLink, rec: rec("kind", "symlink")}, end("1")}, sandbox.Invalid},
		{"device", []rawEntry{header(), {name: "a", typ: tar.TypeChar, rec: rec("kind", "special", "detail", "device")}, end("1")}, sandbox.Invalid},
		{"no-detail", []rawEntry{header(), {name: "a", rec: rec("kind", "special")}, end("1")}, sandbox.Invalid},
		{"kind-and-type", []rawEntry{header(), {name: "a/", typ: tar.TypeDir, rec: rec("kind", "file", "size", "0", "digest", zeroDigest)}, end("1")}, sandbox.Invalid},
		{"empty-target", []rawEntry{header(), link("a", ""), end("1")}, sandbox.Invalid},
		{"long-target", []rawEntry{header(), link("a", strings.Repeat("t", 4096)), end("1")}, sandbox.Invalid},
		{"mode", []rawEntry{header(), {name: "a", mode: 0o10000, rec: file("a", "").rec}, end("1")}, sandbox.Invalid},
		{"size-and-content", []rawEntry{header(), with(file("a", "xyz"), "size", "2"), end("1")}, sandbox.Invalid},
		{"negative-size", []rawEntry{header(), with(file("a", ""), "size", "-1"), end("1")}, sandbox.Invalid},
		{"huge-size", []rawEntry{header(), with(file("a", ""), "size", "99999999999999999999"), end("1")}, sandbox.Invalid},
		{"no-digest", []rawEntry{header(), {name: "a", rec: rec("kind", "file", "size", "0")}, end("1")}, sandbox.Invalid},
		{"short-digest", []rawEntry{header(), with(file("a", ""), "digest", "11"), end("1")}, sandbox.Invalid},
		{"extents-beyond-size", []rawEntry{header(), with(file("a", "x"), "size", "9", "extents", "9+1"), end("1")}, sandbox.Invalid},
		{"extents-overlap", []rawEntry{header(), with(file("a", "xxxx"), "size", "9", "extents", "1+2,2+2"), end("1")}, sandbox.Invalid},
		{"extents-overflow", []rawEntry{header(), with(file("a", "x"), "size", "9", "extents", "1+9223372036854775807"), end("1")}, sandbox.Invalid},
		{"extents-many", []rawEntry{header(), with(file("a", "x"), "size", "9", "extents", strings.Repeat("1+1,", 5000)), end("1")}, sandbox.Invalid},
		{"record-of-another-kind", []rawEntry{header(), with(dir("a"), "size", "1"), end("1")}, sandbox.Invalid},
		{"foreign-record", []rawEntry{header(), {name: "a", rec: map[string]string{"CARBOY.kind": "deleted", "SCHILY.xattr.user.x": "y"}}, end("1")}, sandbox.Invalid},
		{"content-unannounced", []rawEntry{{name: "carboy-changes", rec: rec("kind", "header", "version", "1", "since", "1")}, file("a", "x"), end("1")}, sandbox.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := raw(t, tt.entries...)
			var err error
			for _, e := range workspace.Read(bytes.NewReader(b)) {
				err = e
			}
			if got := sandbox.KindOf(err); got != tt.kind {
				t.Fatalf("Read = %v, want kind %q", err, tt.kind)
			}
			base := t.TempDir()
			if _, err := apply(t, base, b, workspace.ApplyOptions{}); tt.kind != "" && err == nil {
				t.Error("Apply took what Read refuses")
			}
			if got := read(t, base); tt.kind != "" && len(got) > 0 {
				t.Errorf("Apply left %v", got)
			}
		})
	}
}

func TestReadNotATar(t *testing.T) {
	for name, in := range map[string]string{"empty": "", "text": strings.Repeat("hello, world\n", 100), "zeros": strings.Repeat("\x00", 4096)} {
		t.Run(name, func(t *testing.T) {
			if _, err := workspace.NewReader(strings.NewReader(in)); err == nil {
				t.Error("NewReader took it")
			}
		})
	}
	boom := errors.New("boom")
	if _, err := workspace.NewReader(iotest.ErrReader(boom)); !errors.Is(err, boom) {
		t.Errorf("NewReader = %v, want %v", err, boom)
	}
}

// A stream that is cut anywhere changes nothing.
func TestEveryCutIsNoticed(t *testing.T) {
	base, upper := twoDirs(t, tree{"a": "1"})
	tree{"a": "2", "b/c": "3", "d": "-> a"}.write(t, upper)
	s := stream(t, upper, options(true, future))
	trailer := 1024 // the two blocks of zeros after the end record may be missing
	for n := 0; n < len(s)-trailer; n += 97 {
		if _, err := apply(t, base, s[:n], workspace.ApplyOptions{}); err == nil {
			t.Fatalf("Apply took a stream cut at %d of %d", n, len(s))
		}
	}
	diff(t, "base", read(t, base), tree{"a": "1"})
}

// What changed while it was read is refused, not half applied.
func TestTornFile(t *testing.T) {
	base := t.TempDir()
	tree{"a": "old", "b": "old"}.write(t, base)
	s := raw(t, header(), file("a", "new"), end("1")) // the digest is another's
	res, err := apply(t, base, s, workspace.ApplyOptions{Paths: []string{"."}, Force: true})
	if sandbox.KindOf(err) != sandbox.Conflict || len(res.Conflicts) != 1 || !strings.Contains(res.Conflicts[0].Reason, "while it was read") {
		t.Fatalf("Apply = %+v, %v", res, err)
	}
	diff(t, "base", read(t, base), tree{"a": "old", "b": "old"})
}

func TestApplyWithoutContent(t *testing.T) {
	base, upper := twoDirs(t, tree{"a": "1"})
	tree{"a": "2"}.write(t, upper)
	s := stream(t, upper, options(false, future))
	if _, err := apply(t, base, s, workspace.ApplyOptions{}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("Apply = %v, want a conflict", err)
	}
	res, err := apply(t, base, s, workspace.ApplyOptions{DryRun: true})
	must(t, err)
	diff(t, "dry run", paths(res.Applied), []string{"a"})
	diff(t, "base", read(t, base), tree{"a": "1"})
}

func TestProducerIsDeterministic(t *testing.T) {
	_, upper := twoDirs(t, tree{})
	tree{"z": "1", "a/b": "2", "a-b": "3", "a": "/", "m/n/o": "4"}.write(t, upper)
	one, two := stream(t, upper, options(true, past)), stream(t, upper, options(true, past))
	if !bytes.Equal(one, two) {
		t.Error("two streams of the same directory differ")
	}
	var got []string
	for c, err := range workspace.Read(bytes.NewReader(one)) {
		must(t, err)
		got = append(got, c.Path)
	}
	diff(t, "order", got, []string{"a", "a/b", "a-b", "m", "m/n", "m/n/o", "z"})
}

func TestProducerBounds(t *testing.T) {
	_, upper := twoDirs(t, tree{})
	d := openDir(t, upper)
	name := strings.Repeat("x", 200)
	for range 40 { // 8,000 bytes of path
		must(t, mkdirAt(d, name))
		d = openAt(t, d, name)
	}
	must(t, os.WriteFile(upper+"/after", []byte("x"), 0o644))
	var got []string
	for c, err := range workspace.Read(bytes.NewReader(stream(t, upper, options(true, past)))) {
		must(t, err)
		if c.Kind != workspace.Dir {
			got = append(got, string(c.Kind)+" "+c.Detail)
		}
	}
	diff(t, "what is no directory", got, []string{"file ", "special too deep"})
	must(t, removeDeep(upper+"/"+name))
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{})
	f.Add(raw(f, header(), dir("a"), file("a/b", "x"), link("l", "a"), end("3")))
	f.Add(raw(f, header(), with(file("a", "xy"), "size", "9", "extents", "1+1,8+1"), end("1")))
	f.Add(raw(f, header(), rawEntry{name: "a", rec: rec("kind", "deleted")}, end("1")))
	f.Fuzz(func(t *testing.T, b []byte) {
		last := ""
		for c, err := range workspace.Read(bytes.NewReader(b)) {
			if err != nil {
				return
			}
			if c.Path == "" || c.Path[0] == '/' || strings.Contains("/"+c.Path+"/", "/../") || c.Path <= "" || c.Path == last {
				t.Fatalf("path %q after %q", c.Path, last)
			}
			if c.Size < 0 || c.Mode > 0o7777 {
				t.Fatalf("size %d, mode %o", c.Size, c.Mode)
			}
			last = c.Path
			if c.Body != nil {
				n, _ := io.Copy(io.Discard, c.Body)
				if n > int64(len(b)) {
					t.Fatalf("%d bytes of content from %d", n, len(b))
				}
			}
		}
	})
}
