package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/archive"
)

func replacement(t *testing.T, files map[string]string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestReplace(t *testing.T) {
	top := t.TempDir()
	p := filepath.Join(top, "pkg")
	has := func(want ...string) {
		t.Helper()
		var got []string
		_ = filepath.WalkDir(top, func(q string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				got = append(got, strings.TrimPrefix(q, top+"/"))
			}
			return err
		})
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if _, err := archive.Replace(t.Context(), replacement(t, map[string]string{"a": "1", "d/b": "2"}), p, "", archive.ExtractOptions{}); err != nil {
		t.Fatal(err)
	}
	has("pkg/a", "pkg/d/b")
	if st, err := os.Stat(p); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("got mode %v, %v, want 0755", st.Mode(), err)
	}
	if _, err := archive.Replace(t.Context(), replacement(t, map[string]string{"c": "3"}), p, "old", archive.ExtractOptions{}); err != nil {
		t.Fatal(err)
	}
	has("old/a", "old/d/b", "pkg/c")
	if _, err := archive.Replace(t.Context(), replacement(t, map[string]string{"e": "4"}), p, "old", archive.ExtractOptions{}); err != nil {
		t.Fatal(err)
	}
	has("old/c", "pkg/e")
	if _, err := archive.Replace(t.Context(), replacement(t, map[string]string{"f": "5"}), p, "", archive.ExtractOptions{}); err != nil {
		t.Fatal(err)
	}
	has("old/c", "pkg/f")

	// What fails leaves all as it was.
	for name, tt := range map[string]struct {
		tar       *bytes.Buffer
		path, old string
	}{
		"leads-out":     {replacement(t, map[string]string{"../x": ""}), p, ""},
		"is-cut":        {bytes.NewBuffer(replacement(t, map[string]string{"x": "1"}).Bytes()[:700]), p, ""},
		"keeps-outside": {replacement(t, map[string]string{"x": ""}), p, "../x"},
		"keeps-itself":  {replacement(t, map[string]string{"x": ""}), p, "pkg"},
		"no-directory":  {replacement(t, map[string]string{"x": ""}), filepath.Join(p, "f"), ""},
	} {
		if _, err := archive.Replace(t.Context(), tt.tar, tt.path, tt.old, archive.ExtractOptions{}); err == nil {
			t.Errorf("%s: got no error", name)
		}
		has("old/c", "pkg/f")
	}
	if err := os.Symlink("old", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Replace(t.Context(), replacement(t, nil), filepath.Join(top, "link"), "", archive.ExtractOptions{}); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link in the place: got %v, want a refusal", err)
	}
}

func TestCreateExcept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pkg")
	for _, name := range []string{"a", ".git/b", "d/.git/c", "d/e", ".gitignore"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	res, err := archive.Create(t.Context(), &b, dir, archive.CreateOptions{Except: []string{".git"}})
	if err != nil || len(res.Skipped) != 0 {
		t.Fatal(res, err)
	}
	var got []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		got = append(got, h.Name)
	}
	if want := "pkg/ pkg/.gitignore pkg/a pkg/d/ pkg/d/e"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
