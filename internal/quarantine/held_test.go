package quarantine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/quarantine"
)

// link makes a symbolic link.
func (r *repo) link(name, target string) {
	r.t.Helper()
	if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil {
		r.t.Fatal(err)
	}
}

// bare commits a directory that git takes for a repository, with a configuration that
// runs a program.
func (r *repo) bare(dir, mark string) {
	r.t.Helper()
	for name, text := range map[string]string{"objects/x": "", "refs/x": "", "config": "[core]\nrepositoryformatversion=0\nbare=false\nworktree=.\nfsmonitor=\"touch " + mark + "; false\"\n"} {
		r.commit(dir+"/"+name, text, name)
	}
	r.commit(dir+"/HEAD", "ref: refs/heads/main\n", "docs")
}

// heldOf is what is held of a ref that was fetched.
func heldOf(t *testing.T, res *quarantine.Result, ref string) map[string]string {
	t.Helper()
	for _, c := range res.Refs {
		if c.Ref == "refs/carboy/otter/"+ref {
			all := map[string]string{}
			for _, h := range c.Held {
				all[h.Path] = h.Why
			}
			return all
		}
	}
	t.Fatalf("no ref %s: %v", ref, states(res))
	return nil
}

// TestHeldByContent: what an apply holds back for what it is, and not for its name, is named
// by a fetch too.
func TestHeldByContent(t *testing.T) {
	mine := newRepo(t)
	mine.link("out", "/etc")
	mine.commit("old/.gitattributes", "* filter=mine\n", "of the user's own")
	view := mine.view()
	view.git("switch", "-q", "-c", "fix")
	mark := filepath.Join(t.TempDir(), "ran")
	view.bare("docs", mark)
	for name, target := range map[string]string{"up": "../x", "abs": "/etc/passwd", "by": "out/passwd", "git": ".git/hooks", "good": "docs", "long": strings.Repeat("x/", 2000)} {
		view.link(name, target)
	}
	view.git("update-index", "--add", "--cacheinfo", "160000,"+view.git("rev-parse", "main")+",sub")
	view.git("commit", "-q", "-m", "submodule")
	if err := os.Mkdir(filepath.Join(view.dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	view.commit("a/.gitattributes", "* diff=evil\n", "drivers")
	view.commit("b/.gitattributes", "*.go text eol=lf\n", "none")
	view.commit("c/.gitattributes", strings.Repeat("# x\n", 1<<19), "long")
	view.commit(".envrc", "x\n", "by name")

	res, err := mine.fetch(view)
	if err != nil {
		t.Fatal(err)
	}
	const drivers, out = "it names filters, diff or merge drivers that git runs on the host", "the link leads out of the workspace"
	want := map[string]string{
		"docs": "git takes the directory for a repository: git runs or obeys it on the host",
		"up":   out, "abs": out, "by": out, "git": "the link leads to a path that is held back",
		"sub":              "a submodule: git fetches another repository and obeys what is in it",
		"a/.gitattributes": drivers, "c/.gitattributes": drivers,
		"long":   "the link may lead out of the workspace",
		".envrc": "a shell or version manager loads it on entering the directory",
	}
	if diff := cmp.Diff(want, heldOf(t, res, "fix")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if first := res.Refs[0].Held[0].Path; first != "docs" {
		t.Errorf("the first is %q", first)
	}
	mine.git("merge", "-q", "refs/carboy/otter/fix")
	there := &repo{t, filepath.Join(mine.dir, "docs")}
	_ = there.command("status").Run() // it fails when it has run
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("git there obeys nothing, so nothing was to be held: %v", err)
	}
}

// TestHeldWithoutNewCommits: commits that came by another branch are looked at again for each
// that has them.
func TestHeldWithoutNewCommits(t *testing.T) {
	mine := newRepo(t)
	view := mine.view()
	view.git("switch", "-q", "-c", "fix")
	view.commit("a", "1", "one")
	view.git("switch", "-q", "-c", "ci", "main")
	view.commit(".github/workflows/ci.yml", "on: push\n", "ci")
	if _, err := mine.fetch(view); err != nil {
		t.Fatal(err)
	}
	view.git("branch", "-q", "-f", "fix", "ci")
	res, err := mine.fetch(view)
	if err != nil {
		t.Fatal(err)
	}
	if got := states(res)["fix"]; got != "forced 0" {
		t.Errorf("fix: %q", got)
	}
	if got := heldOf(t, res, "fix"); len(got) != 1 {
		t.Errorf("held: %v", got)
	}
}

// TestHeldBehindPadding: many of one kind hide no other, and are counted.
func TestHeldBehindPadding(t *testing.T) {
	mine := newRepo(t)
	view := mine.view()
	view.git("switch", "-q", "-c", "fix")
	for i := range 60 {
		path := filepath.Join(view.dir, "a", fmt.Sprint(i), ".env")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	view.commit("z/.husky/pre-commit", "x\n", "padded")
	res, err := mine.fetch(view)
	if err != nil {
		t.Fatal(err)
	}
	c := res.Refs[0]
	want := []quarantine.HeldKind{{Why: "git hooks run it on the host", Count: 1}, {Why: "tools load it as environment", Count: 60}}
	if diff := cmp.Diff(want, c.HeldKinds); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if c.Held[0].Path != "z/.husky/pre-commit" || len(c.Held) > 50 {
		t.Errorf("held: %v", c.Held)
	}
}

// TestHeldInHalves: a repository of which each of two branches has a half is named, with what
// HEAD has, or by the second of them.
func TestHeldInHalves(t *testing.T) {
	for _, merged := range []bool{false, true} {
		mine := newRepo(t)
		view := mine.view()
		view.git("switch", "-q", "-c", "a")
		view.commit("docs/HEAD", "ref: refs/heads/main\n", "one")
		view.commit("docs/objects/x", "", "two")
		if merged {
			if res, err := mine.fetch(view); err != nil || len(res.Refs[0].Held) > 0 {
				t.Fatalf("half of it: %v, %v", res, err)
			}
			mine.git("merge", "-q", "refs/carboy/otter/a")
			mine.commit("x", "1", "mine")
		}
		view.git("switch", "-q", "-c", "b", "main")
		view.commit("docs/refs/x", "", "three")
		res, err := mine.fetch(view)
		if err != nil {
			t.Fatal(err)
		}
		if got := heldOf(t, res, "b"); got["docs"] == "" {
			t.Errorf("merged %v: held: %v", merged, got)
		}
	}
}
