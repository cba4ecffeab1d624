package skill_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// hostile is an archive of a sandbox: each entry of the package, then more.
func hostile(t *testing.T, more ...tar.Header) func(string) io.Reader {
	t.Helper()
	return func(name string) io.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		text := md("k")
		for _, h := range append([]tar.Header{{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: name + "/SKILL.md", Typeflag: tar.TypeReg, Size: int64(len(text))}}, more...) {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			body := io.Reader(strings.NewReader(text))
			if !strings.HasSuffix(h.Name, "SKILL.md") {
				body = zeros{}
			}
			if _, err := io.CopyN(w, body, h.Size); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &b
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestHostileGuest(t *testing.T) {
	var many []tar.Header
	for i := range 520 {
		many = append(many, tar.Header{Name: "k/f" + strings.Repeat("x", i%200) + string(rune('a'+i/200)), Typeflag: tar.TypeReg})
	}
	var large []tar.Header
	for i := range 5 {
		large = append(large, tar.Header{Name: "k/f" + string(rune('a'+i)), Typeflag: tar.TypeReg, Size: 15 << 20})
	}
	for name, tt := range map[string]struct {
		tar  func(string) io.Reader
		part string
	}{
		"up":                   {hostile(t, tar.Header{Name: "k/../../x", Typeflag: tar.TypeReg}), "unsafe path"},
		"absolute":             {hostile(t, tar.Header{Name: "/etc/x", Typeflag: tar.TypeReg}), "unsafe path"},
		"beside":               {hostile(t, tar.Header{Name: "other/x", Typeflag: tar.TypeReg}), "unsafe path"},
		"in-its-place":         {hostile(t, tar.Header{Name: "k", Typeflag: tar.TypeReg}), "unsafe path"},
		"backslash":            {hostile(t, tar.Header{Name: `k\x`, Typeflag: tar.TypeReg}), "unsafe path"},
		"symlink":              {hostile(t, tar.Header{Name: "k/l", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), "symbolic link: k/l"},
		"symlink-then-through": {hostile(t, tar.Header{Name: "k/l", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, tar.Header{Name: "k/l/x", Typeflag: tar.TypeReg}), "symbolic link"},
		"hard-link":            {hostile(t, tar.Header{Name: "k/l", Typeflag: tar.TypeLink, Linkname: "k/SKILL.md"}), "hard link"},
		"device":               {hostile(t, tar.Header{Name: "k/d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}), "non-regular"},
		"fifo":                 {hostile(t, tar.Header{Name: "k/d", Typeflag: tar.TypeFifo}), "non-regular"},
		"duplicate":            {hostile(t, tar.Header{Name: "k/SKILL.md", Typeflag: tar.TypeReg, Size: 1}), "duplicate"},
		"case":                 {hostile(t, tar.Header{Name: "k/Skill.md", Typeflag: tar.TypeReg}), "duplicate"},
		"many":                 {hostile(t, many...), "too many entries"},
		"huge":                 {hostile(t, tar.Header{Name: "k/f", Typeflag: tar.TypeReg, Size: 16<<20 + 1}), "uncompressed size limit"},
		"large":                {hostile(t, large...), "total uncompressed size"},
		"no-end":               {func(string) io.Reader { return io.LimitReader(zeros{}, 1<<40) }, "no SKILL.md"},
		"junk":                 {func(string) io.Reader { return strings.NewReader(strings.Repeat("junk", 1000)) }, "can't be read"},
		"cut":                  {func(n string) io.Reader { return io.LimitReader(hostile(t)(n), 1600) }, "can't be read"},
		"another-name":         {func(string) io.Reader { return packed("k", file{"SKILL.md", md("victim")}) }, "Renaming"},
		"no-longer-yaml":       {func(string) io.Reader { return packed("k", file{"SKILL.md", "---\nname: [\n---\n"}) }, "YAML"},
		"no-skill":             {func(string) io.Reader { return packed("k", file{"x", ""}) }, "no SKILL.md"},
	} {
		t.Run(name, func(t *testing.T) {
			s, g, b := open(t), newGuest(t), &skill.Brought{}
			k := create(t, s, "k", "x")
			create(t, s, "victim", "x")
			p := placed(t, s, k, "rw")
			bring(t, s, g, b, 1, p)
			before := read(t, k.PackageRoot, "SKILL.md")
			g.tar = tt.tar
			got := must2(s.TakeBack(t.Context(), g, b, p))
			if got.Changed || got.Conflict {
				t.Errorf("got %+v", got)
			}
			noted(t, got.Notices, tt.part)
			if read(t, k.PackageRoot, "SKILL.md") != before || exists(s.Root(), ".carboy/stage") {
				t.Error("the store changed")
			}
			// The same, but clean.
			g.tar = hostile(t, tar.Header{Name: "k/f", Typeflag: tar.TypeReg, Size: 9, Mode: 0o7777, Uid: 77, Uname: "x"}, tar.Header{Name: "k/.git/l", Typeflag: tar.TypeSymlink, Linkname: "/x"})
			if got := must2(s.TakeBack(t.Context(), g, b, p)); !got.Changed || len(got.Notices) > 0 {
				t.Errorf("a clean one: got %+v", got)
			}
			st := must2(os.Lstat(filepath.Join(k.PackageRoot, "f")))
			var sys unix.Stat_t
			if err := unix.Lstat(filepath.Join(k.PackageRoot, "f"), &sys); err != nil || st.Mode() != 0o755 || int(sys.Uid) != os.Getuid() || exists(k.PackageRoot, ".git") {
				t.Errorf("got %v, %v", st.Mode(), err)
			}
		})
	}
}

func packed(top string, files ...file) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		_ = w.WriteHeader(&tar.Header{Name: top + "/" + f.name, Typeflag: tar.TypeReg, Size: int64(len(f.text))})
		_, _ = io.WriteString(w, f.text)
	}
	_ = w.Close()
	return &b
}

func FuzzGuestTar(f *testing.F) {
	for _, r := range []io.Reader{packed("k", file{"SKILL.md", "x"}, file{"a/b", "y"}), packed("k", file{"../x", ""}), packed("", file{"x", ""})} {
		text, _ := io.ReadAll(r)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		base := t.TempDir()
		if err := os.Mkdir(filepath.Join(base, "in"), 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(filepath.Join(base, "in"))
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		sum, err := skill.UntarInto(t.Context(), func() io.Reader { return bytes.NewReader(data) }, "k", root)
		onlyPlain(t, base)
		if err != nil {
			if sandbox.KindOf(err) != sandbox.Invalid {
				t.Fatalf("got %v, want it to be invalid", err)
			}
			return
		}
		// What was counted is what is there, but for directories that only names
		// of others tell of.
		if got, err := skill.Content(t.Context(), root); err != nil || got != sum && !implied(data) {
			t.Fatalf("got content %s, %v, want %s", got, err, sum)
		}
	})
}

// implied reports whether an archive has a name whose directory it does not
// list.
func implied(data []byte) bool {
	listed := map[string]bool{"k": true}
	missing := false
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err != nil {
			return missing
		}
		name := filepath.Clean(h.Name)
		if h.Typeflag == tar.TypeDir {
			listed[name] = true
		}
		missing = missing || !listed[filepath.Dir(name)]
	}
}
