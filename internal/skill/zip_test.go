package skill_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

func upload(filename string) skill.ZipQuery {
	return skill.ZipQuery{Filename: filename, Suffix: skill.DefaultSuffix}
}

var packages = skill.ZipQuery{Filename: "repo.zip", Subdir: "packages", Suffix: "upload"}

func with(paths ...string) skill.ZipQuery {
	q := packages
	q.Paths = paths
	return q
}

func TestInstallZip(t *testing.T) {
	t.Run("test_skill_store_installs_zip_under_configured_relative_skills_root", func(t *testing.T) {
		s := openAt(t, filepath.Join(t.TempDir(), "custom-skills"))
		want := filepath.Join(s.Root(), "demo-upload")
		p := must2(s.PreviewZip(t.Context(), demoZip(t), upload("demo.zip")))
		if len(p) != 1 || p[0].PackageRoot != want || *p[0].SourcePath != "" || exists(want) {
			t.Errorf("got %+v", p)
		}
		k := must2(s.InstallZip(t.Context(), demoZip(t), upload("demo.zip")))
		if k[0].Name != "demo" || k[0].PackageRoot != want || k[0].SourcePath != nil {
			t.Errorf("got %+v", k)
		}
		if got := must2(s.Read(t.Context(), "demo", "notes.txt")); got.Content != "hello" {
			t.Errorf("got %+v", got)
		}
		if exists(s.Root(), ".carboy", "stage") || exists(s.Root(), ".carboy", "journal") {
			t.Error("something of the change stayed")
		}
	})
	t.Run("test_skill_store_supports_source_subdir_before_selecting_candidates", func(t *testing.T) {
		s := open(t)
		p := must2(s.PreviewZip(t.Context(), nestedZip(t), packages))
		if len(p) != 2 || *p[0].SourcePath != "alpha" || *p[1].SourcePath != "beta" {
			t.Errorf("got %+v", p)
		}
		k := must2(s.InstallZip(t.Context(), nestedZip(t), with("beta")))
		if names(k) != "beta" || k[0].PackageRoot != filepath.Join(s.Root(), "repo-beta-upload") {
			t.Errorf("got %+v", k)
		}
	})
	t.Run("test_install_zip_upload_multiple_without_selection_raises", func(t *testing.T) {
		_, err := open(t).InstallZip(t.Context(), nestedZip(t), packages)
		fails(t, err, sandbox.Invalid, "Please choose one or more source_paths: alpha, beta")
	})
	t.Run("test_install_zip_upload_invalid_source_path_raises", func(t *testing.T) {
		_, err := open(t).InstallZip(t.Context(), nestedZip(t), with("gamma"))
		fails(t, err, sandbox.Invalid, `Invalid source_path "gamma". Available: alpha, beta`)
	})
	t.Run("test_install_zip_upload_existing_target_raises", func(t *testing.T) {
		s := open(t)
		must2(s.InstallZip(t.Context(), demoZip(t), upload("demo.zip")))
		_, err := s.InstallZip(t.Context(), demoZip(t), upload("demo.zip"))
		fails(t, err, sandbox.Conflict, "already exists")
	})
	t.Run("test_install_zip_upload_installs_multiple_selected", func(t *testing.T) {
		s := open(t)
		if k := must2(s.InstallZip(t.Context(), nestedZip(t), with("alpha", "beta", "alpha"))); names(k) != "alpha beta" {
			t.Errorf("got %+v", k)
		}
	})
	t.Run("all-or-none", func(t *testing.T) {
		s := open(t)
		write(t, s.Root(), file{"repo-beta-upload/x", ""})
		_, err := s.InstallZip(t.Context(), nestedZip(t), with("alpha", "beta"))
		fails(t, err, sandbox.Conflict, "already exists")
		if exists(s.Root(), "repo-alpha-upload") || !exists(s.Root(), "repo-beta-upload", "x") || exists(s.Root(), ".carboy", "journal") {
			t.Error("half of it is there")
		}
		must2(s.InstallZip(t.Context(), nestedZip(t), with("alpha")))
	})
	t.Run("test_install_zip_upload_legacy_source_path_arg", func(t *testing.T) {
		if k := must2(open(t).InstallZip(t.Context(), nestedZip(t), with("/alpha/"))); names(k) != "alpha" {
			t.Errorf("got %+v", k)
		}
	})
	t.Run("test_install_zip_upload_multi_top_level_uses_extract_root", func(t *testing.T) {
		s := open(t)
		data := zipped(t, file{"alpha/SKILL.md", md("alpha")}, file{"beta/SKILL.md", md("beta")}, file{"toplevel.txt", "loose"})
		if p := must2(s.PreviewZip(t.Context(), data, upload("multi.zip"))); names(p) != "alpha beta" {
			t.Errorf("got %+v", p)
		}
		q := upload("multi.zip")
		q.Paths = []string{"alpha"}
		if k := must2(s.InstallZip(t.Context(), data, q)); names(k) != "alpha" {
			t.Errorf("got %+v", k)
		}
	})
}

