package archive_test

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest/archive"
)

// FuzzExtract extracts anything beside a directory that must stay as it is.
func FuzzExtract(f *testing.F) {
	f.Add(makeTar(f, reg("a/b", "x"), link(tar.TypeLink, "c", "a/b")), "")
	f.Add(makeTar(f, link(tar.TypeSymlink, "l", "../out"), reg("l/x", "x")), "")
	f.Add(makeTar(f, dir("d"), reg("d/e", "x")), "n")
	f.Add(makeTar(f, link(tar.TypeSymlink, "l", "/"), link(tar.TypeLink, "h", "l/etc/passwd")), "")
	f.Fuzz(func(t *testing.T, data []byte, as string) {
		base := t.TempDir()
		dst := filepath.Join(base, "dst")
		write(t, filepath.Join(base, "out/secret"), "s", 0o600)
		must(t, os.Mkdir(dst, 0o755))
		defer open(dst)
		_, _ = archive.Extract(t.Context(), bytes.NewReader(data), dst,
			archive.ExtractOptions{As: as, MaxEntries: 100, MaxBytes: 1 << 20})

		var names []string
		for name := range snapshotQuietly(base) {
			if name != "dst" && !strings.HasPrefix(name, "dst/") {
				names = append(names, name)
			}
		}
		if diff := cmp.Diff(2, len(names)); diff != "" {
			t.Errorf("the outside has %q, want out and out/secret", names)
		}
		b, err := os.ReadFile(filepath.Join(base, "out/secret"))
		if err != nil || string(b) != "s" {
			t.Errorf("the secret is %q, %v", b, err)
		}
		for name, mode := range snapshotQuietly(dst) {
			if mode&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice|fs.ModeNamedPipe) != 0 {
				t.Errorf("%q has mode %v", name, mode)
			}
		}
	})
}

func snapshotQuietly(dir string) map[string]fs.FileMode {
	got := make(map[string]fs.FileMode)
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if st, err := os.Lstat(p); err == nil {
			got[rel] = st.Mode()
		}
		return nil
	})
	return got
}

// open makes every directory one that can be removed.
func open(dir string) {
	for name, mode := range snapshotQuietly(dir) {
		if mode.IsDir() {
			_ = os.Chmod(filepath.Join(dir, name), 0o755)
		}
	}
}
