package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// repository makes one of the home's own user: a commit on main, a reflog, packed refs
// and a work tree with changes.
func (h *home) repository() string {
	h.t.Helper()
	dir := h.edited(map[string]string{"a.txt": "one\n", "b.txt": "one\n"})
	h.gitIn(dir, "init", "-q", "-b", "main")
	h.gitIn(dir, "config", "user.name", "Me")
	h.gitIn(dir, "config", "user.email", "me@git.example")
	h.gitIn(dir, "add", "-A")
	h.gitIn(dir, "commit", "-q", "-m", "first")
	h.gitIn(dir, "branch", "kept")
	h.gitIn(dir, "tag", "v0")
	h.gitIn(dir, "pack-refs", "--all")
	h.edit(dir, map[string]string{"b.txt": "changed\n"})
	return dir
}

// gitIn runs git as whoever the home's user is.
func (h *home) gitIn(dir string, args ...string) string {
	h.t.Helper()
	owner, err := os.Stat(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + h.dir, "GIT_CONFIG_NOSYSTEM=1"}
	if uid := owner.Sys().(*syscall.Stat_t).Uid; int(uid) != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// contents is each file of a directory, with what is in it.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		all[p] = fi.Mode().String()
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			all[p] += fmt.Sprintf(" %x %v", sha256.Sum256(b), fi.ModTime())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// madeSince are the paths that are new; what was there must be as it was.
func madeSince(t *testing.T, dir string, before map[string]string) (made []string) {
	t.Helper()
	after := contents(t, dir)
	for p, was := range before {
		if after[p] != was {
			t.Errorf("%s: %q, and was %q", p, after[p], was)
		}
		delete(after, p)
	}
	return slices.Sorted(maps.Keys(after))
}

const inNewCommits = `git config --global user.name A; git config --global user.email a@git.example
git switch -q -c fix && echo two >a.txt && git commit -q -m 'say two' a.txt && echo x >new.txt && git add new.txt &&
git commit -q -m "$(printf 'add \033[31mnew')" && git config core.fsmonitor 'touch /tmp/ran' && printf '#!/bin/sh\ntouch ran\n' >.git/hooks/reference-transaction && chmod +x .git/hooks/reference-transaction`

// TestFetch: two commits are taken, and of the repository nothing else changes by a byte;
// then they can be merged.
func TestFetch(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.repository()
		h.ok("create", "--name", "otter", "--isolation", wall, "--workspace", dir)
		h.ok("exec", "otter", "--", "sh", "-c", inNewCommits)
		before := contents(t, dir)
		r := h.run(nil, "fetch", "otter")
		if r.code != 0 || !strings.Contains(r.stdout, "fix  2 commits, new  refs/carboy/otter/fix\n") ||
			!strings.Contains(r.stdout, `add \x1b[31mnew`) || !strings.Contains(r.stderr, "git merge refs/carboy/otter/fix") {
			t.Fatalf("fetch: %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		git := filepath.Join(dir, ".git")
		for _, p := range madeSince(t, dir, before) {
			if !strings.HasPrefix(p, git+"/objects/pack/pack-") && p != git+"/refs/carboy" && !strings.HasPrefix(p, git+"/refs/carboy/") {
				t.Errorf("%s was made", p)
			}
		}
		var again struct {
			Refs []struct{ Ref, State string }
		}
		if err := json.Unmarshal([]byte(h.ok("fetch", "--json", "otter")), &again); err != nil || len(again.Refs) != 1 || again.Refs[0].State != "same" {
			t.Errorf("again: %v, %v", again, err)
		}
		h.gitIn(dir, "merge", "-q", "refs/carboy/otter/fix")
		if b, err := os.ReadFile(filepath.Join(dir, "a.txt")); string(b) != "two\n" {
			t.Errorf("merged: %q, %v", b, err)
		}
		h.gitIn(dir, "fsck", "--strict")
		h.ok("rm", "-f", "otter")
		if refs := h.gitIn(dir, "for-each-ref", "refs/carboy"); !strings.Contains(refs, "refs/carboy/otter/fix") {
			t.Errorf("after rm: %q", refs)
		}
	})
}

// hostile are repositories that an agent makes, and what is said of them.
var hostile = []struct{ name, script, says string }{
	{"git-directory", `e=$(git mktree </dev/null); printf "40000 .git\0$(echo $e | sed 's/../\\x&/g')" >/tmp/t; t=$(git hash-object -t tree -w --stdin --literally </tmp/t)`, "hasDotgit"},
	{"up", `e=$(git mktree </dev/null); printf "40000 ..\0$(echo $e | sed 's/../\\x&/g')" >/tmp/t; t=$(git hash-object -t tree -w --stdin --literally </tmp/t)`, "hasDotdot"},
	{"bad-mode", `b=$(echo x | git hash-object -w --stdin); printf "100666 a\0$(echo $b | sed 's/../\\x&/g')" >/tmp/t; t=$(git hash-object -t tree -w --stdin --literally </tmp/t)`, "badFilemode"},
	{"modules", `printf '[submodule "a"]\n\tpath = a\n\turl = -evil\n' >.gitmodules; git add .gitmodules; t=$(git write-tree)`, "gitmodulesUrl"},
	{"large", `truncate -s 101M /tmp/big; b=$(git -c core.bigFileThreshold=1m -c core.looseCompression=1 hash-object -w /tmp/big); t=$(printf "100644 blob $b\tbig\n" | git mktree)`, "a blob of 101 MiB, where 100 MiB may be"},
	{"lacks-a-blob", `t=$(printf "100644 blob $(echo gone | git hash-object --stdin)\ta\n" | git mktree --missing)`, "its git says"},
	{"evil-name", `t=$(git write-tree); c=$(git commit-tree -m x $t); mkdir -p .git/refs/heads; echo $c >"$(printf '.git/refs/heads/a\xe2\x80\xaeb')"`, "a character that none may have"},
}

// TestFetchRefuses: what is hostile is refused with words, and nothing is written.
func TestFetchRefuses(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newHome(t)
		dir := h.repository()
		h.ok("create", "--name", "otter", "--isolation", wall, "--workspace", dir)
		h.ok("exec", "otter", "--", "sh", "-c", "git config --global user.name A; git config --global user.email a@git.example")
		for _, tt := range hostile {
			h.ok("exec", "otter", "--", "bash", "-ec", tt.script+"\ngit update-ref refs/heads/"+tt.name+" $(git commit-tree -m x $t)")
			before := contents(t, dir)
			args := []string{"fetch", "otter", tt.name}
			if tt.name == "evil-name" { // which nobody would type: all are asked for
				args = args[:2]
			}
			r := h.run(nil, args...)
			if r.code != 125 || !strings.Contains(r.stderr, tt.says) {
				t.Errorf("%s: %d %s%s, want %q", tt.name, r.code, r.stdout, r.stderr, tt.says)
			}
			if made := madeSince(t, dir, before); len(made) > 0 {
				t.Errorf("%s: %q were made", tt.name, made)
			}
		}
	})
}