func TestZipNames(t *testing.T) {
	for name, tt := range map[string]struct{ sub, part string }{
		"test_source_subdir_traversal_rejected":                     {"../escape", "stay within the uploaded archive"},
		"test_source_subdir_leading_slash_is_stripped_then_checked": {"/etc", "does not exist in the uploaded archive"},
		"test_source_subdir_nonexistent_rejected":                   {"packages/missing", "does not exist in the uploaded archive"},
		"a-subdir-that-is-a-file":                                   {"packages/alpha/SKILL.md", "does not exist in the uploaded archive"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t).PreviewZip(t.Context(), nestedZip(t), skill.ZipQuery{Filename: "repo.zip", Subdir: tt.sub})
			fails(t, err, sandbox.Invalid, tt.part)
		})
	}
	t.Run("test_uploaded_skill_target_stem_sanitization", func(t *testing.T) {
		for in, want := range map[string]string{
			"My Skill!.zip": "My-Skill", "": "uploaded-skill", "???.zip": "uploaded-skill", "clean_name.zip": "clean_name",
			"../../x.zip": "x", `C:\dir\y.zip`: "y", ".zip": "zip", "天气.zip": "天气", "a\x00b.zip": "a-b", strings.Repeat("é", 300) + ".zip": strings.Repeat("é", 40),
		} {
			if got := skill.Stem(in); got != want {
				t.Errorf("%q: got %q, want %q", in, got, want)
			}
		}
	})
	t.Run("test_preview_target_dir_appends_leaf_and_suffix", func(t *testing.T) {
		q := packages
		q.Suffix = "v2"
		p := must2(open(t).PreviewZip(t.Context(), nestedZip(t), q))
		if filepath.Base(p[0].PackageRoot) != "repo-alpha-v2" || filepath.Base(p[1].PackageRoot) != "repo-beta-v2" {
			t.Errorf("got %+v", p)
		}
	})
	t.Run("a-suffix-that-leads-out", func(t *testing.T) {
		for _, suffix := range []string{"../../x", "a/b", "..", "\x00"} {
			q := upload("demo.zip")
			q.Suffix = suffix
			_, err := open(t).InstallZip(t.Context(), demoZip(t), q)
			fails(t, err, sandbox.Invalid, "target_suffix")
		}
		_, err := open(t).InstallZip(t.Context(), demoZip(t), skill.ZipQuery{Filename: "tenants.zip"})
		fails(t, err, sandbox.Invalid, "reserved")
	})
}

// raw makes an archive by hand: each entry as Go writes it, then edited.
func raw(t *testing.T, edit func(i int, h *zip.FileHeader), files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Store}
		edit(i, h)
		e, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// patch changes the bytes of each central header of a zip.
func patch(data []byte, fn func(i int, central []byte)) []byte {
	data = bytes.Clone(data)
	end := bytes.LastIndex(data, []byte("PK\x05\x06"))
	at := int(binary.LittleEndian.Uint32(data[end+16:]))
	for i := 0; bytes.HasPrefix(data[at:], []byte("PK\x01\x02")); i++ {
		fn(i, data[at:])
		at += 46 + int(binary.LittleEndian.Uint16(data[at+28:])) + int(binary.LittleEndian.Uint16(data[at+30:])) + int(binary.LittleEndian.Uint16(data[at+32:]))
	}
	return data
}

