package session

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenDirThroughNoLink: a directory that was accepted is not looked for
// where a link in its place, or above it, leads.
func TestOpenDirThroughNoLink(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(base, "real/dir"), 0o755), os.Symlink("real", filepath.Join(base, "link")),
		os.Symlink("dir", filepath.Join(base, "real/to"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{"real/dir": nil, "link/dir": unix.ELOOP, "real/to": unix.ELOOP, "link": unix.ELOOP, "none": unix.ENOENT} {
		f, err := openDir(filepath.Join(base, path))
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
}
