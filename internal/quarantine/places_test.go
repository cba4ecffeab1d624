package quarantine_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/quarantine"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
)

// made is a repository by a command of git's, at a path of the test's.
func made(t *testing.T, args ...string) *repo {
	t.Helper()
	r := &repo{t, t.TempDir()}
	r.git(args...)
	return r
}

// TestPlaces: wherever a repository keeps its objects and refs, commits come to them.
func TestPlaces(t *testing.T) {
	t.Run("no-commits", func(t *testing.T) {
		mine := made(t, "init", "-q", "-b", "main")
		view := mine.view()
		view.commit("a", "1", "one")
		takes(t, mine, view, map[string]string{"main": "new 1"})
	})
	t.Run("linked-worktree", func(t *testing.T) {
		main := newRepo(t)
		wt := &repo{t, filepath.Join(t.TempDir(), "wt")}
		main.git("worktree", "add", "-q", wt.dir, "-b", "side")
		view := main.view()
		view.git("switch", "-q", "-c", "fix")
		view.commit("a", "1", "one")
		takes(t, wt, view, map[string]string{"fix": "new 1"})
		if got := main.git("for-each-ref", "--format=%(refname)", "refs/carboy"); got != "refs/carboy/otter/fix" {
			t.Errorf("refs: %q", got)
		}
	})
	t.Run("borrowed-objects", func(t *testing.T) {
		main := newRepo(t)
		shared := made(t, "clone", "-q", "--shared", main.dir, ".")
		view := main.view()
		view.commit("a", "1", "one")
		takes(t, shared, view, map[string]string{"main": "new 1"})
	})
	t.Run("shallow", func(t *testing.T) {
		main := newRepo(t)
		main.commit("a", "1", "two")
		shallow := made(t, "clone", "-q", "--depth=1", "file://"+main.dir, ".")
		view := shallow.view()
		view.commit("a", "2", "three")
		takes(t, shallow, view, map[string]string{"main": "new 1"})
	})
	t.Run("bare", func(t *testing.T) {
		main := newRepo(t)
		bare := made(t, "clone", "-q", "--bare", main.dir, ".")
		view := main.view()
		view.commit("a", "1", "one")
		takes(t, bare, view, map[string]string{"main": "new 1"})
	})
}

// takes wants of a fetch what becomes of refs, and a repository that is whole after it.
func takes(t *testing.T, mine, view *repo, want map[string]string) {
	t.Helper()
	res, err := mine.fetch(view)
	if err != nil {
		t.Fatal(err)
	}
	got := states(res)
	for name, state := range want {
		if got[name] != state {
			t.Errorf("%s: %q, want %q: %v", name, got[name], state, got)
		}
	}
	mine.git("fsck", "--strict")
}

