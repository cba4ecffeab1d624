package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest/archive"
)

// entry is one of a tar that a test makes.
type entry struct {
	tar.Header
	body string
}

func reg(name, body string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(body))}, body}
}

func dir(name string) entry {
	return entry{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}

func link(typ byte, name, target string) entry {
	return entry{tar.Header{Typeflag: typ, Name: name, Linkname: target, Mode: 0o777}, ""}
}

func makeTar(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := e.Header
		must(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, e.body)
		must(t, err)
	}
	must(t, w.Close())
	return buf.Bytes()
}

func TestExtractRefuses(t *testing.T) {
	sparse := reg("s", "x")
	sparse.PAXRecords = map[string]string{"comment": "x"}
	tests := []struct {
		name    string
		entries []entry
	}{
		{"absolute", []entry{reg("/etc/passwd", "x")}},
		{"up", []entry{reg("../x", "x")}},
		{"up-inside", []entry{reg("a/../../x", "x")}},
		{"through-a-link", []entry{link(tar.TypeSymlink, "l", "../out"), reg("l/x", "x")}},
		{"through-an-absolute-link", []entry{link(tar.TypeSymlink, "l", "/tmp"), reg("l/x", "x")}},
		{"directory-over-a-link-out", []entry{link(tar.TypeSymlink, "l", "../out"), dir("l"), reg("l/x", "x")}},
		{"hard-link-up", []entry{link(tar.TypeLink, "h", "../out/secret")}},
		{"hard-link-absolute", []entry{link(tar.TypeLink, "h", "/etc/passwd")}},
		{"hard-link-through-a-link", []entry{link(tar.TypeSymlink, "l", "../out"), link(tar.TypeLink, "h", "l/secret")}},
		{"hard-link-to-the-top", []entry{link(tar.TypeLink, "h", ".")}},
		{"file-as-the-top", []entry{reg(".", "x")}},
		{"file-over-a-directory", []entry{dir("d"), reg("d", "x")}},
		{"directory-over-a-file", []entry{reg("d", "x"), dir("d")}},
		{"empty-link", []entry{link(tar.TypeSymlink, "l", "")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := t.TempDir()
			write(t, filepath.Join(base, "out/secret"), "s", 0o600)
			before := snapshot(t, filepath.Join(base, "out"))
			dst := filepath.Join(base, "dst")
			must(t, os.Mkdir(dst, 0o755))
			data := makeTar(t, tt.entries...)
			if _, err := archive.Extract(t.Context(), bytes.NewReader(data), dst, archive.ExtractOptions{}); err == nil {
				t.Errorf("Extract succeeded; made %v", snapshot(t, dst))
			}
			if diff := cmp.Diff(before, snapshot(t, filepath.Join(base, "out"))); diff != "" {
				t.Errorf("the outside changed (-before +after):\n%s", diff)
			}
			for name := range snapshot(t, dst) {
				if strings.Contains(name, ".carboy-") {
					t.Errorf("%s was left behind", name)
				}
			}
		})
	}
}

// TestOutsideIsReachable is the control of TestExtractRefuses: the same link
// lets a plain open out of the directory.
func TestOutsideIsReachable(t *testing.T) {
	base := t.TempDir()
	must(t, os.Mkdir(filepath.Join(base, "out"), 0o755))
	dst := filepath.Join(base, "dst")
	must(t, os.Mkdir(dst, 0o755))
	data := makeTar(t, link(tar.TypeSymlink, "l", "../out"))
	_, err := archive.Extract(t.Context(), bytes.NewReader(data), dst, archive.ExtractOptions{})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dst, "l/x"), nil, 0o644))
	if _, err := os.Stat(filepath.Join(base, "out/x")); err != nil {
		t.Errorf("the link leads nowhere: %v", err)
	}
}