// TestCommitsTaken: what git keeps of commits is one line of a diff, and of no weight once
// the repository has the commits; a stash, which fetch does not take, is not forgotten.
func TestCommitsTaken(t *testing.T) {
	t.Parallel()
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.repository()
		h.ok("create", "--name", "otter", "--isolation", wall, "--workspace", dir)
		inside := func(script string) { h.ok("exec", "otter", "--", "sh", "-ec", script) }
		inside("git config --global user.name A; git config --global user.email a@git.example; echo two >a.txt; git commit -q -m two a.txt")
		r := h.run(nil, "diff", "--names", "otter")
		if r.stdout != "M  a.txt\n" || !strings.Contains(r.stderr, "files in which git keeps commits: carboy fetch otter takes commits") {
			t.Errorf("diff: %+v", r)
		}
		if out := h.ok("diff", "--names", "otter", ".git/refs"); !strings.Contains(out, ".git/refs/heads/") {
			t.Errorf("diff of .git/refs: %s", out)
		}
		h.ok("apply", "otter")
		remove := func(state, want string) {
			t.Helper()
			r := h.run(nil, "rm", "otter")
			if r.code == 0 || !strings.Contains(r.stderr, want) {
				t.Fatalf("rm with %s: %+v, want %q\n%s", state, r, want, h.ok("diff", "--names", "otter"))
			}
		}
		h.ok("stop", "otter")
		remove("commits", "it has commits that were not taken\nhint: carboy fetch otter takes them")
		h.ok("start", "otter")
		h.ok("fetch", "otter")
		inside("git pack-refs --all; echo three >c.txt; git add c.txt; git stash -q -- c.txt")
		h.ok("stop", "otter")
		remove("a stash", "it has commits that were not taken")
		h.ok("start", "otter")
		inside("git stash drop -q; git switch -q --detach; git pack-refs --all")
		h.ok("stop", "otter")
		h.ok("rm", "otter")
	})
}