// TestOpenRefuses where commits can't be put.
func TestOpenRefuses(t *testing.T) {
	none := &repo{t, t.TempDir()}
	partial := newRepo(t)
	packs := filepath.Join(partial.dir, ".git", "objects", "pack")
	if err := os.WriteFile(filepath.Join(packs, "pack-1.promisor"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	linked := newRepo(t)
	if err := os.Symlink(t.TempDir(), filepath.Join(linked.dir, ".git", "refs", "carboy")); err != nil {
		t.Fatal(err)
	}
	for says, r := range map[string]*repo{"no repository": none, "partial clone": partial, "is a link": linked} {
		if _, err := r.fetch(stream{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if _, err := jail.Find(t.Context(), t.TempDir()); err != nil {
		t.Errorf("git is in its usual place: %v", err)
	}
}

// TestPartialByConfiguration: a repository that would fetch what it lacks is refused
// before a git reads its objects.
func TestPartialByConfiguration(t *testing.T) {
	for name, value := range map[string]string{"extensions.partialClone": "origin", "remote.origin.promisor": "true", "remote.a.b.partialclonefilter": "blob:none"} {
		mine := newRepo(t)
		mark := filepath.Join(t.TempDir(), "ran")
		mine.git("config", "core.repositoryFormatVersion", "1")
		mine.git("config", "remote.origin.url", "ext::touch "+mark)
		mine.git("config", "protocol.ext.allow", "always")
		mine.git("config", name, value)
		if err := os.WriteFile(filepath.Join(mine.dir, ".git", "refs", "heads", "main"), []byte(strings.Repeat("1", 40)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := mine.fetch(stream{}); err == nil || !strings.Contains(err.Error(), "partial clone") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Errorf("%s: it was fetched from", name)
		}
	}
}

// TestNothingIsFetched: no git that reads the user's repository fetches, whatever the
// repository's configuration allows.
func TestNothingIsFetched(t *testing.T) {
	mine := newRepo(t)
	mark := filepath.Join(t.TempDir(), "ran")
	url := "ext::touch " + mark
	mine.git("config", "protocol.ext.allow", "always")
	mine.git("config", "protocol.file.allow", "always")
	r, err := quarantine.Open(t.Context(), findGit(t), mine.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{url, "file://" + mine.dir} {
		if out, err := r.OwnForTest(t.Context(), "ls-remote", from); err == nil || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("%s: %q, %v", from, out, err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("it ran")
	}
	_ = mine.command("ls-remote", url).Run() // it fails when it has run
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("git alone does not run it: %v", err)
	}
}

// TestNoUploadPack: nor does one run what a remote names to be asked in the place of git.
func TestNoUploadPack(t *testing.T) {
	mine := newRepo(t)
	mark := filepath.Join(t.TempDir(), "ran")
	for name, value := range map[string]string{
		"protocol.file.allow": "always", "protocol.allow": "always", "remote.origin.url": mine.dir,
		"remote.origin.promisor": "true", "remote.origin.uploadpack": "touch " + mark + "; false", "core.repositoryFormatVersion": "1",
	} {
		mine.git("config", name, value)
	}
	none := strings.Repeat("1", 40)
	for _, args := range [][]string{{"ls-remote", "origin"}, {"fetch", "origin"}, {"cat-file", "-p", none}} {
		out, err := quarantine.UnopenedForTest(t.Context(), findGit(t), mine.dir, args...)
		if err == nil {
			t.Errorf("%v: %q", args, out)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Fatalf("%v: it ran", args)
		}
	}
	_ = mine.command("cat-file", "-p", none).Run() // it fails when it has run
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("git alone does not run it: %v", err)
	}
}

// TestAnothersRepository: what belongs to somebody else is not obeyed, but where the
// caller's own configuration says so, or who called sudo owns it.
func TestAnothersRepository(t *testing.T) {
	mine := newRepo(t)
	const nobody = 65534
	uid := nobody
	if os.Geteuid() != 0 {
		uid = os.Geteuid() // who can't give files away has none of another's to test
	}
	err := filepath.WalkDir(mine.dir, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, uid, -1))
	})
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("SUDO_UID", "")
	open := func() error {
		_, err := quarantine.Open(t.Context(), findGit(t), mine.dir)
		return err
	}
	if err := open(); uid == nobody && (err == nil || !strings.Contains(err.Error(), "somebody else's")) {
		t.Errorf("another's: %v", err)
	}
	t.Setenv("SUDO_UID", strconv.Itoa(uid))
	if err := open(); err != nil {
		t.Errorf("of who called sudo: %v", err)
	}
	t.Setenv("SUDO_UID", "")
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[safe]\n\tdirectory = "+mine.dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Errorf("by the caller's configuration: %v", err)
	}
}

// findGit is the machine's.
func findGit(t *testing.T) string {
	t.Helper()
	git, err := jail.Find(t.Context(), os.Getenv("PATH"))
	if err != nil {
		t.Fatal(err)
	}
	return git
}

// TestSymbolicRef: a ref that stands for another is replaced, and the other is not written.
func TestSymbolicRef(t *testing.T) {
	mine := newRepo(t)
	view := mine.view()
	view.git("switch", "-q", "-c", "fix")
	view.commit("a", "1", "one")
	mine.git("symbolic-ref", "refs/carboy/otter/fix", "refs/heads/main")
	was := mine.git("rev-parse", "main")
	if _, err := mine.fetch(view); err != nil {
		t.Fatal(err)
	}
	if now := mine.git("rev-parse", "main"); now != was {
		t.Errorf("main is %s, and was %s", now, was)
	}
	if got := mine.git("rev-parse", "refs/carboy/otter/fix"); got != view.git("rev-parse", "fix") {
		t.Errorf("fix is %s", got)
	}
}

// TestNothingRuns: no hook and no setting of the user's is obeyed by a fetch, and the
// user's environment does not lead it elsewhere.
func TestNothingRuns(t *testing.T) {
	mine := newRepo(t)
	mark := filepath.Join(t.TempDir(), "ran")
	for _, hook := range []string{"reference-transaction", "post-update", "update", "post-checkout", "pre-auto-gc"} {
		if err := os.WriteFile(filepath.Join(mine.dir, ".git", "hooks", hook), []byte("#!/bin/sh\ntouch "+mark+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	view := mine.view()
	view.git("config", "core.fsmonitor", "touch "+mark)
	mine.git("config", "core.fsmonitor", "touch "+mark)
	mine.git("config", "core.logAllRefUpdates", "always")
	view.commit("a", "1", "one")
	if err := os.RemoveAll(mark); err != nil { // a commit ran hooks
		t.Fatal(err)
	}
	t.Setenv("GIT_DIR", t.TempDir())
	t.Setenv("GIT_CONFIG_PARAMETERS", "'core.hooksPath="+filepath.Join(mine.dir, ".git", "hooks")+"'")
	if _, err := mine.fetch(view); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("something ran")
	}
	if _, err := os.Stat(filepath.Join(mine.dir, ".git", "logs", "refs", "carboy")); err == nil {
		t.Error("a reflog was written")
	}
}

// TestRefsAllOrNone: where a ref can't be written, what was to be pruned is there still;
// and what could not be put back is named.
func TestRefsAllOrNone(t *testing.T) {
	git := findGit(t)
	for _, tt := range []struct {
		name, comes, git string
		says             string
		kept             bool
	}{
		{"apart", "other", git, "the refs were not written", true},
		{"in-the-way", "side/way", git, "the refs were not written", true},
		{"lost", "side/way", "#!/bin/sh\ncase \"$*\" in *update-ref*) echo x >>COUNT; [ $(wc -l <COUNT) -lt 3 ] || exit 1;; esac\nexec " + git + " \"$@\"\n", "refs/carboy/otter/side was ", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mine := newRepo(t)
			view := mine.view()
			view.git("branch", "side")
			view.git("switch", "-q", "-c", "fix")
			view.commit("a", "1", "one")
			named := func(o *quarantine.Options) { o.Named = []string{"fix", "side"} }
			if _, err := mine.fetch(view, named); err != nil {
				t.Fatal(err)
			}
			was := mine.git("for-each-ref")
			view.git("branch", "-D", "side")
			view.git("branch", tt.comes)
			view.commit("a", "2", "two")
			lock := filepath.Join(mine.dir, ".git", "refs", "carboy", "otter", "fix.lock")
			if err := os.WriteFile(lock, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			use := tt.git
			if strings.HasPrefix(use, "#!") {
				use = filepath.Join(t.TempDir(), "git")
				count := filepath.Join(t.TempDir(), "count")
				if err := os.WriteFile(use, []byte(strings.ReplaceAll(tt.git, "COUNT", count)), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			r, err := quarantine.Open(t.Context(), use, mine.dir)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Fetch(t.Context(), view, quarantine.Options{State: t.TempDir(), ID: testID, Name: "otter", Prune: true})
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("%v, want %q", err, tt.says)
			}
			if now := mine.git("for-each-ref"); (now == was) != tt.kept {
				t.Errorf("refs are\n%s\nand were\n%s", now, was)
			}
			if !tt.kept && !strings.Contains(err.Error(), view.git("rev-parse", "main")) {
				t.Errorf("%v: it does not say what the ref was", err)
			}
		})
	}
}