func TestHostileZip(t *testing.T) {
	plain := func(int, *zip.FileHeader) {}
	second := func(mode fs.FileMode) func(int, *zip.FileHeader) {
		return func(i int, h *zip.FileHeader) {
			if i == 1 {
				h.SetMode(mode)
			}
		}
	}
	doc := file{"pkg/SKILL.md", md("pkg")}
	two := func(name, text string) []byte { return raw(t, plain, doc, file{name, text}) }
	le := binary.LittleEndian
	clean := two("pkg/a.txt", strings.Repeat("a", 64))
	for name, tt := range map[string]struct {
		data []byte
		part string
	}{
		"test_preview_zip_upload_empty_bytes_raises": {nil, "empty"},
		"no-entries": {append([]byte("PK\x05\x06"), make([]byte, 18)...), "archive is empty"},
		"test_preview_zip_upload_corrupt_archive_raises":     {[]byte("not a zip at all"), "valid .zip archive"},
		"test_preview_zip_upload_no_skill_in_archive_raises": {zipped(t, file{"pkg/readme.txt", "no skill here"}), "No SKILL.md found"},
		"test_safe_extract_zip_rejects_parent_traversal":     {two("../evil.txt", "x"), "unsafe path"},
		"test_safe_extract_zip_rejects_absolute_member":      {two("/tmp/abs-evil.txt", "x"), "unsafe path"},
		"test_safe_extract_zip_rejects_nested_parent_escape": {two("sub/../../escape.txt", "x"), "unsafe path"},
		"backslashes-that-lead-out":                          {two(`sub\..\..\escape.txt`, "x"), "unsafe path"},
		"a-drive":                                            {two(`C:\x`, "x"), "unsafe path"},
		"a-backslash-at-the-start":                           {two(`\x`, "x"), "unsafe path"},
		"nul":                                                {two("pkg/a\x00b", "x"), "NUL path"},
		"a-control-character":                                {two("pkg/a\nb", "x"), "unsafe path"},
		"no-name":                                            {two("", "x"), "NUL path"},
		"the-directory-itself":                               {two("./", ""), "unsafe path"},
		"not-utf8":                                           {two("pkg/\xff", "x"), "unsafe path"},
		"a-long-name":                                        {two("pkg/"+strings.Repeat("n", 300), "x"), "unsafe path"},
		"a-deep-name":                                        {two(strings.Repeat("d/", 100)+"x", "x"), "unsafe path"},
		"symbolic-link":                                      {raw(t, second(fs.ModeSymlink|0o777), doc, file{"pkg/link", "../../secret"}), "symbolic link"},
		"device":                                             {raw(t, second(fs.ModeDevice|0o666), doc, file{"pkg/dev", ""}), "non-regular"},
		"fifo":                                               {raw(t, second(fs.ModeNamedPipe|0o666), doc, file{"pkg/fifo", ""}), "non-regular"},
		"duplicate":                                          {two("pkg/SKILL.md", "x"), "duplicate path"},
		"duplicate-with-a-backslash":                         {two(`pkg\SKILL.md`, "x"), "duplicate path"},
		"duplicate-by-case":                                  {two("pkg/skill.MD", "x"), "duplicate path"},
		"duplicate-directory-case":                           {two("PKG/a", "x"), "duplicate path"},
		"a-file-above":                                       {two("pkg/SKILL.md/x", "x"), "duplicate path"},
		"encrypted":                                          {patch(clean, func(_ int, c []byte) { c[8] |= 1 }), "encrypted"},
		"another-compression":                                {patch(clean, func(_ int, c []byte) { c[10] = 12 }), "not supported"},
		"data-after-the-end":                                 {append(bytes.Clone(clean), "trailing"...), "valid .zip archive"},
		"cut":                                                {clean[:len(clean)-5], "valid .zip archive"},
		"overlap": {patch(clean, func(i int, c []byte) {
			if i == 1 { // the bytes of the first one, once more
				le.PutUint32(c[42:], 0)
			}
		}), "overlap"},
		"a-size-that-is-a-lie": {patch(raw(t, func(_ int, h *zip.FileHeader) { h.Method = zip.Deflate }, doc, file{"pkg/a.txt", strings.Repeat("ab", 500)}), func(i int, c []byte) {
			if i == 1 {
				le.PutUint32(c[24:], 10)
			}
		}), "Archive entry"},
		"a-checksum-that-is-wrong": {patch(clean, func(i int, c []byte) {
			if i == 1 {
				c[16] ^= 1
			}
		}), "can't be read"},
		"a-directory-with-content": {patch(two("pkg/d", "content"), func(i int, c []byte) {
			if i == 1 {
				le.PutUint32(c[38:], 0o40755<<16)
			}
		}), "unexpected content"},
		"zip64-lies": {patch(raw(t, func(_ int, h *zip.FileHeader) {
			h.Extra = le.AppendUint64(le.AppendUint64([]byte{1, 0, 16, 0}, 1<<40), 1<<39)
		}, doc, file{"pkg/a", "x"}), func(_ int, c []byte) {
			le.PutUint32(c[20:], 0xffffffff)
			le.PutUint32(c[24:], 0xffffffff)
		}), "uncompressed size limit"},
		"zip64-without-its-sizes": {patch(clean, func(_ int, c []byte) { le.PutUint32(c[24:], 0xffffffff) }), "uncompressed size limit"},
		"ratio":                   {zipped(t, doc, file{"pkg/a", strings.Repeat("a", 1<<20)}), "compression ratio"},
		"too-many":                {zipped(t, append(make([]file, 0), many(513)...)...), "too many entries"},
		"a-huge-file":             {raw(t, plain, doc, file{"pkg/a", strings.Repeat("a", 16<<20+1)}), "uncompressed size limit"},
		"a-huge-archive":          {make([]byte, 20<<20+1), "compressed size limit"},
		"broken-metadata":         {zipped(t, file{"pkg/SKILL.md", "---\nname: [\n---\n"}), "(in SKILL.md of the archive)"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			s := openAt(t, filepath.Join(base, "a/b/skills"))
			_, err := s.PreviewZip(t.Context(), tt.data, upload("evil.zip"))
			fails(t, err, sandbox.Invalid, tt.part)
			_, err = s.InstallZip(t.Context(), tt.data, upload("evil.zip"))
			fails(t, err, sandbox.Invalid, tt.part)
			_ = filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
				if rel, _ := filepath.Rel(s.Root(), p); err != nil || !d.IsDir() && rel != ".carboy/lock" {
					t.Errorf("it left %s, %v", p, err)
				}
				return nil
			})
		})
	}
	// The same, without what is hostile.
	for name, data := range map[string][]byte{
		"clean":            clean,
		"backslashes":      two(`pkg\sub\a.txt`, "x"),
		"directories":      raw(t, plain, file{"pkg/", ""}, doc, file{"pkg/d/", ""}, file{"pkg/d/x", "y"}),
		"executable":       raw(t, second(fs.ModeSetuid|0o777), doc, file{"pkg/run", "#!"}),
		"many":             zipped(t, many(512)...),
		"deflated":         zipped(t, doc, file{"pkg/a", strings.Repeat("abcdefgh", 20)}),
		"a-comment":        withComment(t, clean),
		"a-dotted-path":    two("./pkg//b", "x"),
		"unicode":          two("pkg/天气.txt", "x"),
		"lower-and-higher": raw(t, plain, doc, file{"pkg/a", "x"}, file{"pkg/b/A", "y"}),
	} {
		t.Run("installs-"+name, func(t *testing.T) {
			s := open(t)
			k, err := s.InstallZip(t.Context(), data, upload("good.zip"))
			if err != nil || names(k) != "pkg" || k[0].PackageRoot != filepath.Join(s.Root(), "good-upload") {
				t.Fatalf("got %+v, %v", k, err)
			}
			_ = filepath.WalkDir(k[0].PackageRoot, func(p string, d fs.DirEntry, err error) error {
				st, _ := os.Lstat(p)
				if err != nil || st.Mode() != 0o644 && st.Mode() != 0o755 && st.Mode() != fs.ModeDir|0o755 {
					t.Errorf("%s: got %v, %v", p, st.Mode(), err)
				}
				return nil
			})
		})
	}
}

