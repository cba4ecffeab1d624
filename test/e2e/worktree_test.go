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
// does there is no change of the tree, and neither that nor an apply writes to the repository, but a fetch
// takes its commits.
func TestWorktreeInside(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		common := h.withWorktree()
		before := contentsOf(t, common)
		for dir, branch := range map[string]string{"linked": "topic", "main/lib": "main"} {
			h.worktreeInside(t, wall, filepath.Join(h.dir, dir), branch)
			if now := contentsOf(t, common); now != before {
				t.Errorf("%s: the repository was written to:\n%s\nbefore:\n%s", dir, now, before)
			}
			h.worktreeTaken(t, wall, filepath.Join(h.dir, dir))
			before = contentsOf(t, common)
		}
		// None is shown where the sandbox works on the tree itself.
		r := h.run(nil, "run", "--isolation", wall, "--workspace", h.dir+"/linked:ro", "--", "true")
		if r.code != 0 || !strings.Contains(r.stderr, "git finds no repository inside: it lies in "+common) || !strings.Contains(r.stderr, "without :ro") {
			t.Errorf("read-only: %+v", r)
		}
		// Who shows it is not stopped, nor told anything.
		r = h.run(nil, "run", "--isolation", wall, "--workspace", h.dir+"/linked", "--mount", common+":"+common+":ro", "--", "git", "log", "-1", "--format=%s")
		if r.code != 0 || r.stdout != "one\n" || strings.Contains(r.stderr, "git finds no repository") {
			t.Errorf("shown by a mount: %+v", r)
		}
	})
}

// TestWorktreeInsideWithoutRoot: an ordinary user's git works there as root's does.
func TestWorktreeInsideWithoutRoot(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newWorld(t).ordinaryHome(carboy)
		h.env = append(h.env, "HOME="+h.dir)
		common := h.withWorktree()
		before := contentsOf(t, common)
		h.worktreeInside(t, wall, filepath.Join(h.dir, "linked"), "topic")
		if now := contentsOf(t, common); now != before {
			t.Errorf("the repository was written to:\n%s\nbefore:\n%s", now, before)
		}
	})
}

// TestWorktreeOfAnother: a tree whose .git leads to what does not say that the tree is its own is shown
// nothing of it, and a line says so.
func TestWorktreeOfAnother(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newHome(t)
		common := h.withWorktree()
		made := "evil/made/.git/worktrees/x/"
		h.edit(h.dir, map[string]string{"secret/key": "key\n", "evil/a": "one\n", made + "HEAD": "ref: refs/heads/main\n", made + "gitdir": h.dir + "/evil/tree/.git\n"})
		tests := []struct{ name, git, link, says string }{
			{"another's", "gitdir: " + common + "/worktrees/linked\n", "", "has no worktree here"},
			{"the repository itself", "gitdir: " + common + "\n", "", "does not say that this is its tree"},
			{"a link to it", "", common, "does not say that this is its tree"},
			{"the root directory", "gitdir: /\n", "", "which is no repository"},
			{"a directory that is none", "gitdir: " + h.dir + "/secret\n", "", "which is no repository"},
			{"a link to one", "", h.dir + "/secret", "which is no repository"},
			{"a loop", "", ".git", "names"},
			{"one made up, of a repository elsewhere", "gitdir: ../made/.git/worktrees/x\n", "", "has no worktree here"},
		}
		for i, tt := range tests {
			dir := fmt.Sprintf("%s/evil/%d", h.dir, i)
			if strings.Contains(tt.git, "made") {
				dir = h.dir + "/evil/tree"
				h.edit(h.dir, map[string]string{made + "commondir": common + "\n"})
			}
			h.edit(dir, map[string]string{"a": "one\n", ".git": tt.git + "\n"})
			if tt.link != "" {
				h.edit(dir, map[string]string{".git": ""})
				if err := os.Symlink(tt.link, dir+"/.git"); err != nil {
					t.Fatal(err)
				}
			}
			r := h.run(nil, "run", "--isolation", wall, "--workspace", dir, "--", "sh", "-c", "git log 2>&1; ls -d /var/lib/carboy/git "+common+" "+h.dir+"/secret; true")
			if r.code != 0 || !strings.Contains(r.stderr, "git finds no repository inside: ") || !strings.Contains(r.stderr, tt.says) ||
				!strings.HasPrefix(r.stdout, "fatal: ") || strings.Contains(r.stdout, "\n/") {
				t.Errorf("%s: %+v", tt.name, r)
			}
		}
	})
}

// withWorktree makes a repository in main with the submodule lib and the worktree linked beside it, and
// returns where it lies.
func (h *home) withWorktree() (common string) {
	h.t.Helper()
	h.edit(h.dir, map[string]string{
		".gitconfig": "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n",
		"lib/a.txt":  "one\n", "main/a.txt": "one\n",
	})
	for _, dir := range []string{"lib", "main"} {
		at := filepath.Join(h.dir, dir)
		h.git(at, "init", "-q")
		h.git(at, "add", ".")
		h.git(at, "commit", "-q", "-m", "one")
	}
	h.git(h.dir+"/main", "submodule", "--quiet", "add", h.dir+"/lib", "lib")
	h.git(h.dir+"/main", "worktree", "add", "-q", h.dir+"/linked", "-b", "topic")
	return h.dir + "/main/.git"
}

// worktreeInside works in a tree whose repository lies elsewhere.
func (h *home) worktreeInside(t *testing.T, wall, dir, branch string) {
	t.Helper()
	args := []string{"--isolation", wall, "--workspace", dir}
	r := h.run(nil, append(append([]string{"run"}, args...), "--", "sh", "-c", "git status --porcelain --branch && git log -1 --format=%s")...)
	if want := "## " + branch; r.code != 0 || !strings.HasPrefix(r.stdout, want) || !strings.HasSuffix(r.stdout, "\none\n") || strings.Count(r.stdout, "\n") != 2 {
		t.Errorf("%s: %+v", dir, r)
	}
	if strings.Contains(r.stderr, "carboy diff") || !strings.Contains(r.stderr, "its objects are shown inside too, read-only") {
		t.Errorf("%s: a command that changes nothing says: %s", dir, r.stderr)
	}
	name := h.create(args...)
	host := h.git(dir, "rev-parse", "HEAD")
	h.ok("exec", name, "--", "sh", "-c", "git config user.name A && git config user.email a@b && echo new >new && git add new && git commit -q -m two && "+
		"git fsck --strict && ! touch /var/lib/carboy/git/objects/x 2>/dev/null && "+
		"git switch -q -c other && echo more >>a.txt && git stash -q && git stash pop -q && git diff --quiet new && ! git diff --quiet && git checkout -q a.txt")
	if got := h.ok("diff", "--names", name); strings.TrimSpace(got) != "A  new" {
		t.Errorf("%s: diff %q", dir, got)
	}
	h.ok("stop", name)
	h.ok("start", name)
	if got := h.ok("exec", name, "--", "git", "log", "--format=%s", "other", branch); got != "two\none\n" {
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

// worktreeTaken commits in a sandbox, and takes that as refs of the repository.
func (h *home) worktreeTaken(t *testing.T, wall, dir string) {
	t.Helper()
	name := h.create("--isolation", wall, "--workspace", dir)
	h.ok("exec", name, "--", "sh", "-c", "git switch -q -c kept && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m taken")
	if r := h.run(nil, "fetch", name); r.code != 0 || h.git(dir, "log", "-1", "--format=%s", "refs/carboy/"+name+"/kept") != "taken" {
		t.Errorf("%s: fetch: %+v", dir, r)
	}
	h.ok("rm", "-f", name)
}
