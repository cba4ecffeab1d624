package workspace_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// overlay mounts a view of lower and returns the view and its upper directory.
func overlay(t *testing.T, lower string) (merged, upper string) {
	t.Helper()
	dir := t.TempDir()
	mount(t, "none", dir, "tmpfs", "") // the kernel writes each copy out
	return overlayOn(t, lower, dir)
}

// overlayOn is overlay with its layers in a directory.
func overlayOn(t *testing.T, lower, dir string) (merged, upper string) {
	t.Helper()
	upper, merged = filepath.Join(dir, "u"), filepath.Join(dir, "m")
	for _, d := range []string{upper, merged, filepath.Join(dir, "w")} {
		must(t, os.Mkdir(d, 0o755))
	}
	mountView(t, lower, merged, upper)
	return merged, upper
}

// mountView mounts a view as overlayOn does.
func mountView(t *testing.T, lower, merged, upper string) {
	t.Helper()
	mount(t, "overlay", merged, "overlay",
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s/w,redirect_dir=on,metacopy=off,index=off", lower, upper, filepath.Dir(upper)))
}

// copyTree is cp -a.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}

func TestRealOverlay(t *testing.T) {
	privateMounts(t)
	base := t.TempDir()
	tree{
		"keep": "k", "edit": "1", "gone": "2", "touched": "t", "d/a": "1", "d/b": "2", "tree/x/y": "3", "tree/z": "4",
		"l": "-> keep", "becomes-dir": "f", "becomes-file/x": "1",
	}.write(t, base)
	merged, upper := overlay(t, base)

	tree{"edit": "2", "new/deep/er": "n", "d/c": "x! 3", "l": "-> edit"}.write(t, merged)
	for _, p := range []string{"gone", "d/a", "tree", "becomes-dir", "becomes-file"} {
		must(t, os.RemoveAll(merged+"/"+p))
	}
	tree{"tree/w": "5", "becomes-dir/x": "1", "becomes-file": "2"}.write(t, merged)
	must(t, os.Chmod(merged+"/touched", 0o600)) // copied up, and the same to us

	s := stream(t, upper, options(true, future))
	diff(t, "diff", letters(compare(t, base, s).Items), []string{
		"T becomes-dir", "A becomes-dir/x", "T becomes-file", "D d/a", "A d/c", "M edit", "D gone",
		"M l", "A new", "A new/deep", "A new/deep/er", "A tree/w", "D tree/x", "D tree/z",
	})
	target := filepath.Join(t.TempDir(), "copy")
	copyTree(t, base, target)
	_, err := apply(t, target, s, workspace.ApplyOptions{})
	must(t, err)
	diff(t, "base", read(t, target), read(t, merged))
	diff(t, "diff afterwards", letters(compare(t, target, s).Items), []string{})
}

// A file that was copied up and that the host deleted meanwhile is a conflict;
// one that the agent made is not.
func TestCopiedUpAndDeletedOnTheHost(t *testing.T) {
	privateMounts(t)
	base := t.TempDir()
	tree{"old": "1"}.write(t, base)
	merged, upper := overlay(t, base)
	tree{"old": "2", "made": "3"}.write(t, merged)
	s := stream(t, upper, options(true, past))
	other := t.TempDir() // changed since, and old is not in it
	res, err := apply(t, other, s, workspace.ApplyOptions{})
	if err == nil || len(res.Conflicts) != 1 || res.Conflicts[0].Item.Path != "old" {
		t.Fatalf("Apply = %+v, %v, want a conflict of old", res.Conflicts, err)
	}
	_, err = apply(t, other, s, workspace.ApplyOptions{Paths: []string{"."}, Force: true})
	must(t, err)
	diff(t, "base", read(t, other), tree{"old": "2", "made": "3"})

	// Nothing was deleted from a directory that has not changed: the agent
	// moved the file there.
	_, err = apply(t, t.TempDir(), stream(t, upper, options(true, future)), workspace.ApplyOptions{})
	must(t, err)
}

// names from which properties build paths: some sort around the slash.
var someNames = []string{"a", "b", "a-", "a.", "é", "x\n"}

func drawPath(rt *rapid.T) string {
	n := rapid.IntRange(1, 3).Draw(rt, "depth")
	var parts []string
	for range n {
		parts = append(parts, rapid.SampledFrom(someNames).Draw(rt, "name"))
	}
	return strings.Join(parts, "/")
}

// mutate does one random thing to a tree. What is impossible is not done.
func mutate(rt *rapid.T, root string) {
	p := filepath.Join(root, drawPath(rt))
	switch rapid.IntRange(0, 10).Draw(rt, "op") {
	case 0, 1:
		os.MkdirAll(filepath.Dir(p), 0o755)
		os.WriteFile(p, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(rt, "content"), 0o644)
	case 2:
		os.MkdirAll(p, 0o755)
	case 3:
		os.RemoveAll(p)
	case 4:
		os.Symlink(rapid.SampledFrom([]string{"a", "b/a", "nowhere"}).Draw(rt, "target"), p)
	case 5:
		os.Chmod(p, os.FileMode(rapid.SampledFrom([]uint32{0o644, 0o755}).Draw(rt, "mode")))
	case 6:
		os.Rename(p, filepath.Join(root, drawPath(rt)))
	case 7:
		os.Link(p, filepath.Join(root, drawPath(rt)))
	case 8:
		os.Rename(p, filepath.Join(root, drawPath(rt)))
	case 9, 10:
		flags := rapid.SampledFrom([]uint{unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE}).Draw(rt, "flags")
		unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, filepath.Join(root, drawPath(rt)), flags)
	}
}

// Whatever is done in the view, applying the stream does to the base.
func TestOverlayRoundTrip(t *testing.T) {
	privateMounts(t)
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		round := filepath.Join(dir, fmt.Sprint(n))
		base, target, merged, upper, work := round+"/b", round+"/t", round+"/m", round+"/u", round+"/w"
		for _, d := range []string{base, merged, upper, work} {
			must(t, os.MkdirAll(d, 0o755))
		}
		for range rapid.IntRange(0, 15).Draw(rt, "before") {
			mutate(rt, base)
		}
		must(t, unix.Mount("overlay", merged, "overlay", 0,
			fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=on,metacopy=off,index=off", base, upper, work)))
		defer unix.Unmount(merged, unix.MNT_DETACH)
		for range rapid.IntRange(1, 15).Draw(rt, "after") {
			mutate(rt, merged)
		}
		copyTree(t, base, target)
		check(t, rt, streamOver(t, upper, base, options(true, future)), target, merged)
	})
}

// check applies a stream to target and wants it to be like merged.
func check(t *testing.T, rt *rapid.T, s []byte, target, merged string) {
	t.Helper()
	b, err := workspace.OpenBase(target)
	must(t, err)
	defer b.Close()
	var all []string
	for c, err := range workspace.Read(bytes.NewReader(s)) {
		must(t, err)
		all = append(all, c.Path)
	}
	res, err := workspace.Apply(t.Context(), b, bytes.NewReader(s), workspace.ApplyOptions{Allow: all})
	if err != nil {
		rt.Fatalf("Apply = %v; %+v", err, res.Conflicts)
	}
	if len(res.Held) > 0 {
		rt.Fatalf("held: %v", paths(res.Held))
	}
	got, want := read(t, target), read(t, merged)
	if len(got) != len(want) {
		rt.Fatalf("applied %v, want %v", got, want)
	}
	for p := range want {
		if got[p] != want[p] {
			rt.Fatalf("%q is %q, want %q", p, got[p], want[p])
		}
	}
}
