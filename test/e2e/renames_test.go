package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/workspace"
	"github.com/carboy-sandbox/carboy/test/long"
)

// renameAll renames by the system call itself, with each of its flags, and as Python does.
const renameAll = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def rename(a, b, flags):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), flags):
        return os.strerror(ctypes.get_errno())
    return "ok"
print(rename("src", "lib", 0), rename("other", "lib", 1), rename("other", "taken", 1), rename("one", "two", 2), rename("file", "two/x", 2), sep=", ")
os.rename("deep/er", "er")
`

// found lists files with their contents, in the working directory.
const found = "find . -type f -exec grep -H '' {} + | sort"

// here is found of a directory of this machine.
func here(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(p)
		lines = append(lines, "."+strings.TrimPrefix(p, dir)+":"+string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// TestRenames: in a view all is renamed as in the directory itself, a diff shows it as git does, and an apply
// makes the directory the same, of a sandbox that runs, that is paused and that is stopped.
func TestRenames(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.edited(map[string]string{
			"src/a": "a\n", "src/sub/b": "b\n", "other/o": "o\n", "one/x": "1\n", "two/y": "2\n", "file": "f\n", "deep/er/z": "z\n",
		})
		h.ok("create", "--name", "web", "--isolation", wall, "--workspace", dir)
		inside := func() string { return h.ok("exec", "web", "--", "sh", "-c", found) }
		if got := h.ok("exec", "web", "--", "python3", "-c", renameAll); got != "ok, File exists, ok, ok, ok\n" {
			t.Errorf("renames: %q", got)
		}
		const want = "./er/z:z\n./file:1\n./lib/a:a\n./lib/sub/b:b\n./one/y:2\n./taken/o:o\n./two/x:f\n"
		if got := inside(); got != want {
			t.Errorf("inside:\n%s", got)
		}
		names := h.run(nil, "diff", "--names", "web").stdout
		for _, line := range []string{"R  src/a -> lib/a\n", "R  other/o -> taken/o\n", "R  deep/er/z -> er/z\n"} {
			if !strings.Contains(names, line) {
				t.Errorf("the diff lacks %q:\n%s", line, names)
			}
		}
		h.ok("apply", "web")
		h.ok("exec", "web", "--", "sh", "-c", "mv lib library && echo more >>library/a")
		h.ok("pause", "web")
		h.ok("apply", "web")
		h.ok("start", "web")
		const later = "./er/z:z\n./file:1\n./library/a:a\n./library/a:more\n./library/sub/b:b\n./one/y:2\n./taken/o:o\n./two/x:f\n"
		if got := inside(); got != later {
			t.Errorf("inside after a pause:\n%s", got)
		}
		h.ok("stop", "web")
		h.ok("apply", "web")
		if got := here(t, dir); got != strings.ReplaceAll(later, "./library/a:a\n./library/a:more", "./library/a:a\nmore") {
			t.Errorf("applied:\n%s", got)
		}
		if r := h.run(nil, "diff", "--names", "web"); r.stdout != "" {
			t.Errorf("what is left:\n%s", r.stdout)
		}
		// What is added here later is nobody's change.
		h.edit(dir, map[string]string{"library/mine": "m\n", "er/mine": "m\n"})
		if r := h.run(nil, "diff", "--names", "web"); r.stdout != "" {
			t.Errorf("what was added here is a change:\n%s", r.stdout)
		}
		h.ok("rm", "-f", "web")
	})
}

// manyFiles are enough that a directory of them is not made whole in a moment.
func manyFiles(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("d0/%d/%d", i%7, i)] = fmt.Sprintln("text", i)
	}
	return files
}

// TestKilledWhileMadeWhole: a daemon that is killed at any moment of an apply leaves in the sandbox what was
// there, and the next apply takes all.
func TestKilledWhileMadeWhole(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		dir := h.edited(manyFiles(long.Rounds(400, 3000)))
		h.ok("create", "--name", "web", "--isolation", wall, "--workspace", dir)
		sum := func() string { return h.ok("exec", "web", "--", "sh", "-c", "cd d*/ && "+found+" | md5sum") }
		want := sum()
		for i, at := range long.Moments(4, 16, 120*time.Millisecond) {
			h.ok("exec", "web", "--", "mv", fmt.Sprint("d", i), fmt.Sprint("d", i+1))
			stopped := i%2 == 1
			if stopped {
				h.ok("stop", "web")
			}
			h.cutShort(at, "apply", "web")
			h.ok("start", "web")
			if got := sum(); got != want {
				t.Fatalf("killed at %v: %s, want %s", at, got, want)
			}
			h.ok("stop", "web")
			h.ok("apply", "web")
			h.ok("start", "web")
			if got := sum(); got != want {
				t.Fatalf("killed at %v, and applied: %s, want %s", at, got, want)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != fmt.Sprint("d", i+1) {
				t.Fatalf("killed at %v, and applied: %v, %v", at, entries, err)
			}
		}
		h.ok("rm", "-f", "web")
	})
}

// TestRenamesWhileApplied: a sandbox in which directories are renamed without an end loses nothing to an apply, and
// nor does the directory.
func TestRenamesWhileApplied(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		files := map[string]string{}
		for i := range 40 {
			files[fmt.Sprintf("%c/%c/f%d", 'a'+i%3, 'a'+i%5, i)] = fmt.Sprintln("text", i)
		}
		dir := h.edited(files)
		h.ok("create", "--name", "web", "--isolation", wall, "--workspace", dir)
		h.ok("exec", "-d", "web", "--", "sh", "-c", `while ! test -e /tmp/enough; do
			mv a b/x; mv b/x/b c/y; mv c z; mv z/y b/x/b; mv z c; mv b/x a
		done; touch /tmp/done`)
		applied := 0
		for range long.Rounds(6, 40) {
			r := h.run(nil, "apply", "web")
			switch {
			case r.code == 0:
				applied++
				for _, text := range files {
					if !strings.Contains(here(t, dir), text) {
						t.Errorf("an apply lost %q", text)
					}
				}
			case !strings.Contains(r.stderr, "renamed in the sandbox") && !strings.Contains(r.stderr, "try again") && !strings.Contains(r.stderr, "conflict") && !strings.Contains(r.stderr, "changed"):
				t.Errorf("apply: %+v", r)
			}
		}
		t.Logf("%d applies", applied)
		h.ok("exec", "web", "--", "sh", "-c", "touch /tmp/enough; while ! test -e /tmp/done; do :; done")
		h.ok("stop", "web")
		h.ok("start", "web")
		texts := h.ok("exec", "web", "--", "sh", "-c", "find . -type f -exec cat {} +")
		for _, text := range files {
			if !strings.Contains(texts, text) {
				t.Errorf("inside, %q was lost", text)
			}
		}
		h.ok("stop", "web")
		h.ok("apply", "web")
		for _, text := range files {
			if !strings.Contains(here(t, dir), text) {
				t.Errorf("the directory lost %q", text)
			}
		}
		h.ok("rm", "-f", "web")
	})
}

// TestKilledApplies: an apply that is killed at any moment is taken up by the next, although the sandbox goes on meanwhile, and
// nobody is told that the host changed.
func TestKilledApplies(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		files := map[string]string{}
		for i := range 24 {
			files[fmt.Sprintf("%c/%c/f%d", 'a'+i%3, 's'+i%2, i)] = fmt.Sprintln("text", i)
		}
		dir := h.edited(files)
		h.ok("create", "--name", "web", "--isolation", wall, "--workspace", dir)
		h.ok("exec", "-d", "web", "--", "sh", "-c", `i=0; while ! test -e /tmp/enough; do
			i=$((i+1)); mv a x; mv b x/b; mv x c/x; echo $i >c/x/s/f0; ln -sfn f$i c/link
			rm -rf new; mkdir -p new/d; echo $i >new/d/f; mv c/x/b b; mv c/x a; mv a/s a/u; mv a/u a/s
		done; touch /tmp/done`)
		for _, at := range long.Moments(6, 40, 20*time.Millisecond) {
			ctx, cancel := context.WithTimeout(t.Context(), at)
			_ = h.command(ctx, "apply", "web").Run()
			cancel()
			r := h.run(nil, "apply", "web")
			for r.code != 0 && strings.Contains(r.stderr, "try again") {
				r = h.run(nil, "apply", "web")
			}
			if r.code != 0 {
				t.Errorf("after one that was killed at %v: %+v", at, r)
			}
		}
		h.ok("exec", "web", "--", "sh", "-c", "touch /tmp/enough; while ! test -e /tmp/done; do :; done")
		want := h.ok("exec", "web", "--", "sh", "-c", found)
		h.ok("stop", "web")
		h.ok("apply", "web")
		if got := here(t, dir); got != want {
			t.Errorf("the directory has\n%s, the sandbox\n%s", got, want)
		}
		h.ok("rm", "-f", "web")
	})
}

// TestReplacedHere: a sandbox lists a directory that it has renamed, although the user has put another in the place of the one
// that it was, and an apply by force takes that away.
func TestReplacedHere(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		dir := h.edited(map[string]string{"dir/a": "a\n"})
		h.ok("create", "--name", "web", "--isolation", wall, "--workspace", dir)
		h.ok("exec", "web", "--", "sh", "-c", "mv dir moved; echo inside >moved/z")
		h.ok("stop", "web")
		if err := os.Rename(filepath.Join(dir, "dir"), filepath.Join(dir, "kept")); err != nil {
			t.Fatal(err)
		}
		h.edit(dir, map[string]string{"dir/z": "here\n"})
		h.ok("start", "web")
		if got := h.ok("exec", "web", "--", "ls", "moved"); !strings.Contains(got, "z\n") {
			t.Errorf("before: %q", got)
		}
		h.ok("apply", "--force", "web", ".")
		if got := h.ok("exec", "web", "--", "sh", "-c", "ls moved; cat moved/z"); !strings.Contains(got, "z\ninside\n") {
			t.Errorf("inside: %q", got)
		}
		h.ok("stop", "web")
		h.ok("apply", "web")
		if _, err := os.Lstat(filepath.Join(dir, "dir")); err == nil {
			t.Error("what the sandbox has moved away is in the directory still")
		}
		h.ok("rm", "-f", "web")
	})
}

// TestRenamedHere: a file that was changed in the sandbox is there after the directory's user renamed the one
// that it is a copy of, and so is that one.
func TestRenamedHere(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) { // an ordinary user's views are copies
		h := newHome(t)
		dir := h.edited(map[string]string{"src/f": "f\n", "dir/a": "a\n", "dir/sub/b": "b\n"})
		h.ok("create", "--name", "web", "--isolation", wall, "--workspace", dir)
		h.ok("exec", "web", "--", "sh", "-c", "for f in src/f dir/a dir/sub/b; do echo edited >>$f; done")
		h.ok("stop", "web")
		for from, to := range map[string]string{"src/f": "src/g", "dir": "moved"} {
			if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
				t.Fatal(err)
			}
		}
		h.ok("start", "web")
		const want = "./dir/a:a\n./dir/a:edited\n./dir/sub/b:b\n./dir/sub/b:edited\n" +
			"./moved/a:a\n./moved/sub/b:b\n./src/f:edited\n./src/f:f\n./src/g:f\n"
		if got := h.ok("exec", "web", "--", "sh", "-c", "cat src/g moved/a moved/sub/b >/dev/null && "+found); got != want {
			t.Errorf("inside:\n%s", got)
		}
		h.ok("rm", "-f", "web")
	})
}

// TestHeldWhileApplied: who takes changes may keep the sandbox's commands still until that is done.
func TestHeldWhileApplied(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		dir := h.edited(map[string]string{"a/f": "f\n"})
		counted := filepath.Join(h.dir, "counted")
		h.edit(counted, map[string]string{"count": "\n"})
		h.ok("create", "--name", "web", "--isolation", wall, "--workspace", dir, "--mount", counted+":/count")
		h.ok("exec", "-d", "web", "--", "sh", "-c", "while mv a b && mv b a; do echo >>/count/count; done")
		count := func() int64 {
			fi, err := os.Stat(filepath.Join(counted, "count"))
			if err != nil {
				t.Fatal(err)
			}
			return fi.Size()
		}
		goesOn := func() {
			before := count()
			until(t, func() bool { return count() > before })
		}
		goesOn()
		stream, err := h.api().Changes(t.Context(), "web", client.ChangesOptions{Whole: true, Hold: true})
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for _, err := range workspace.Read(stream) {
			if err != nil {
				t.Fatal(err)
			}
		}
		before := count()
		h.ok("ls")
		if after := count(); after != before {
			t.Errorf("it went on while it was held: %d, then %d", before, after)
		}
		_ = stream.Close()
		goesOn()
		h.ok("rm", "-f", "web")
	})
}
