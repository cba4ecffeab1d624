package skill_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

func put(t *testing.T, s *skill.Store, name, p, text string) {
	t.Helper()
	if _, err := s.Write(t.Context(), name, p, text); err != nil {
		t.Fatal(err)
	}
}

func TestFiles(t *testing.T) {
	t.Run("test_list_skill_files_root_and_subdir", func(t *testing.T) {
		s := open(t)
		create(t, s, "files", "x")
		put(t, s, "files", "sub/inner.txt", "hi")
		top := must2(s.Files(t.Context(), "files", skill.FileQuery{}))
		if top.Skill.Name != "files" || top.BasePath != "." || top.Truncated || len(top.Entries) != 2 ||
			top.Entries[0].Name != "SKILL.md" || top.Entries[1].Name != "sub" || !top.Entries[1].IsDir || top.Entries[1].Size != nil {
			t.Errorf("got %+v", top)
		}
		in := must2(s.Files(t.Context(), "files", skill.FileQuery{Path: "./sub/"}))
		if in.BasePath != "sub" || len(in.Entries) != 1 || in.Entries[0].Path != "sub/inner.txt" || *in.Entries[0].Size != 2 {
			t.Errorf("got %+v", in)
		}
	})
	t.Run("test_list_skill_files_hidden_filter", func(t *testing.T) {
		s := open(t)
		create(t, s, "hid", "x")
		put(t, s, "hid", ".secret", "shh")
		for hidden, want := range map[bool]int{false: 1, true: 2} {
			if got := must2(s.Files(t.Context(), "hid", skill.FileQuery{Hidden: hidden})); len(got.Entries) != want {
				t.Errorf("hidden %v: got %+v, want %d", hidden, got.Entries, want)
			}
		}
	})
	t.Run("test_list_skill_files_truncation", func(t *testing.T) {
		s := open(t)
		create(t, s, "many", "x")
		for i := range 5 {
			put(t, s, "many", fmt.Sprintf("file%d.txt", i), "data")
		}
		for most, want := range map[int]bool{3: true, 5: true, 6: false, 0: false, 5000: false} {
			got := must2(s.Files(t.Context(), "many", skill.FileQuery{Max: most}))
			if got.Truncated != want || most > 0 && len(got.Entries) != min(most, 6) {
				t.Errorf("%d: got %d entries, truncated %v", most, len(got.Entries), got.Truncated)
			}
		}
		_, err := s.Files(t.Context(), "many", skill.FileQuery{Max: -1})
		fails(t, err, sandbox.Invalid, "positive")
	})
	s := open(t)
	create(t, s, "s", "x")
	t.Run("test_list_skill_files_missing_skill_raises", func(t *testing.T) {
		_, err := s.Files(t.Context(), "ghost", skill.FileQuery{})
		fails(t, err, sandbox.NotFound, "not found")
	})
	t.Run("test_list_skill_files_directory_not_found_raises", func(t *testing.T) {
		_, err := s.Files(t.Context(), "s", skill.FileQuery{Path: "no-such-dir"})
		fails(t, err, sandbox.NotFound, "Skill directory not found")
		_, err = s.Files(t.Context(), "s", skill.FileQuery{Path: "SKILL.md"})
		fails(t, err, sandbox.NotFound, "Skill directory not found")
	})
	t.Run("test_list_skill_files_absolute_path_rejected", func(t *testing.T) {
		_, err := s.Files(t.Context(), "s", skill.FileQuery{Path: "/etc"})
		fails(t, err, sandbox.Invalid, "must be relative")
	})
}

