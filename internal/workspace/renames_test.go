package workspace_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// numbered is a text of lines, of which some are others.
func numbered(n int, other ...int) string {
	var b strings.Builder
	for i := range n {
		if slices.Contains(other, i) {
			fmt.Fprintln(&b, "another line", i)
		} else {
			fmt.Fprintln(&b, "line", i)
		}
	}
	return b.String()
}

// Renames are shown as git shows them, and git apply does them.
func TestFindRenames(t *testing.T) {
	privateMounts(t)
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, view string)
		want []string // "from -> to similarity"
	}{
		{"directory", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/src", v+"/lib"))
		}, []string{"src/a -> lib/a 100", "src/sub/a -> lib/sub/a 100", "src/sub/b -> lib/sub/b 100"}},
		{"directory and edited", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/src", v+"/lib"))
			tree{"lib/a": numbered(20, 3), "lib/sub/b": "nothing of what it was\n"}.write(t, v)
		}, []string{"src/a -> lib/a 8x", "src/sub/a -> lib/sub/a 100"}},
		{"file", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/file", v+"/moved"))
		}, []string{"file -> moved 100"}},
		{"file made executable", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/file", v+"/moved"))
			must(t, os.Chmod(v+"/moved", 0o755))
		}, []string{"file -> moved 100"}},
		{"exchanged with a file", func(t *testing.T, v string) {
			exchange(t, v+"/src", v+"/file")
		}, []string{"src/a -> file/a 100", "src/sub/a -> file/sub/a 100", "src/sub/b -> file/sub/b 100"}},
		{"two of one content", func(t *testing.T, v string) {
			must(t, os.Rename(v+"/twin1", v+"/src/twin1"))
			must(t, os.Rename(v+"/twin2", v+"/other/twin2"))
		}, []string{"twin1 -> src/twin1 100", "twin2 -> other/twin2 100"}},
		{"copied but not renamed", func(t *testing.T, v string) {
			tree{"copy": numbered(30)}.write(t, v)
		}, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			privateMounts(t)
			base := t.TempDir()
			tree{
				"src/a": numbered(20), "src/sub/a": numbered(10), "src/sub/b": "short\n", "other/o": "o\n", "file": numbered(30),
				"twin1": "twin\n", "twin2": "twin\n",
			}.write(t, base)
			view, upper := overlay(t, base)
			tt.do(t, view)
			d := compare(t, base, streamOver(t, upper, base, options(true, future)))
			must(t, d.FindRenames(t.Context()))
			got := []string{}
			for _, it := range d.Items {
				if it.From == "" {
					continue
				}
				n := fmt.Sprint(it.Similarity)
				if it.Similarity < 100 && it.Similarity >= 80 {
					n = "8x"
				}
				got = append(got, fmt.Sprintf("%s -> %s %s", it.From, it.Path, n))
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			diff(t, "renames", got, tt.want)
			if n := d.Summary().Renamed; n != len(tt.want) {
				t.Errorf("%d in the summary, want %d", n, len(tt.want))
			}
			var patch bytes.Buffer
			must(t, d.WritePatch(t.Context(), &patch, workspace.PatchOptions{Raw: true}))
			if n := strings.Count(patch.String(), "\nrename from "); n != len(tt.want) {
				t.Errorf("%d renames in\n%s", n, patch.String())
			}
			target := filepath.Join(t.TempDir(), "copy")
			copyTree(t, base, target)
			cmd := exec.Command("git", "apply", "-")
			cmd.Dir, cmd.Stdin = target, &patch
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git apply: %v: %s", err, out)
			}
			diff(t, "base", filesOf(read(t, target)), filesOf(read(t, view)))
		})
	}
}

// filesOf is a tree without its directories, of which a patch knows nothing.
func filesOf(tr tree) tree {
	for p, what := range tr {
		if what == "/" {
			delete(tr, p)
		}
	}
	return tr
}

// What is not shown, or held back, is not where a file that is gone went.
func TestRenamedOutOfSight(t *testing.T) {
	base := t.TempDir()
	tree{"src": numbered(20)}.write(t, base)
	for name, want := range map[string]string{"lib": "", "hidden": "D src", ".git/hooks/post-commit": "D src"} {
		upper := t.TempDir()
		tree{name: numbered(20)}.write(t, upper)
		whiteout(t, upper+"/src")
		d := *compare(t, base, stream(t, upper, options(true, future)))
		d.Items = slices.DeleteFunc(slices.Clone(d.Items), func(it workspace.Item) bool { return it.Path == "hidden" })
		must(t, d.FindRenames(t.Context()))
		got := ""
		for _, it := range d.Items {
			if it.Class == workspace.Removed && it.To == "" {
				got = "D " + it.Path
			}
		}
		var patch bytes.Buffer
		must(t, d.WritePatch(t.Context(), &patch, workspace.PatchOptions{}))
		if got != want || strings.Contains(patch.String(), "deleted file") != (want != "") {
			t.Errorf("to %s: %q, want %q, in\n%s", name, got, want, patch.String())
		}
	}
}

// A stream that says what is not so of a file does not have it shown as renamed.
func TestRenameNotBelieved(t *testing.T) {
	base := t.TempDir()
	tree{"src/a": numbered(20)}.write(t, base)
	for content, want := range map[string]int{numbered(20): 1, numbered(20, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12): 0} {
		upper := t.TempDir()
		tree{"lib/a": content}.write(t, upper)
		whiteout(t, upper+"/src")
		d := compare(t, base, stream(t, upper, options(true, future)))
		must(t, d.FindRenames(t.Context()))
		if got := d.Summary().Renamed; got != want {
			t.Errorf("%d renames, want %d", got, want)
		}
	}
}