// TestCommitsNotForgotten: work that git alone has is told before it is lost, wherever it is.
func TestCommitsNotForgotten(t *testing.T) {
	t.Parallel()
	const lost = "git switch -q -c fix; echo lost >a.txt; git commit -q -a -m lost; git switch -q main; git checkout -q HEAD -- b.txt"
	for name, tt := range map[string]struct {
		ignore, inside, want string
	}{
		"a branch":       {"", lost, "commits that were not taken"},
		"dots ignored":   {".*", lost, "commits that were not taken"},
		"git ignored":    {".git/", lost, "commits that were not taken"},
		"all ignored":    {"*\n!*.txt", lost, "commits that were not taken"},
		"autostash":      {"", `echo precious >a.txt; GIT_SEQUENCE_EDITOR="sed -i 1ibreak" git rebase -q -i --autostash --root`, "that were not taken"},
		"an older stash": {"", "echo 1 >a.txt; git stash -q; git stash store -q $(git rev-parse HEAD)", "commits that were not taken"},
		"a detached one": {"", "git switch -q --detach; echo x >a.txt; git commit -q -a -m x; git checkout -q main -- a.txt; git update-ref --no-deref HEAD HEAD", "that were not taken"},
		"nothing":        {"", "git switch -q -c same; git gc -q", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			dir := h.repository()
			h.gitIn(dir, "checkout", "-q", "HEAD", "--", "b.txt")
			if tt.ignore != "" {
				h.edit(dir, map[string]string{".gitignore": tt.ignore + "\n"})
				h.gitIn(dir, "add", "-f", ".gitignore")
				h.gitIn(dir, "commit", "-q", "-m", "ignore")
			}
			box := h.create("--isolation", "process", "--workspace", dir)
			h.ok("exec", box, "--", "sh", "-ec", "git config --global user.name A; git config --global user.email a@git.example; "+tt.inside)
			h.ok("stop", box)
			r := h.run(nil, "rm", box)
			if tt.want == "" && r.code != 0 || tt.want != "" && (r.code == 0 || !strings.Contains(r.stderr, tt.want)) {
				t.Errorf("rm: %+v, want %q", r, tt.want)
			}
			h.run(nil, "rm", "-f", box)
		})
	}
	t.Run("refs removed", func(t *testing.T) { // what was fetched, and nothing leads to any more
		h := newHome(t)
		dir := h.repository()
		h.gitIn(dir, "checkout", "-q", "HEAD", "--", "b.txt")
		h.ok("create", "--name", "mouse", "--isolation", "process", "--workspace", dir)
		h.ok("exec", "mouse", "--", "sh", "-ec", "git config --global user.name A; git config --global user.email a@git.example; "+lost)
		h.ok("fetch", "mouse")
		h.gitIn(dir, "update-ref", "-d", "refs/carboy/mouse/fix")
		h.ok("stop", "mouse")
		if r := h.run(nil, "rm", "mouse"); r.code == 0 || !strings.Contains(r.stderr, "commits that were not taken") {
			t.Errorf("rm: %+v", r)
		}
	})
	t.Run("a submodule's", func(t *testing.T) {
		h := newHome(t)
		dir, lib := h.repository(), filepath.Join(h.dir, "lib")
		h.gitIn(dir, "checkout", "-q", "HEAD", "--", "b.txt")
		h.gitIn(h.dir, "clone", "-q", dir, lib)
		h.gitIn(dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", lib, "sub")
		h.gitIn(dir, "commit", "-q", "-m", "sub")
		h.ok("create", "--name", "shrew", "--isolation", "process", "--workspace", dir)
		h.ok("exec", "shrew", "--", "sh", "-ec", "git config --global user.name A; git config --global user.email a@git.example; cd sub; "+lost)
		h.ok("stop", "shrew")
		if r := h.run(nil, "rm", "shrew"); r.code == 0 || !strings.Contains(r.stderr, "commits of its submodules") {
			t.Errorf("rm: %+v", r)
		}
	})
}