func TestReadAndWrite(t *testing.T) {
	s := open(t)
	create(t, s, "s", "x")
	t.Run("test_read_write_edit_delete_round_trip", func(t *testing.T) {
		s := open(t)
		k := create(t, s, "crud", "x")
		w := must2(s.Write(t.Context(), "crud", "data/info.txt", "hello world"))
		if w.Path != "data/info.txt" || w.BytesWritten != 11 || w.Skill.Name != "crud" {
			t.Errorf("got %+v", w)
		}
		r := must2(s.Read(t.Context(), "crud", "data/info.txt"))
		if r.Content != "hello world" || r.Path != "data/info.txt" || r.Skill.Name != "crud" {
			t.Errorf("got %+v", r)
		}
		put(t, s, "crud", "data/info.txt", "edited")
		if r := must2(s.Read(t.Context(), "crud", "data/info.txt")); r.Content != "edited" {
			t.Errorf("got %+v", r)
		}
		if err := os.Remove(filepath.Join(k.PackageRoot, "data/info.txt")); err != nil {
			t.Fatal(err)
		}
		_, err := s.Read(t.Context(), "crud", "data/info.txt")
		fails(t, err, sandbox.NotFound, "Skill file not found")
	})
	t.Run("test_write_skill_file_handles_unicode", func(t *testing.T) {
		const text = "你好, мир 🌍"
		if w := must2(s.Write(t.Context(), "s", "i18n.txt", text)); w.BytesWritten != int64(len(text)) {
			t.Errorf("got %d", w.BytesWritten)
		}
		if r := must2(s.Read(t.Context(), "s", "i18n.txt")); r.Content != text {
			t.Errorf("got %q", r.Content)
		}
	})
	t.Run("test_read_skill_file_non_utf8_raises", func(t *testing.T) {
		write(t, s.Root(), file{"s/blob.bin", "\xff\xfe\x00\x01"})
		_, err := s.Read(t.Context(), "s", "blob.bin")
		fails(t, err, sandbox.Invalid, "not valid UTF-8")
		_, err = s.Write(t.Context(), "s", "blob.txt", "\xff")
		fails(t, err, sandbox.Invalid, "not valid UTF-8")
	})
	t.Run("test_read_skill_file_rejects_oversized_text", func(t *testing.T) {
		write(t, s.Root(), file{"s/large.txt", strings.Repeat("x", 1<<20+1)}, file{"s/just.txt", strings.Repeat("x", 1<<20)})
		_, err := s.Read(t.Context(), "s", "large.txt")
		fails(t, err, sandbox.Invalid, "exceeds")
		if r := must2(s.Read(t.Context(), "s", "just.txt")); len(r.Content) != 1<<20 {
			t.Errorf("got %d bytes", len(r.Content))
		}
	})
	t.Run("test_write_skill_file_rejects_oversized_text", func(t *testing.T) {
		_, err := s.Write(t.Context(), "s", "large2.txt", strings.Repeat("x", 1<<20+1))
		fails(t, err, sandbox.Invalid, "exceeds")
		put(t, s, "s", "large2.txt", strings.Repeat("x", 1<<20))
	})
	t.Run("test_read_skill_file_missing_raises", func(t *testing.T) {
		_, err := s.Read(t.Context(), "s", "missing.txt")
		fails(t, err, sandbox.NotFound, "Skill file not found")
	})
}

func TestPaths(t *testing.T) {
	s := open(t)
	create(t, s, "s", "x")
	t.Run("test_skill_file_relative_traversal_rejected", func(t *testing.T) {
		for _, p := range []string{"../escape.txt", "../../etc/passwd", "..", "a/../../x"} {
			_, err := s.Read(t.Context(), "s", p)
			fails(t, err, sandbox.Invalid, "stay within the skill package root")
			_, err = s.Write(t.Context(), "s", p, "")
			fails(t, err, sandbox.Invalid, "stay within the skill package root")
		}
		for _, p := range []string{"a\x00b", "\xff", strings.Repeat("x", 2000)} {
			_, err := s.Read(t.Context(), "s", p)
			fails(t, err, sandbox.Invalid, "can't be one")
		}
	})
	t.Run("test_skill_file_absolute_path_rejected", func(t *testing.T) {
		_, err := s.Read(t.Context(), "s", "/etc/passwd")
		fails(t, err, sandbox.Invalid, "must be relative")
	})
	t.Run("what-is-no-file", func(t *testing.T) {
		if err := unix.Mkfifo(filepath.Join(s.Root(), "s/fifo"), 0o644); err != nil {
			t.Fatal(err)
		}
		write(t, s.Root(), file{"s/dir/x", ""})
		for _, p := range []string{"fifo", "dir", "."} {
			_, err := s.Read(t.Context(), "s", p)
			fails(t, err, sandbox.NotFound, "Skill file not found")
		}
		_, err := s.Write(t.Context(), "s", "dir", "x")
		fails(t, err, sandbox.Invalid, "is a directory")
		_, err = s.Write(t.Context(), "s", "SKILL.md/x", "x")
		fails(t, err, sandbox.Invalid, "not a directory")
	})
	t.Run("a-link-is-replaced-and-not-written-through", func(t *testing.T) {
		target := filepath.Join(t.TempDir(), "outside")
		write(t, filepath.Dir(target), file{"outside", "theirs"})
		if err := os.Symlink(target, filepath.Join(s.Root(), "s/link")); err != nil {
			t.Fatal(err)
		}
		put(t, s, "s", "link", "mine")
		if read(t, target) != "theirs" || must2(s.Read(t.Context(), "s", "link")).Content != "mine" {
			t.Error("it was written through")
		}
	})
	t.Run("a-script-stays-executable", func(t *testing.T) {
		write(t, s.Root(), file{"s/run", "#!"})
		if err := os.Chmod(filepath.Join(s.Root(), "s/run"), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, s, "s", "run", "#!/bin/sh")
		if st := must2(os.Stat(filepath.Join(s.Root(), "s/run"))); st.Mode().Perm() != 0o755 {
			t.Errorf("got %v", st.Mode())
		}
	})
}
