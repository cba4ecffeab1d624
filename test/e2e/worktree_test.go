package e2e

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// contentsOf is what a directory holds: each file by its digest.
func contentsOf(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		fmt.Fprintf(&all, "%s %x\n", p, sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestWorktreeInside: git works in a sandbox whose workspace is a linked worktree or a submodule. What it
// does there is no change of the tree, and neither that nor an apply writes to the repository.
func TestWorktreeInside(t *testing.T) {
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		h.edit(h.dir, map[string]string{
			".gitconfig": "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n",
			"lib/a.txt":  "one\n", "main/a.txt": "one\n", "evil/a.txt": "one\n",
		})
		for _, dir := range []string{"lib", "main"} {
			at := filepath.Join(h.dir, dir)
			h.git(at, "init", "-q")
			h.git(at, "add", ".")
			h.git(at, "commit", "-q", "-m", "one")
		}
		h.git(h.dir+"/main", "submodule", "--quiet", "add", h.dir+"/lib", "lib")
		h.git(h.dir+"/main", "worktree", "add", "-q", h.dir+"/linked", "-b", "topic")
		h.edit(h.dir, map[string]string{"evil/.git": "gitdir: " + h.dir + "/main/.git/worktrees/linked\n"})
		common := h.dir + "/main/.git"
		before := contentsOf(t, common)
		for dir, branch := range map[string]string{"linked": "topic", "main/lib": "main"} {
			h.worktreeInside(t, wall, filepath.Join(h.dir, dir), branch)
			if now := contentsOf(t, common); now != before {
				t.Errorf("%s: the repository was written to:\n%s\nbefore:\n%s", dir, now, before)
			}
		}
		// A tree that names a repository which does not know it is shown nothing of it.
		r := h.run(nil, "run", "--isolation", wall, "--workspace", h.dir+"/evil", "--", "sh", "-c", "git status 2>&1; ls -d /var/lib/carboy/git "+common)
		if !strings.Contains(r.stderr, "git finds no repository inside: ") || !strings.Contains(r.stderr, "has no worktree here") ||
			!strings.Contains(r.stdout, "fatal: not a git repository") || strings.Contains(r.stdout, "carboy/git\n") {
			t.Errorf("evil: %+v", r)
		}
		// Nor is one shown where the sandbox works on the tree itself.
		r = h.run(nil, "run", "--isolation", wall, "--workspace", h.dir+"/linked:ro", "--", "true")
		if r.code != 0 || !strings.Contains(r.stderr, "git finds no repository inside: it lies in "+common) || !strings.Contains(r.stderr, "without :ro") {
			t.Errorf("read-only: %+v", r)
		}
	})
}

// worktreeInside works in a tree whose repository lies elsewhere.
func (h *home) worktreeInside(t *testing.T, wall, dir, branch string) {
	t.Helper()
	args := []string{"--isolation", wall, "--workspace", dir}
	r := h.run(nil, append(append([]string{"run"}, args...), "--", "sh", "-c", "git status --porcelain --branch && git log -1 --format=%s")...)
	if wall == "process" { // which has no root inside
		if r.code != 128 || !strings.Contains(r.stderr, "git finds no repository inside: its place, ") || !strings.Contains(r.stderr, "--isolation gvisor") {
			t.Errorf("%s: %+v", dir, r)
		}
		return
	}
	if want := "## " + branch; r.code != 0 || !strings.HasPrefix(r.stdout, want) || !strings.HasSuffix(r.stdout, "\none\n") || strings.Count(r.stdout, "\n") != 2 {
		t.Errorf("%s: %+v", dir, r)
	}
	if strings.Contains(r.stderr, "carboy diff") || !strings.Contains(r.stderr, "its objects are shown inside too, read-only") {
		t.Errorf("%s: a command that changes nothing says: %s", dir, r.stderr)
	}
	name := h.create(args...)
	host := h.git(dir, "rev-parse", "HEAD")
	h.ok("exec", name, "--", "sh", "-c",
		"echo new >new && git add new && git -c user.name=A -c user.email=a@b commit -q -m two && git fsck --strict && ! touch /var/lib/carboy/git/objects/x 2>/dev/null")
	if got := h.ok("diff", "--names", name); strings.TrimSpace(got) != "A  new" {
		t.Errorf("%s: diff %q", dir, got)
	}
	h.ok("stop", name)
	h.ok("start", name)
	if got := h.ok("exec", name, "--", "git", "log", "--format=%s"); got != "two\none\n" {
		t.Errorf("%s: log %q", dir, got)
	}
	if got := h.git(dir, "rev-parse", "HEAD"); got != host {
		t.Errorf("%s: the host's HEAD is %s, was %s", dir, got, host)
	}
	h.ok("apply", name)
	if b, err := os.ReadFile(filepath.Join(dir, "new")); err != nil || string(b) != "new\n" {
		t.Errorf("%s: new is %q, %v", dir, b, err)
	}
	if err := os.Remove(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	h.ok("rm", "-f", name)
}
