package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/repository"
)

// git runs git as the home's user.
func (h *home) git(dir string, args ...string) string {
	h.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "GIT_CONFIG_NOSYSTEM=1"}
	owner, err := os.Stat(h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	id := owner.Sys().(*syscall.Stat_t).Uid
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestRepositoryInside: git works inside on a view of a linked worktree, of a submodule and
// of a tree whose git directory is apart, and nothing of the host's changes.
func TestRepositoryInside(t *testing.T) {
	for _, wall := range wallNames { // one after the other: this process has their HOME
		t.Run(wall, func(t *testing.T) {
			h := newHome(t)
			h.edit(h.dir, map[string]string{
				".gitconfig":   "[user]\n\tname = Ann O'Hara\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n",
				"lib/a.txt":    "one\n",
				"main/sub/b":   "two\n",
				"apart/a.txt":  "one\n",
				"plain/sub/x":  "x\n",
				"gits/nothing": "x\n",
			})
			for dir, args := range map[string][]string{"lib": nil, "main": nil, "apart": {"--separate-git-dir", h.dir + "/gits/apart"}} {
				at := filepath.Join(h.dir, dir)
				h.git(at, append([]string{"init", "-q"}, args...)...)
				h.git(at, "add", ".")
				h.git(at, "commit", "-q", "-m", "one")
			}
			h.git(h.dir+"/apart", "config", "core.worktree", h.dir+"/apart")
			h.git(h.dir+"/main", "submodule", "--quiet", "add", h.dir+"/lib", "lib")
			h.git(h.dir+"/main", "commit", "-q", "-m", "a submodule")
			h.git(h.dir+"/main", "worktree", "add", "-q", h.dir+"/linked", "-b", "topic")
			h.ok("version") // a daemon, for the client
			for dir, branch := range map[string]string{"linked/sub": "topic", "main/lib": "main", "apart": "main", "main": "main"} {
				h.inRepository(t, wall, dir, branch)
			}
		})
	}
}

// inRepository works in a sandbox of a repository as a user of one would.
func (h *home) inRepository(t *testing.T, wall, dir, branch string) {
	t.Helper()
	t.Setenv("HOME", h.dir)
	repo, err := repository.Find(t.Context(), filepath.Join(h.dir, dir))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(dir, "/", "-")
	args := []string{"--name", name, "--isolation", wall, "--workspace", repo.Top}
	for _, m := range repo.Mounts() {
		args = append(args, "--mount", m.String())
	}
	h.create(args...)
	before, host := h.git(repo.Top, "rev-parse", "HEAD"), h.git(repo.Top, "status", "--porcelain")
	if err := h.prepare(t.Context(), name, repo); err != nil {
		t.Fatal(err)
	}
	inside := func(args ...string) string {
		return strings.TrimSpace(h.ok(append([]string{"exec", "--cwd", repo.Cwd(), name, "--", "git"}, args...)...))
	}
	if got := inside("status", "--porcelain", "--branch"); !strings.HasPrefix(got+"...", "## "+branch+"...") || strings.Contains(got, "\n") {
		t.Errorf("%s: status %q", dir, got)
	}
	if got := inside("rev-parse", "--show-toplevel", "HEAD"); got != "/workspace\n"+before {
		t.Errorf("%s: %q, want HEAD %s", dir, got, before)
	}
	h.ok("exec", "--cwd", repo.Cwd(), name, "--", "sh", "-c", "echo new >new && git add new && git commit -q -m two && git fsck --strict")
	if got := inside("log", "-1", "--format=%an <%ae> %s"); got != "Ann O'Hara <ann@example.com> two" {
		t.Errorf("%s: log %q", dir, got)
	}
	// What another one owns is worked in, too.
	if got := strings.TrimSpace(h.ok("exec", name, "--", "sh", "-c", "git config --global --get-all safe.directory")); got != "*" {
		t.Errorf("%s: safe.directory %q", dir, got)
	}
	h.ok("stop", name)
	h.ok("start", name)
	if got := inside("log", "-1", "--format=%s"); got != "two" {
		t.Errorf("%s: after another start: %q", dir, got)
	}
	if got := h.git(repo.Top, "rev-parse", "HEAD"); got != before {
		t.Errorf("%s: the host's HEAD is %s, was %s", dir, got, before)
	}
	if got := h.git(repo.Top, "status", "--porcelain"); got != host {
		t.Errorf("%s: the host's status is %q, was %q", dir, got, host)
	}
	h.ok("rm", "-f", name)
}

// prepare makes git ready in a sandbox.
func (h *home) prepare(ctx context.Context, name string, repo *repository.Repository) error {
	h.t.Helper()
	svc := h.api()
	defer svc.Close()
	p, err := provider.Find("", "custom")
	if err != nil {
		return err
	}
	text, err := provider.Text(p)
	if err != nil {
		return err
	}
	s := &api.SetUp{
		Agent: api.Agent{Provider: p.Name, Dir: repo.Cwd()}, Definition: string(text),
		GitUser: api.GitUser{Name: repo.Name, Email: repo.Email}, Work: &api.SetUpWork{},
	}
	if repo.Needed() {
		var tar bytes.Buffer
		if err := repo.WriteTar(&tar, "git", ".."); err != nil {
			return err
		}
		h.edit(h.dir, map[string]string{name + ".tar": tar.String()})
		s.Work.Git = filepath.Join(h.dir, name+".tar")
	}
	_, err = svc.SetUp(ctx, name, s, func(api.CreateEvent) {})
	return err
}

// TestHomeOfItsOwn: what a program keeps in its home is there in the next sandbox of the directory,
// whoever runs it, and is nobody else's; the directories around are the user's.
func TestHomeOfItsOwn(t *testing.T) {
	views(t, func(t *testing.T, h *home, wall string) {
		dir := h.edited(map[string]string{"a.txt": "one\n"})
		other := filepath.Join(h.dir, "other")
		h.edit(other, map[string]string{"a.txt": "one\n"})
		const kept = "notes=/home/user/.notes,/home/user/.local/share/notes"
		h.ok("run", "--isolation", wall, "--workspace", dir, "--home", kept, "--", "sh", "-c",
			"echo one >~/.notes/a && echo two >~/.local/share/notes/b && mkdir ~/.local/state ~/.other && test -O ~/.local/share")
		name := h.create("--isolation", wall, "--workspace", dir, "--home", kept)
		if got := h.ok("exec", name, "--", "sh", "-c", "cat ~/.notes/a ~/.local/share/notes/b"); got != "one\ntwo\n" {
			t.Errorf("kept: %q", got)
		}
		for what, args := range map[string][]string{
			"another directory's": {"--workspace", other, "--home", kept}, "another program's": {"--workspace", dir, "--home", "else=/home/user/.notes"},
			"at the same time": {"--workspace", dir, "--home", kept},
		} {
			if got := h.ok(append(append([]string{"run", "--isolation", wall}, args...), "--", "sh", "-c", "ls -A ~/.notes")...); got != "" {
				t.Errorf("%s: %q", what, got)
			}
		}
		h.ok("rm", "-f", name)
	})
}
