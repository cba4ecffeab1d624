package archive_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/cli/archive"
)

const (
	rounds = 1000
	canary = "the host's own"
)

// swapped makes a directory tree/out that is exchanged with a link to a
// directory of the host's, again and again, until the test ends. It returns the
// tree and that directory, in which there is one file, f.
func swapped(t *testing.T) (tree, hosts string) {
	t.Helper()
	top := t.TempDir()
	tree, hosts = filepath.Join(top, "tree"), filepath.Join(top, "hosts")
	for _, dir := range []string{filepath.Join(tree, "out"), hosts} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(tree, "out/f"), []byte("mine"), 0o644))
	must(t, os.WriteFile(filepath.Join(hosts, "f"), []byte(canary), 0o644))
	out, way := filepath.Join(tree, "out"), filepath.Join(top, "way")
	must(t, os.Symlink("../hosts", way))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, out, unix.AT_FDCWD, way, unix.RENAME_EXCHANGE)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return tree, hosts
}

// hurt says what of the host's was written.
func hurt(t *testing.T, hosts string) bool {
	t.Helper()
	names, err := os.ReadDir(hosts)
	must(t, err)
	text, err := os.ReadFile(filepath.Join(hosts, "f"))
	must(t, err)
	return len(names) != 1 || string(text) != canary
}

// TestPackWhileLinksArePlanted reads a tree in which a directory turns into a
// link and back. By their paths, the same files are the host's.
func TestPackWhileLinksArePlanted(t *testing.T) {
	tree, _ := swapped(t)
	whole, led := 0, false
	for range rounds {
		for _, from := range []string{tree, filepath.Join(tree, "out/f"), filepath.Join(tree, "out")} {
			var b bytes.Buffer
			if archive.PackPath(t.Context(), &b, from, "copy") == nil {
				whole++
			}
			if bytes.Contains(b.Bytes(), []byte(canary)) {
				t.Fatal("the host's file is in the archive")
			}
		}
		text, _ := os.ReadFile(filepath.Join(tree, "out/f"))
		led = led || string(text) == canary
	}
	if whole == 0 || !led {
		t.Errorf("%d copies were made, and the control got there: %t", whole, led)
	}
}

// TestUnpackWhileLinksArePlanted writes there.
func TestUnpackWhileLinksArePlanted(t *testing.T) {
	tree, hosts := swapped(t)
	of := func(name string) []byte {
		return archiveOf(t, entry(tar.TypeDir, "d/", ""), entry(tar.TypeDir, "d/"+name, ""), entry(tar.TypeReg, "d/"+name+"new", ""), entry(tar.TypeReg, "d/"+name+"f", ""))
	}
	file, inner, outer := archiveOf(t, entry(tar.TypeReg, "new", "")), of("sub/"), of("out/")
	whole := 0
	for range rounds {
		for _, to := range []struct {
			b    []byte
			path string
		}{{file, "out/new"}, {inner, "out"}, {outer, "."}} {
			if archive.UnpackTo(t.Context(), bytes.NewReader(to.b), filepath.Join(tree, to.path)) == nil {
				whole++
			}
		}
		if hurt(t, hosts) {
			t.Fatal("something was written to the host's directory")
		}
	}
	if whole == 0 {
		t.Error("no copy was made")
	}
	for range rounds * rounds { // the control: the same, by path
		if f, err := os.Create(filepath.Join(tree, "out/new")); err == nil {
			_, err = io.WriteString(f, "x")
			must(t, err)
			must(t, f.Close())
		}
		if hurt(t, hosts) {
			return
		}
	}
	t.Error("the control does not get there")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
