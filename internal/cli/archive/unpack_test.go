package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/cli/archive"
)

// entry makes a header; a body is what stands after a file's name.
func entry(kind byte, name, link string) tar.Header {
	return tar.Header{Typeflag: kind, Name: name, Linkname: link, Mode: 0o6777, ModTime: time.Unix(1, 0)}
}

func archiveOf(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// list names all that is below dir.
func list(t testing.TB, dir string) []string {
	t.Helper()
	got := []string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, p); rel != "." {
			got = append(got, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

type hostile struct {
	name    string
	entries []tar.Header
	want    []string // what is in the place that it is unpacked to
	skipped []string
	fails   bool
}

func hostiles() []hostile {
	const (
		reg, dir, sym, hard, fifo, dev = tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeChar
	)
	return []hostile{
		{
			name: "tree", entries: []tar.Header{entry(dir, "d/", ""), entry(dir, "d/e/", ""), entry(reg, "d/e/f", ""), entry(reg, "d/g", "")},
			want: []string{"copy", "copy/e", "copy/e/f", "copy/g"},
		},
		{name: "file", entries: []tar.Header{entry(reg, "f", "")}, want: []string{"copy"}},
		{name: "implied-directory", entries: []tar.Header{entry(dir, "d/", ""), entry(reg, "d/e/f", "")}, fails: true, want: []string{"copy"}},
		{name: "dot-dot", entries: []tar.Header{entry(dir, "d/", ""), entry(reg, "d/../../victim/x", "")}, fails: true, want: []string{"copy"}},
		{name: "absolute", entries: []tar.Header{entry(dir, "d/", ""), entry(reg, "/etc/x", "")}, fails: true, want: []string{"copy"}},
		{name: "beside", entries: []tar.Header{entry(dir, "d/", ""), entry(reg, "victim/x", "")}, fails: true, want: []string{"copy"}},
		{name: "dots-first", entries: []tar.Header{entry(dir, "../", ""), entry(reg, "../x", "")}, want: []string{"copy", "copy/x"}},
		{name: "absolute-first", entries: []tar.Header{entry(dir, "/", ""), entry(reg, "/x", "")}, fails: true, want: []string{"copy"}},
		{
			name: "link-out", entries: []tar.Header{entry(dir, "d/", ""), entry(sym, "d/l", "../victim"), entry(reg, "d/l/x", "")},
			skipped: []string{"d/l"}, fails: true, want: []string{"copy"},
		},
		{
			name: "link-absolute", entries: []tar.Header{entry(dir, "d/", ""), entry(sym, "d/l", "/etc")},
			skipped: []string{"d/l"}, want: []string{"copy"},
		},
		{
			name: "link-in", entries: []tar.Header{entry(dir, "d/", ""), entry(dir, "d/e/", ""), entry(sym, "d/e/l", "../x"), entry(reg, "d/x", "")},
			want: []string{"copy", "copy/e", "copy/e/l", "copy/x"},
		},
		{name: "link-chain", entries: []tar.Header{
			entry(dir, "d/", ""), entry(dir, "d/e/", ""), entry(sym, "d/a", "e"), entry(sym, "d/a/b", "../../victim"),
		}, fails: true, want: []string{"copy", "copy/a", "copy/e"}},
		{name: "link-chain-up", entries: []tar.Header{
			// e/f/up leads to e, as text; through l, which is e/f, it is e/f/up.
			entry(dir, "d/", ""), entry(dir, "d/e/", ""), entry(dir, "d/e/f/", ""), entry(sym, "d/l", "e/f"),
			entry(sym, "d/e/f/top", "../.."), entry(reg, "d/l/top/x", ""),
		}, fails: true, want: []string{"copy", "copy/e", "copy/e/f", "copy/e/f/top", "copy/l"}},
		{name: "link-under-link", entries: []tar.Header{
			// As text s/m/n is deep enough for ../victim to stay in; where it would be
			// made, it is not.
			entry(dir, "d/", ""), entry(dir, "d/s/", ""), entry(sym, "d/s/m", ".."), entry(sym, "d/s/m/n", "../victim"),
			entry(reg, "d/n/x", ""),
		}, fails: true, want: []string{"copy", "copy/s", "copy/s/m"}},
		{name: "link-through-link", entries: []tar.Header{
			// e/f/s is the top, so that e/f/s/.. is above it, whatever the text says.
			entry(dir, "d/", ""), entry(dir, "d/e/", ""), entry(dir, "d/e/f/", ""), entry(sym, "d/e/f/s", "../.."),
			entry(sym, "d/out", "e/f/s/../victim"), entry(sym, "d/in", "./e//f/."),
		}, skipped: []string{"d/out"}, want: []string{"copy", "copy/e", "copy/e/f", "copy/e/f/s", "copy/in"}},
		{
			name: "hard-link", entries: []tar.Header{entry(dir, "d/", ""), entry(reg, "d/a", ""), entry(hard, "d/b", "d/a")},
			want: []string{"copy", "copy/a", "copy/b"},
		},
		{name: "hard-link-out", entries: []tar.Header{entry(dir, "d/", ""), entry(hard, "d/b", "victim/secret")}, fails: true, want: []string{"copy"}},
		{
			name: "hard-link-to-link", entries: []tar.Header{entry(dir, "d/", ""), entry(sym, "d/a", "x"), entry(hard, "d/b", "d/a")},
			fails: true, want: []string{"copy", "copy/a"},
		},
		{
			name: "special", entries: []tar.Header{entry(dir, "d/", ""), entry(fifo, "d/f", ""), entry(dev, "d/c", "")},
			skipped: []string{"d/f", "d/c"}, want: []string{"copy"},
		},
		{name: "special-first", entries: []tar.Header{entry(fifo, "f", "")}, skipped: []string{"f"}, want: []string{}},
		{
			name: "file-then-directory", entries: []tar.Header{entry(dir, "d/", ""), entry(reg, "d/a", ""), entry(dir, "d/a/", "")},
			fails: true, want: []string{"copy", "copy/a"},
		},
		{
			name: "directory-then-file", entries: []tar.Header{entry(dir, "d/", ""), entry(dir, "d/a/", ""), entry(reg, "d/a", "")},
			fails: true, want: []string{"copy", "copy/a"},
		},
		{
			name: "file-over-link", entries: []tar.Header{entry(dir, "d/", ""), entry(sym, "d/a", "b"), entry(reg, "d/a", "")},
			want: []string{"copy", "copy/a"},
		},
		{name: "second-root", entries: []tar.Header{entry(reg, "f", ""), entry(reg, "g", "")}, fails: true, want: []string{"copy"}},
		{name: "empty", fails: true, want: []string{}},
		{name: "long-name", entries: []tar.Header{entry(reg, strings.Repeat("x", 5000), "")}, fails: true, want: []string{}},
		{name: "deep-name", entries: []tar.Header{entry(reg, strings.Repeat("x/", 600)+"x", "")}, fails: true, want: []string{}},
	}
}

func TestUnpackHostile(t *testing.T) {
	for _, tt := range hostiles() {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			to, victim := filepath.Join(top, "to"), filepath.Join(top, "victim")
			for _, d := range []string{to, victim} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(victim, "secret"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			skipped, err := archive.UnpackIn(t.Context(), bytes.NewReader(archiveOf(t, tt.entries...)), to, "copy")
			if (err != nil) != tt.fails {
				t.Errorf("error %v, want one: %t", err, tt.fails)
			}
			if diff := cmp.Diff(tt.skipped, skipped); diff != "" {
				t.Errorf("left out:\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, list(t, to)); diff != "" {
				t.Errorf("made:\n%s", diff)
			}
			if diff := cmp.Diff([]string{"to", "victim", "victim/secret"}, outside(t, top)); diff != "" {
				t.Errorf("outside:\n%s", diff)
			}
		})
	}
}

// outside is list without what is below "to".
func outside(t *testing.T, top string) []string {
	var out []string
	for _, p := range list(t, top) {
		if !strings.HasPrefix(p, "to/") {
			out = append(out, p)
		}
	}
	return out
}

func TestUnpackModes(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	dir := t.TempDir()
	h := entry(tar.TypeDir, "d/sub/", "")
	h.Mode = 0o7500
	b := archiveOf(t, entry(tar.TypeDir, "d/", ""), h, entry(tar.TypeReg, "d/sub/f", ""))
	if _, err := archive.UnpackIn(t.Context(), bytes.NewReader(b), dir, "copy"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"copy/sub": fs.ModeDir | 0o500, "copy/sub/f": 0o750} {
		fi, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != want {
			t.Errorf("mode of %s is %v, want %v", name, fi.Mode(), want)
		}
		if fi.Mode().IsRegular() && time.Since(fi.ModTime()) > time.Hour {
			t.Errorf("%s has the archive's time, %v", name, fi.ModTime())
		}
	}
}

// TestUnpackKeepsWhole holds that a copy that breaks off leaves the file of
// before, and nothing half made.
func TestUnpackKeepsWhole(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := archiveOf(t, entry(tar.TypeReg, "name-of-some-length", ""))
	if _, err := archive.UnpackIn(t.Context(), bytes.NewReader(b[:520]), dir, "f"); err == nil {
		t.Error("a cut archive was taken for a whole one")
	}
	got, err := os.ReadFile(filepath.Join(dir, "f"))
	if err != nil || string(got) != "before" {
		t.Errorf("the file has %q, %v", got, err)
	}
	if diff := cmp.Diff([]string{"f"}, list(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestUnpackSparse holds that zeros take no room.
func TestUnpackSparse(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	const size = 8<<20 + 5
	body := make([]byte, size)
	body[3<<20] = 1
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o600, Size: size})
	_, _ = w.Write(body)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.UnpackIn(t.Context(), &b, dir, "f"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "f"))
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%d bytes came, %v", len(got), err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(dir, "f"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > 1<<20 {
		t.Errorf("it takes %d bytes of disk", st.Blocks*512)
	}
}

// TestUnpackClaims holds that an archive of a few bytes that claims to be a
// file of a terabyte is refused.
func TestUnpackClaims(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	body := append([]byte("1\n1099511627775\n1\n"), make([]byte, 512-18)...)
	body = append(body, 'x')
	if err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: "g", Mode: 0o600, Size: int64(len(body)), Format: tar.FormatPAX,
		PAXRecords: map[string]string{ // the writer has no sparse files: their names are put in below
			"GNUxsparse.major": "1", "GNUxsparse.minor": "0", "GNUxsparse.name": "g", "GNUxsparse.realsize": "1099511627776",
		},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sparse := bytes.ReplaceAll(b.Bytes(), []byte("GNUxsparse"), []byte("GNU.sparse"))
	if h, err := tar.NewReader(bytes.NewReader(sparse)).Next(); err != nil || h.Size != 1<<40 {
		t.Fatalf("the archive is not what it should be: %v, %v", h, err)
	}
	dir := t.TempDir()
	if _, err := archive.UnpackIn(t.Context(), bytes.NewReader(sparse), dir, "g"); err == nil {
		t.Error("it was taken")
	}
	if got := list(t, dir); len(got) > 0 {
		t.Errorf("it made %q", got)
	}
}

func TestPackUnpack(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(from, "d", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"d/f": "text", "d/new\nline": "x", "d/-": ""} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Symlink("f", filepath.Join(from, "d", "l")),
		os.Symlink("/etc/passwd", filepath.Join(from, "d", "out")), // in is the user's own choice
		syscall.Mkfifo(filepath.Join(from, "d", "fifo"), 0o600),
		os.WriteFile(filepath.Join(from, "d", "bad\xff"), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := archive.PackPath(t.Context(), &b, filepath.Join(from, "d"), "d"); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.UnpackIn(t.Context(), &b, to, "copy"); err != nil {
		t.Fatal(err)
	}
	want := []string{"copy", "copy/-", "copy/empty", "copy/f", "copy/l", "copy/new\nline"}
	if diff := cmp.Diff(want, list(t, to)); diff != "" {
		t.Error(diff)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archiveOf(f, entry(tar.TypeDir, "d/", ""), entry(tar.TypeReg, "d/a", ""), entry(tar.TypeSymlink, "d/l", "../x"), entry(tar.TypeReg, "d/l/y", "")))
	f.Add(archiveOf(f, entry(tar.TypeDir, "./", ""), entry(tar.TypeLink, "./a", "../victim/secret")))
	f.Fuzz(func(t *testing.T, b []byte) {
		top := t.TempDir()
		for _, d := range []string{"to", "victim"} {
			if err := os.Mkdir(filepath.Join(top, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = archive.UnpackIn(t.Context(), bytes.NewReader(b), filepath.Join(top, "to"), "copy")
		err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(top, p)
			if rel != "." && rel != "to" && rel != "victim" && !strings.HasPrefix(rel, "to/copy") {
				t.Errorf("%q was made", rel)
			}
			if fi, ierr := d.Info(); ierr == nil && fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
				t.Errorf("%q has the mode %v", rel, fi.Mode())
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			t.Error(err)
		}
	})
}
