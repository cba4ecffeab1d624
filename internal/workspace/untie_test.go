package workspace_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// What a view has of a file of the base is there, and is another file than that, wherever the base has it by now. What it is a
// copy of is told as before.
func TestUntie(t *testing.T) {
	privateMounts(t)
	for _, untied := range []bool{false, true} { // without it, the kernel takes both for one
		t.Run(map[bool]string{false: "control", true: "untied"}[untied], func(t *testing.T) {
			base, layers := t.TempDir(), t.TempDir()
			mount(t, "none", layers, "tmpfs", "")
			tree{"src/file": "f", "src/link": "-> file", "dir/a": "a", "dir/sub/b": "b", "same": "s"}.write(t, base)
			merged, upper := overlayOn(t, base, layers)
			tree{"src/file": "edited", "dir/a": "edited", "dir/sub/b": "edited", "new/n": "n", "same": "edited"}.write(t, merged)
			must(t, os.Lchown(merged+"/src/link", 1, 1)) // copied up
			must(t, os.Rename(merged+"/dir/sub/b", merged+"/new/b"))
			o := options(true, past)
			o.Origins = true
			before := streamOver(t, upper, base, o)
			must(t, unix.Unmount(merged, 0))
			if untied {
				for range 2 { // as each start does
					must(t, workspace.Untie(openDir(t, upper)))
				}
				if !bytes.Equal(before, streamOver(t, upper, base, o)) {
					t.Error("the changes are told otherwise")
				}
			}
			for from, to := range map[string]string{"src/file": "src/moved", "src/link": "src/mlink", "dir": "mdir"} {
				must(t, os.Rename(base+"/"+from, base+"/"+to))
			}
			mountView(t, base, merged, upper)
			for _, p := range []string{"src/moved", "mdir/a", "mdir/sub/b", "src/mlink"} {
				_, _ = os.Lstat(filepath.Join(merged, p)) // looked up first
			}
			want := tree{
				"src/file": "edited", "src/moved": "f", "src/link": "-> file", "src/mlink": "-> file", "same": "edited", "src": "/", "dir": "/", "dir/sub": "/",
				"dir/a": "edited", "mdir/a": "a", "mdir/sub/b": "b", "mdir": "/", "mdir/sub": "/", "new": "/", "new/n": "n", "new/b": "edited",
			}
			if untied {
				diff(t, "view", read(t, merged), want)
			} else if _, err := os.ReadFile(merged + "/src/file"); !errors.Is(err, unix.ESTALE) {
				t.Errorf("this kernel tells them apart by itself: %v", err)
			}
		})
	}
}

// BenchmarkUntie50k is what the start waits for after one in which a view got 50,000 files.
func BenchmarkUntie50k(b *testing.B) {
	dir, err := os.Open(manyFiles(b))
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	for b.Loop() {
		if err := workspace.Untie(dir); err != nil {
			b.Fatal(err)
		}
	}
}