func TestExtract(t *testing.T) {
	suid := reg("s", "x")
	suid.Mode = 0o6755
	fifo := entry{tar.Header{Typeflag: tar.TypeFifo, Name: "f"}, ""}
	device := entry{tar.Header{Typeflag: tar.TypeChar, Name: "c", Devmajor: 1, Devminor: 3}, ""}
	tests := []struct {
		name    string
		opts    archive.ExtractOptions
		entries []entry
		before  func(dst string) error
		want    map[string]string // path to content, "dir", or "-> target"
		skipped []archive.Skip
	}{
		{name: "implied-directories", entries: []entry{reg("a/b/c", "1")}, want: map[string]string{"a": "dir", "a/b": "dir", "a/b/c": "1"}},
		{name: "dots", entries: []entry{dir("./"), reg("./a//./b", "1")}, want: map[string]string{"a": "dir", "a/b": "1"}},
		{name: "overwrite", entries: []entry{reg("a", "1"), reg("a", "22")}, want: map[string]string{"a": "22"}},
		{
			name: "replaces-a-link-itself", entries: []entry{reg("l", "new")},
			before: func(d string) error {
				return errors.Join(os.WriteFile(d+"/t", []byte("old"), 0o644), os.Symlink("t", d+"/l"))
			},
			want: map[string]string{"l": "new", "t": "old"},
		},
		{
			name: "link-inside-is-a-way", entries: []entry{link(tar.TypeSymlink, "l", "d"), dir("d"), reg("l/x", "1")},
			want: map[string]string{"l": "-> d", "d": "dir", "d/x": "1"},
		},
		{
			name: "relinked-way", entries: []entry{
				dir("a"), dir("b"), link(tar.TypeSymlink, "l", "a"), reg("l/1", "1"),
				link(tar.TypeSymlink, "l", "b"), reg("l/2", "2"),
			},
			want: map[string]string{"a": "dir", "a/1": "1", "b": "dir", "b/2": "2", "l": "-> b"},
		},
		{name: "hard-link", entries: []entry{reg("a", "1"), reg("b", "2"), link(tar.TypeLink, "b", "a")}, want: map[string]string{"a": "1", "b": "1"}},
		{name: "hard-link-to-itself", entries: []entry{reg("a", "1"), link(tar.TypeLink, "a", "./a")}, want: map[string]string{"a": "1"}},
		{
			name: "special", entries: []entry{fifo, device, suid},
			want:    map[string]string{"s": "x"},
			skipped: []archive.Skip{{Name: "f", Reason: "fifo or device"}, {Name: "c", Reason: "fifo or device"}, {Name: "s", Reason: "set-id bits dropped"}},
		},
		{name: "as-file", opts: archive.ExtractOptions{As: "n"}, entries: []entry{reg("a", "1")}, want: map[string]string{"n": "1"}},
		{
			name: "as-directory", opts: archive.ExtractOptions{As: "n"},
			entries: []entry{dir("a"), reg("a/b", "1"), link(tar.TypeLink, "a/c", "a/b")},
			want:    map[string]string{"n": "dir", "n/b": "1", "n/c": "1"},
		},
		{name: "empty", want: map[string]string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dst := t.TempDir()
			if tt.before != nil {
				must(t, tt.before(dst))
			}
			data := makeTar(t, tt.entries...)
			res, err := archive.Extract(t.Context(), bytes.NewReader(data), dst, tt.opts)
			must(t, err)
			got := make(map[string]string)
			for name, it := range snapshot(t, dst) {
				switch {
				case it.Mode.IsDir():
					got[name] = "dir"
				case it.Mode&fs.ModeSymlink != 0:
					got[name] = "-> " + it.Text
				default:
					got[name] = it.Text
				}
				if it.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
					t.Errorf("%s has mode %v", name, it.Mode)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tree mismatch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.skipped, res.Skipped); diff != "" {
				t.Errorf("skipped mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExtractAsWantsOneTop(t *testing.T) {
	for _, as := range []string{"n", "..", ".", "a/b"} {
		data := makeTar(t, reg("a", "1"), reg("b", "2"))
		_, err := archive.Extract(t.Context(), bytes.NewReader(data), t.TempDir(), archive.ExtractOptions{As: as})
		if !errors.Is(err, archive.ErrUnsafe) {
			t.Errorf("As %q: %v, want ErrUnsafe", as, err)
		}
	}
}

func TestExtractLimits(t *testing.T) {
	data := makeTar(t, reg("a", "12345"), reg("b", "12345"))
	for _, o := range []archive.ExtractOptions{{MaxEntries: 1}, {MaxBytes: 9}} {
		dst := t.TempDir()
		res, err := archive.Extract(t.Context(), bytes.NewReader(data), dst, o)
		if !errors.Is(err, archive.ErrUnsafe) || res.Entries != 1 {
			t.Errorf("%+v: %d entries, %v, want 1 and ErrUnsafe", o, res.Entries, err)
		}
	}
}

// TestExtractCut cuts an archive at every block: no part of it passes for the
// whole, and no half file stays.
func TestExtractCut(t *testing.T) {
	zeros := strings.Repeat("\x00", 1024)
	data := makeTar(t, reg("a", "hello"), reg("zeros", zeros), dir("d"), reg("d/b", strings.Repeat("x", 700)))
	for n := 0; n < len(data)-1024; n += 256 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			dst := t.TempDir()
			_, err := archive.Extract(t.Context(), bytes.NewReader(data[:n]), dst, archive.ExtractOptions{})
			if !errors.Is(err, archive.ErrFormat) {
				t.Errorf("Extract = %v, want ErrFormat", err)
			}
			for name, it := range snapshot(t, dst) {
				want := map[string]string{"a": "hello", "zeros": zeros, "d/b": strings.Repeat("x", 700)}[name]
				if !it.Mode.IsDir() && it.Text != want {
					t.Errorf("%s has %d bytes, want %d", name, len(it.Text), len(want))
				}
			}
		})
	}
	_, err := archive.Extract(t.Context(), bytes.NewReader(data), t.TempDir(), archive.ExtractOptions{})
	must(t, err) // the control: whole, it passes
}

func TestExtractKeepsOldFileOnFailure(t *testing.T) {
	dst := t.TempDir()
	write(t, filepath.Join(dst, "a"), "old", 0o644)
	data := makeTar(t, reg("a", strings.Repeat("n", 4096)))
	_, err := archive.Extract(t.Context(), bytes.NewReader(data[:1024]), dst, archive.ExtractOptions{})
	if !errors.Is(err, archive.ErrFormat) {
		t.Fatalf("Extract = %v, want ErrFormat", err)
	}
	got := snapshot(t, dst)
	if len(got) != 1 || got["a"].Text != "old" {
		t.Errorf("tree is %v, want the old file alone", got)
	}
}

// TestExtractSparse gives headers that declare far more than the stream has.
func TestExtractSparse(t *testing.T) {
	for _, records := range []map[string]string{
		{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1099511627776", "GNU.sparse.name": "s"},
		{"GNU.sparse.size": "1099511627776", "GNU.sparse.numblocks": "0", "GNU.sparse.map": ""},
	} {
		dst := t.TempDir()
		_, err := archive.Extract(t.Context(), bytes.NewReader(sparseTar(t, records)), dst, archive.ExtractOptions{})
		if err == nil {
			t.Errorf("%v: Extract succeeded", records)
		}
		for name, it := range snapshot(t, dst) {
			t.Errorf("%s with %d bytes was made", name, len(it.Text))
		}
	}
}

// sparseTar writes by hand what package tar refuses to write.
func sparseTar(t *testing.T, records map[string]string) []byte {
	t.Helper()
	var pax strings.Builder
	for k, v := range records {
		rest := " " + k + "=" + v + "\n"
		n := len(rest) + 2
		if len(fmt.Sprint(n)) == 1 {
			n--
		}
		fmt.Fprintf(&pax, "%d%s", n, rest)
	}
	data := makeTar(t, entry{tar.Header{Typeflag: tar.TypeReg, Name: "pax", Size: int64(pax.Len())}, pax.String()}, reg("s", "0\n"))
	data[156] = 'x'
	sum := 0
	copy(data[148:156], "        ")
	for _, c := range data[:512] {
		sum += int(c)
	}
	copy(data[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return data
}

func TestExtractDestination(t *testing.T) {
	base := t.TempDir()
	write(t, filepath.Join(base, "file"), "", 0o644)
	for _, dst := range []string{"missing", "file"} {
		_, err := archive.Extract(t.Context(), bytes.NewReader(makeTar(t)), filepath.Join(base, dst), archive.ExtractOptions{})
		if err == nil {
			t.Errorf("Extract into %s succeeded", dst)
		}
	}
}

func TestClean(t *testing.T) {
	tests := []struct {
		name, in, want string
	}{
		{"plain", "a/b", "a/b"},
		{"dot", "./a", "a"},
		{"slash-at-the-end", "a/", "a"},
		{"top", "./", "."},
		{"three-dots", ".../a..", ".../a.."},
		{"empty", "", ""},
		{"absolute", "/a", ""},
		{"up", "a/..", ""},
		{"nul", "a\x00b", ""},
		{"long", strings.Repeat("a/", 2048), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := archive.Clean(tt.in)
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("Clean(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
			}
		})
	}
}

func BenchmarkExtract(b *testing.B) {
	var entries []entry
	for i := range 1000 {
		entries = append(entries, reg(fmt.Sprintf("%d/%d", i/50, i), strings.Repeat("x", 2000)))
	}
	data := makeTar(b, entries...)
	n := 0
	for b.Loop() {
		n++
		dst := filepath.Join(b.TempDir(), fmt.Sprint(n))
		must(b, os.Mkdir(dst, 0o755))
		if _, err := archive.Extract(b.Context(), bytes.NewReader(data), dst, archive.ExtractOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// What is made is its owner's; what was there stays as it is.
func TestExtractOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dst := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dst, "old"), 0o711))
	data := makeTar(t, dir("old"), reg("old/f", "1"), reg("implied/f", "1"), dir("new"), link(tar.TypeSymlink, "l", "f"))
	_, err := archive.Extract(t.Context(), bytes.NewReader(data), dst, archive.ExtractOptions{Own: &archive.Owner{UID: 1234, GID: 5678}})
	must(t, err)
	for name, want := range map[string]uint32{"old": 0, "old/f": 1234, "implied": 1234, "implied/f": 1234, "new": 1234, "l": 1234} {
		st, err := os.Lstat(filepath.Join(dst, name))
		must(t, err)
		if got := st.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s: uid %d, want %d", name, got, want)
		}
		if name == "old" && st.Mode().Perm() != 0o711 {
			t.Errorf("%s: mode %v", name, st.Mode())
		}
	}
}