func many(n int) []file {
	files := []file{{"pkg/SKILL.md", md("pkg")}}
	for len(files) < n {
		files = append(files, file{"pkg/f" + string(rune('a'+len(files)%26)) + strings.Repeat("x", len(files)/26), "x"})
	}
	return files
}

func withComment(t *testing.T, data []byte) []byte {
	t.Helper()
	out := append(bytes.Clone(data), "by hand"...)
	binary.LittleEndian.PutUint16(out[len(data)-2:], 7)
	return out
}

func TestZipLimits(t *testing.T) {
	t.Run("test_zip_upload_rejects_compressed_byte_cap_for_preview_and_install", func(t *testing.T) {
		data := demoZip(t)
		skill.SetZip(t, func(packed, _, _, _ *int64, _ *int) { *packed = int64(len(data)) - 1 })
		_, err := open(t).PreviewZip(t.Context(), data, upload("demo.zip"))
		fails(t, err, sandbox.Invalid, "compressed size limit")
		_, err = open(t).InstallZip(t.Context(), data, upload("demo.zip"))
		fails(t, err, sandbox.Invalid, "compressed size limit")
	})
	t.Run("test_zip_upload_rejects_entry_count_cap", func(t *testing.T) {
		skill.SetZip(t, func(_, _, _, _ *int64, entries *int) { *entries = 2 })
		_, err := open(t).PreviewZip(t.Context(), zipped(t, many(3)...), upload("pkg.zip"))
		fails(t, err, sandbox.Invalid, "too many entries")
	})
	t.Run("test_zip_upload_rejects_per_entry_and_total_uncompressed_caps", func(t *testing.T) {
		skill.SetZip(t, func(_, entry, total, _ *int64, _ *int) { *entry, *total = 32, 10 })
		_, err := open(t).PreviewZip(t.Context(), zipped(t, file{"pkg/SKILL.md", strings.Repeat("xy ", 11)}), upload("pkg.zip"))
		fails(t, err, sandbox.Invalid, "entry exceeds the uncompressed size")
		_, err = open(t).PreviewZip(t.Context(), zipped(t, file{"pkg/a", "aaaaaa"}, file{"pkg/b", "bbbbbb"}), upload("pkg.zip"))
		fails(t, err, sandbox.Invalid, "total uncompressed size")
	})
	t.Run("test_zip_upload_rejects_compression_ratio_and_symlink", func(t *testing.T) {
		data := zipped(t, file{"pkg/SKILL.md", strings.Repeat("ab", 300)})
		must2(open(t).PreviewZip(t.Context(), data, upload("pkg.zip")))
		skill.SetZip(t, func(_, _, _, ratio *int64, _ *int) { *ratio = 2 })
		_, err := open(t).PreviewZip(t.Context(), data, upload("pkg.zip"))
		fails(t, err, sandbox.Invalid, "compression ratio")
	})
	t.Run("test_safe_extract_zip_extracts_clean_archive", func(t *testing.T) {
		dir := t.TempDir()
		root := must2(os.OpenRoot(dir))
		defer root.Close()
		if err := skill.UnzipInto(t.Context(), zipped(t, file{"a/b.txt", "data"}, file{"a/c/", ""}), root); err != nil || read(t, dir, "a/b.txt") != "data" {
			t.Errorf("got %v", err)
		}
	})
}

func FuzzZip(f *testing.F) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range map[string]string{"pkg/SKILL.md": md("pkg"), "pkg/d/": "", "pkg/d/x": "y"} {
		e, _ := w.Create(name)
		_, _ = e.Write([]byte(text))
	}
	_ = w.Close()
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:b.Len()-1])
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
		if err := skill.UnzipInto(t.Context(), data, root); err != nil && sandbox.KindOf(err) == sandbox.Internal {
			t.Fatal(err)
		}
		onlyPlain(t, base)
	})
}

// onlyPlain checks that all that was unpacked is below in, and is a file or a
// directory of a plain mode.
func onlyPlain(t *testing.T, base string) {
	t.Helper()
	if entries, err := os.ReadDir(base); err != nil || len(entries) != 1 {
		t.Fatalf("got %v, %v beside it", entries, err)
	}
	_ = filepath.WalkDir(filepath.Join(base, "in"), func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Lstat(p)
		if err != nil || st.Mode().Perm()&^0o755 != 0 || !st.IsDir() && !st.Mode().IsRegular() {
			t.Fatalf("%s: got %v, %v", p, st, err)
		}
		return nil
	})
}
