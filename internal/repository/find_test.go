package repository_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/repository"
)

// world is a directory with repositories, and a home of its own.
type world struct {
	*testing.T
	dir string
}

func newWorld(t *testing.T) world {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := world{t, dir}
	for k, v := range map[string]string{
		"HOME": w.path("home"), "XDG_CONFIG_HOME": w.path("home/.config"), "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_DIR": w.path("elsewhere"), // what a hook of git has, and nobody asked about
	} {
		t.Setenv(k, v)
	}
	w.write("home/.gitconfig", "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n[protocol \"file\"]\n\tallow = always\n")
	return w
}

func (w world) path(rel string) string { return filepath.Join(w.dir, rel) }

func (w world) write(rel, text string) {
	w.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(rel)), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(w.path(rel), []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
}

func (w world) git(dir string, args ...string) string {
	w.Helper()
	cmd := exec.Command("git", append([]string{"-C", w.path(dir)}, args...)...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GIT_DIR=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repo makes a repository with one commit.
func (w world) repo(dir string, initArgs ...string) {
	w.Helper()
	if err := os.MkdirAll(w.path(dir), 0o755); err != nil {
		w.Fatal(err)
	}
	w.git(dir, append([]string{"init", "-q"}, initArgs...)...)
	w.write(dir+"/a.txt", "one\n")
	w.git(dir, "add", ".")
	w.git(dir, "commit", "-q", "-m", "one")
}

// apart makes a repository whose git directory is apart, and says whose it is.
func (w world) apart(dir string) {
	w.Helper()
	w.repo(dir, "--separate-git-dir", w.path("apart"))
	w.git(dir, "config", "core.worktree", w.path(dir))
}

// found is what Find has to say, with paths as the world has them.
type found struct {
	Top, Below, GitDir, CommonDir string
	Outside                       bool
	Name, Email, Branch           string
	Commits, Partial              bool
	Files                         int
	Mounts, Notes                 []string
}

func (w world) find(dir string) found {
	w.Helper()
	r, err := repository.Find(w.Context(), w.path(dir))
	if err != nil {
		w.Fatal(err)
	}
	rel := func(p string) string { return strings.ReplaceAll(p, w.dir+"/", "") }
	f := found{rel(r.Top), r.Below, rel(r.GitDir), rel(r.CommonDir), r.Outside, r.Name, r.Email, r.Branch, r.Commits, r.Partial, r.Files, nil, nil}
	for _, m := range r.Mounts() {
		f.Mounts = append(f.Mounts, rel(m.String()))
	}
	for _, n := range r.Notes() {
		f.Notes = append(f.Notes, rel(n))
	}
	if n := r.Anonymous(); n != "" {
		f.Notes = append(f.Notes, rel(n))
	}
	return f
}

const objects = ":/var/lib/carboy/git/objects:ro"

// plain is a repository as there are most.
var plain = found{
	Top: "repo", GitDir: "repo/.git", CommonDir: "repo/.git",
	Name: "Ann", Email: "ann@example.com", Branch: "main", Commits: true, Files: 1,
}

func with(change func(f *found)) found {
	f := plain
	change(&f)
	return f
}

func lies(dir string) []string {
	return []string{"the repository of this directory lies in " + dir + ": its objects are shown inside too, read-only"}
}

const (
	nobody = "git has no user.name and no user.email here, which commits need: before the next start, git config --global user.name 'YOUR NAME' and git config --global user.email ADDRESS"
	partly = "the repository is a partial clone: git inside fetches what it lacks, where the policy lets it; carboy apply takes files out, carboy fetch no commits"
)

type findCase struct {
	name  string
	setup func(w world)
	dir   string
	want  found
}

func TestFind(t *testing.T) {
	findEach(t, []findCase{
		{"its top", func(w world) { w.repo("repo") }, "repo", plain},
		{"a subdirectory", func(w world) {
			w.repo("repo")
			w.write("repo/a/b/c", "")
		}, "repo/a/b", with(func(f *found) { f.Below = "a/b" })},
		{"by a link", func(w world) {
			w.repo("repo")
			if err := os.Symlink("repo", w.path("link")); err != nil {
				w.Fatal(err)
			}
		}, "link", plain},
		{"no repository", func(w world) { w.write("repo/x", "") }, "repo", found{Top: "repo", Name: "Ann", Email: "ann@example.com"}},
		{"a .git that is none", func(w world) { w.write("repo/.git/x", "") }, "repo", found{Top: "repo", Name: "Ann", Email: "ann@example.com"}},
		{"no commits", func(w world) {
			w.repo("repo")
			w.git("repo", "switch", "-q", "--orphan", "empty")
		}, "repo", with(func(f *found) { f.Branch, f.Commits, f.Files = "empty", false, 0 })},
		{"packed refs", func(w world) {
			w.repo("repo")
			w.git("repo", "pack-refs", "--all")
		}, "repo", plain},
		{"a commit that was checked out", func(w world) {
			w.repo("repo")
			w.git("repo", "checkout", "-q", "--detach")
		}, "repo", with(func(f *found) { f.Branch = "" })},
		{"a name of its own", func(w world) {
			w.repo("repo")
			w.git("repo", "config", "user.name", "Bob")
			w.git("repo", "config", "user.email", "")
		}, "repo", with(func(f *found) {
			f.Name, f.Email = "Bob", ""
			f.Notes = []string{"git has no user.email here, which commits need: before the next start, git config --global user.email ADDRESS"}
		})},
		{"nobody's", func(w world) {
			w.repo("repo")
			w.write("home/.gitconfig", "")
		}, "repo", with(func(f *found) { f.Name, f.Email, f.Notes = "", "", []string{nobody} })},
		{"no repository and nobody", func(w world) {
			w.write("repo/x", "")
			w.write("home/.gitconfig", "")
		}, "repo", found{Top: "repo"}},
		{"a partial clone", func(w world) {
			w.repo("whole")
			w.git("whole", "config", "uploadpack.allowFilter", "true")
			w.git(".", "clone", "-q", "--filter=blob:none", "file://"+w.path("whole"), "repo")
		}, "repo", with(func(f *found) { f.Partial, f.Notes = true, []string{partly} })},
		{"one whose packs do not say so", func(w world) {
			w.repo("repo")
			w.git("repo", "config", "remote.origin.promisor", "true")
		}, "repo", with(func(f *found) { f.Partial, f.Notes = true, []string{partly} })},
		{"a name that is none", func(w world) {
			w.repo("repo")
			w.git("repo", "config", "user.name", "Bob\x1b]0;x\a")
		}, "repo", with(func(f *found) {
			f.Name = ""
			f.Notes = []string{"git has no user.name here, which commits need: before the next start, git config --global user.name 'YOUR NAME'"}
		})},
	})
}

func TestFindElsewhere(t *testing.T) {
	findEach(t, []findCase{
		{"a linked worktree", func(w world) {
			w.repo("repo")
			w.git("repo", "worktree", "add", "-q", "../linked", "-b", "topic")
			w.write("linked/sub/x", "")
		}, "linked/sub", with(func(f *found) {
			f.Top, f.Below, f.Branch, f.GitDir, f.Outside = "linked", "sub", "topic", "repo/.git/worktrees/linked", true
			f.Mounts = []string{"repo/.git/objects" + objects}
			f.Notes = lies("repo/.git")
		})},
		{"a submodule", func(w world) {
			w.repo("lib")
			w.repo("repo")
			w.git("repo", "submodule", "--quiet", "add", w.path("lib"), "lib")
		}, "repo/lib", with(func(f *found) {
			f.Top, f.GitDir, f.CommonDir, f.Outside = "repo/lib", "repo/.git/modules/lib", "repo/.git/modules/lib", true
			f.Mounts = []string{"repo/.git/modules/lib/objects" + objects}
			f.Notes = lies("repo/.git/modules/lib")
		})},
		{"what has submodules", func(w world) {
			w.repo("lib")
			w.repo("repo")
			w.git("repo", "submodule", "--quiet", "add", w.path("lib"), "lib")
		}, "repo", with(func(f *found) { f.Files = 3 })},
		{"a git directory apart", func(w world) { w.apart("repo") }, "repo", with(func(f *found) {
			f.GitDir, f.CommonDir, f.Outside = "apart", "apart", true
			f.Mounts = []string{"apart/objects" + objects}
			f.Notes = lies("apart")
		})},
		{"a worktree of a bare repository", func(w world) {
			w.repo("first")
			w.git("", "clone", "-q", "--bare", "first", "bare.git")
			w.git("bare.git", "worktree", "add", "-q", "../repo", "main")
		}, "repo", with(func(f *found) {
			f.GitDir, f.CommonDir, f.Outside = "bare.git/worktrees/repo", "bare.git", true
			f.Mounts = []string{"bare.git/objects" + objects}
			f.Notes = lies("bare.git")
		})},
		{"a bare repository", func(w world) {
			w.repo("first")
			w.git("", "clone", "-q", "--bare", "first", "repo")
		}, "repo", found{Top: "repo", Name: "Ann", Email: "ann@example.com"}},
		{"objects of another", func(w world) {
			w.repo("first")
			w.git("", "clone", "-q", "--shared", "first", "repo")
		}, "repo", with(func(f *found) {
			f.Mounts = []string{"first/.git/objects:first/.git/objects:ro"}
			f.Notes = []string{"the repository borrows objects: first/.git/objects is shown inside too, read-only"}
		})},
		{"objects of another that is gone", func(w world) {
			w.repo("repo")
			w.write("repo/.git/objects/info/alternates", w.path("gone/objects")+"\n# "+w.path("home")+"\n\n")
		}, "repo", plain},
		{"a submodule of a linked worktree", func(w world) {
			w.repo("lib")
			w.repo("main")
			w.git("main", "submodule", "--quiet", "add", w.path("lib"), "lib")
			w.git("main", "commit", "-q", "-m", "two")
			w.git("main", "worktree", "add", "-q", "../repo", "-b", "topic")
			w.git("repo", "submodule", "--quiet", "update", "--init")
		}, "repo/lib", with(func(f *found) {
			f.Top, f.GitDir, f.CommonDir, f.Outside = "repo/lib", "main/.git/worktrees/repo/modules/lib", "main/.git/worktrees/repo/modules/lib", true
			f.Branch = ""
			f.Mounts = []string{"main/.git/worktrees/repo/modules/lib/objects" + objects}
			f.Notes = lies("main/.git/worktrees/repo/modules/lib")
		})},
		{"a git directory in the tree", func(w world) {
			w.repo("repo")
			w.git("repo", "init", "-q", "--separate-git-dir", w.path("repo/.bare"))
			w.write("repo/.git", "gitdir: ./.bare\n")
		}, "repo", with(func(f *found) { f.GitDir, f.CommonDir = "repo/.bare", "repo/.bare" })},
		{"a name that is an option", func(w world) {
			w.repo("repo")
			w.git("repo", "config", "user.name", "--unset")
			w.git("repo", "config", "user.email", "-x")
		}, "repo", with(func(f *found) { f.Name, f.Email, f.Notes = "", "", []string{nobody} })},
		{"a directory of a home that is a repository", func(w world) {
			w.repo("home")
			w.write("home/repo/x", "")
		}, "home/repo", found{Top: "home/repo", Name: "Ann", Email: "ann@example.com"}},
		{"the home itself", func(w world) { w.repo("home") }, "home", with(func(f *found) { f.Top, f.GitDir, f.CommonDir, f.Files = "home", "home/.git", "home/.git", 2 })},
	})
}

func findEach(t *testing.T, cases []findCase) {
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			test.setup(w)
			if diff := cmp.Diff(test.want, w.find(test.dir)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Where .git leads inside is where a sandbox needs a git directory, unless that is a place of its own.
func TestNamedInside(t *testing.T) {
	w := newWorld(t)
	w.repo("repo")
	w.git("repo", "worktree", "add", "-q", "../linked", "-b", "topic")
	named := w.path("repo/.git/worktrees/linked")
	up, err := filepath.Rel("/workspace", "/repo/.git/worktrees/linked")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{named: named, up: "/repo/.git/worktrees/linked"} {
		w.write("linked/.git", "gitdir: "+text+"\n")
		r, err := repository.Find(t.Context(), w.path("linked"))
		if err != nil || r.NamedInside() != want {
			t.Errorf("%s: %q, %v, want %q", text, r.NamedInside(), err, want)
		}
	}
	for _, own := range []string{"/", "/srv", "/home", "/home/user", "/run/x/y", "/var/run/x", "/usr/x", "/workspace/x"} {
		if got := repository.NamedAt(own); got != "" {
			t.Errorf("a place of the sandbox's: %q", got)
		}
	}
	if got := repository.NamedAt("/home/user/r/.git"); got == "" {
		t.Error("in a home there is no place")
	}
	r, err := repository.Find(t.Context(), w.path("repo"))
	if err != nil || r.NamedInside() != "" {
		t.Errorf("a plain repository: %q, %v", r.NamedInside(), err)
	}
}

// A .git that leads nowhere is told of as such, and no parent's repository taken for it.
func TestNamesNone(t *testing.T) {
	w := newWorld(t)
	w.repo("repo")
	for name, text := range map[string]string{
		"gone": "gitdir: " + w.path("gone") + "\n", "a directory that is none": "gitdir: ..\n", "no line": "x\n", "empty": "",
	} {
		w.write("repo/sub/.git", text)
		r, err := repository.Find(t.Context(), w.path("repo/sub"))
		if err == nil || !strings.Contains(err.Error(), w.path("repo/sub/.git")) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if _, err := repository.Find(t.Context(), w.path("missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

// TestOwn: a git directory that WriteTar makes, beside a tree whose own lies elsewhere, is
// whole for git, and nothing of it is the host's but its objects, which are read.
func TestOwn(t *testing.T) {
	for _, test := range []struct {
		name string
		make func(w world)
	}{
		{"a linked worktree", func(w world) {
			w.repo("repo")
			w.git("repo", "config", "extensions.worktreeConfig", "true")
			w.git("repo", "worktree", "add", "-q", "../tree", "-b", "topic")
			w.git("tree", "config", "--worktree", "core.sparseCheckout", "false")
		}},
		{"a submodule", func(w world) {
			w.repo("lib")
			w.repo("repo")
			w.git("repo", "submodule", "--quiet", "add", w.path("lib"), "tree")
			w.git("repo/tree", "switch", "-q", "-c", "topic")
			if err := os.Symlink("repo/tree", w.path("tree")); err != nil {
				w.Fatal(err)
			}
		}},
		{"a git directory apart", func(w world) { w.apart("tree") }},
		{"a worktree of a bare repository", func(w world) {
			w.repo("first")
			w.git("", "clone", "-q", "--bare", "first", "bare.git")
			w.git("bare.git", "worktree", "add", "-q", "../tree", "main")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			test.make(w)
			w.write("tree/staged", "x\n")
			w.git("tree", "add", "staged")
			want := w.git("tree", "log", "--all", "--format=%H %D")
			head := w.git("tree", "rev-parse", "HEAD")
			r, err := repository.Find(t.Context(), w.path("tree"))
			if err != nil {
				t.Fatal(err)
			}
			var archive bytes.Buffer
			if err := r.WriteTar(&archive, "git", ".."); err != nil {
				t.Fatal(err)
			}
			before := w.listing(r.CommonDir)
			w.write("inside/a.txt", "one\n")
			w.write("inside/staged", "x\n")
			w.unpack(&archive, "inside/.git")
			w.write("inside/.git/objects/info/alternates", r.Mounts()[0].Host+"\n") // as the mount is inside

			if got := w.git("inside", "rev-parse", "HEAD"); got != head {
				t.Errorf("HEAD is %s, want %s", got, head)
			}
			if got := w.git("inside", "status", "--porcelain"); got != "A  staged" {
				t.Errorf("status: %q", got)
			}
			if got := w.git("inside", "log", "--all", "--format=%H %D"); test.name != "a linked worktree" && got != want {
				t.Errorf("log: %q, want %q", got, want)
			}
			w.git("inside", "commit", "-q", "-m", "two")
			w.git("inside", "fsck", "--strict")
			if diff := cmp.Diff(before, w.listing(r.CommonDir)); diff != "" {
				t.Errorf("the host's repository changed: %s", diff)
			}
		})
	}
}

// listing is all regular files below dir with their content, but for what git itself notes
// as it looks.
func (w world) listing(dir string) map[string]string {
	w.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(p)
		all[p] = string(text)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return all
}

func (w world) unpack(r io.Reader, at string) {
	w.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			w.Fatal(err)
		}
		rel := filepath.Join(at, strings.TrimPrefix(h.Name, "git"))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(w.path(rel), 0o755); err != nil {
				w.Fatal(err)
			}
			continue
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			w.Fatal(err)
		}
		w.write(rel, string(text))
	}
}

// FuzzConfig: no configuration makes the reader fail, or read without an end.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{"", "[core]\n\tworktree = ../x\n", "[core] worktree=\"a b\"", "[", "]\n=", "[core\nworktree=x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		for _, name := range []string{"HEAD", "config", "gitdir", "commondir", "packed-refs", "index"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tree := filepath.Join(dir, "tree")
		for _, sub := range []string{tree, filepath.Join(dir, "objects/info"), filepath.Join(dir, "refs")} {
			if err := os.MkdirAll(sub, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for file, text := range map[string]string{"objects/info/alternates": text, "tree/.git": "gitdir: ..\n"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", "") // no git
		r, err := repository.Find(t.Context(), tree)
		if err == nil && r.Top != tree {
			t.Errorf("top is %s", r.Top)
		}
	})
}
