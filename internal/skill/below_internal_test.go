package skill

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenBelow: a package that became a link since it was found is not
// another of the namespace, nor what is ours in it.
func TestOpenBelow(t *testing.T) {
	base := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(base, "mine/deep"), 0o755), os.MkdirAll(filepath.Join(base, ownDir), 0o700),
		os.MkdirAll(filepath.Join(base, "other"), 0o755), os.WriteFile(filepath.Join(base, "other/f"), nil, 0o600),
		os.Symlink("../other", filepath.Join(base, "mine/link")), os.Symlink("../"+ownDir, filepath.Join(base, "mine/own"))); err != nil {
		t.Fatal(err)
	}
	dir, err := os.OpenRoot(base)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for rel, want := range map[string]error{"other": nil, "mine/deep": nil, ".": nil, "mine/link": unix.ELOOP, "mine/own": unix.ELOOP, "../x": unix.EXDEV} {
		below, err := openBelow(dir, rel)
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", rel, err, want)
		}
		if err != nil {
			continue
		}
		if _, err := below.Stat("f"); (err == nil) != (rel == "other") {
			t.Errorf("%s: %v", rel, err)
		}
		below.Close()
	}
	// The control: a Root follows what stays inside.
	linked, err := dir.OpenRoot("mine/link")
	if err != nil {
		t.Fatal(err)
	}
	linked.Close()
}
