package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/long"
)

// TestVolumeImport: sandboxes work on one copy of a directory, which stays as it is until what they changed is taken.
func TestVolumeImport(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.edited(map[string]string{"src/a": "a\n", "src/b": "b\n", "doc/c": "c\n", ".git/hooks/x": "x\n", "todo": "t\n"})
		if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := h.run(nil, "volume", "import", dir, "tree"); r.code != 0 || r.stdout != "tree\n" || !strings.Contains(r.stderr, "left out: pipe: is a fifo") {
			t.Fatalf("import: %+v", r)
		}
		for _, name := range []string{"one", "two"} {
			h.ok("create", "--name", name, "--isolation", wall, "--volume", "tree:/workspace")
		}
		h.ok("exec", "one", "--", "sh", "-c", "echo more >>src/a && rm src/b && echo x >>.git/hooks/x")
		h.ok("exec", "two", "--", "sh", "-c", "cat src/a && mv todo AGENTS.md && mv doc docs && mkdir new && echo n >new/n && ln -s ../src new/l")
		if got := here(t, dir); got != "./.git/hooks/x:x\n./doc/c:c\n./src/a:a\n./src/b:b\n./todo:t\n" {
			t.Errorf("the directory before:\n%s", got)
		}
		const want = "A  AGENTS.md  [held: an AI agent on the host takes orders from it]\n" +
			"D  todo  [held: it is AGENTS.md in the sandbox, which is not taken with it]\nM  .git/hooks/x  [held: git runs or obeys it on the host]\nD  doc  (removes 1 entry)\nA  docs/\nR  doc/c -> docs/c\nA  new/\nA  new/l -> ../src\nA  new/n\nM  src/a\nD  src/b\n"
		for _, args := range [][]string{{"volume", "diff", "--names", "tree"}, {"diff", "--names", "one"}} {
			if got := h.run(nil, args...).stdout; !sameNames(got, want) {
				t.Errorf("%s:\n%s\nwant:\n%s", args, got, want)
			}
		}
		h.ok("workspace", "lock", "two")
		h.ok("volume", "apply", "tree", "new", "src")
		h.ok("workspace", "unlock", "two")
		if got := here(t, dir); got != "./.git/hooks/x:x\n./doc/c:c\n./new/n:n\n./src/a:a\nmore\n./todo:t\n" {
			t.Errorf("the directory after a part was taken:\n%s", got)
		}
		h.ok("stop", "one")
		h.ok("rm", "-f", "two")
		h.ok("apply", "one")
		if got := here(t, dir); got != "./.git/hooks/x:x\n./docs/c:c\n./new/n:n\n./src/a:a\nmore\n./todo:t\n" {
			t.Errorf("the directory after all was taken:\n%s", got)
		}
		if r := h.run(nil, "volume", "diff", "--names", "tree"); !strings.Contains(r.stdout, "M  .git/hooks/x") || strings.Count(r.stdout, "\n") != 3 {
			t.Errorf("what is left:\n%s", r.stdout)
		}
		if r := h.run(nil, "volume", "export", "tree", dir); r.code != 125 || !strings.Contains(r.stderr, "there is something already") {
			t.Errorf("an export over the directory: %d, %q", r.code, r.stderr)
		}
		volumeConflicts(t, h, dir)
		h.ok("volume", "export", "tree", filepath.Join(h.dir, "out"))
		if got := here(t, filepath.Join(h.dir, "out")); got != "./.git/hooks/x:x\nx\n./AGENTS.md:t\n./docs/c:c\n./new/n:n\n./src/a:a\nmore\ntheirs\n" {
			t.Errorf("exported:\n%s", got)
		}
		h.ok("rm", "-f", "one")
		h.ok("volume", "rm", "tree")
	})
}

// sameNames reports whether two texts have the same lines.
func sameNames(a, b string) bool {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// volumeConflicts has a file change in the directory and in the volume, whose sandbox is stopped.
func volumeConflicts(t *testing.T, h *home, dir string) {
	t.Helper()
	h.ok("start", "one")
	h.ok("exec", "one", "--", "sh", "-c", "echo theirs >>src/a")
	h.edit(dir, map[string]string{"src/a": "mine\n"})
	r := h.run(nil, "volume", "apply", "tree")
	if r.code != 125 || !strings.Contains(r.stderr, "src/a: it changed on the host") || !strings.Contains(r.stderr, "carboy volume apply --force tree src/a") {
		t.Errorf("a conflict: %d, %q", r.code, r.stderr)
	}
}

// TestVolumeImportRefused: what can't be copied makes no volume.
func TestVolumeImportRefused(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.edited(map[string]string{"a": "a\n"})
		h.ok("volume", "create", "empty")
		for _, tt := range []struct{ args, says string }{
			{"import " + dir + " empty", "the name is taken"},
			{"import " + dir + "/none tree", "no such directory"},
			{"import " + dir + "/a tree", "a directory"},
			{"import /proc/1 tree", "/proc/1"},
			{"import " + dir + " a/b", "not a volume's name"},
			{"diff empty", "it began empty"},
			{"apply empty", "it began empty"},
			{"diff none", "not found"},
			{"export none " + dir + "/out", "not found"},
		} {
			r := h.run(nil, append([]string{"volume"}, strings.Fields(tt.args)...)...)
			if r.code != 125 || !strings.Contains(r.stderr, tt.says) {
				t.Errorf("volume %s: %d, %q", tt.args, r.code, r.stderr)
			}
		}
		if got := h.ok("volume", "ls", "--json"); strings.Contains(got, `"tree"`) {
			t.Errorf("a volume is there:\n%s", got)
		}
	})
}

// TestVolumeImportTooLarge: a copy that doesn't fit makes no volume, and nothing of it stays.
func TestVolumeImportTooLarge(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := h.edited(map[string]string{"a": strings.Repeat("text\n", 8<<20)})
	r := h.run(nil, "volume", "import", "--size", "16m", dir, "tree")
	if r.code != 125 || !strings.Contains(r.stderr, "is more than it can hold, which is 16m") || !strings.Contains(r.stderr, "--size") {
		t.Errorf("import: %d, %q", r.code, r.stderr)
	}
	h.noVolumes(t)
}

// noVolumes wants nothing below the directory of volumes.
func (h *home) noVolumes(t *testing.T) {
	t.Helper()
	var left []string
	until(t, func() bool {
		left = nil
		entries, err := os.ReadDir(filepath.Join(h.dir, "state/carboy/volumes"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				left = append(left, e.Name())
			}
		}
		return len(left) == 0
	})
}

// TestVolumeImportKilled: a daemon that is killed in the midst of a copy leaves a whole volume or none, and the name is free.
func TestVolumeImportKilled(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := h.edited(manyFiles(long.Rounds(400, 4000)))
	for _, at := range long.Moments(4, 16, 60*time.Millisecond) {
		h.cutShort(at, "volume", "import", dir, "tree")
		if r := h.run(nil, "volume", "diff", "tree"); r.code == 0 && r.stdout != "" || r.code != 0 && !strings.Contains(r.stderr, "not found") {
			t.Errorf("killed at %v: %d, %q, %q", at, r.code, r.stdout, r.stderr)
		}
		h.run(nil, "volume", "rm", "tree")
		h.noVolumes(t)
	}
	h.ok("volume", "import", dir, "tree")
	h.ok("volume", "rm", "tree")
}
