package repository_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/repository"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func (w world) link(to, rel string) {
	w.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(rel)), 0o755); err != nil {
		w.Fatal(err)
	}
	if err := os.Symlink(to, w.path(rel)); err != nil {
		w.Fatal(err)
	}
}

func (w world) pipe(rel string) {
	w.Helper()
	_ = os.Remove(w.path(rel)) // what was there
	if err := syscall.Mkfifo(w.path(rel), 0o600); err != nil {
		w.Fatal(err)
	}
}

func (w world) move(from, to string) {
	w.Helper()
	if err := os.Rename(w.path(from), w.path(to)); err != nil {
		w.Fatal(err)
	}
}

// fake makes what looks like a git directory.
func (w world) fake(dir, config string) {
	w.Helper()
	w.write(dir+"/HEAD", "ref: refs/heads/main\n")
	w.write(dir+"/refs/heads/none", "")
	w.write(dir+"/config", config)
}

// TestHostileTree: nothing that lies in a tree shows a sandbox what the repository there was
// not told to share: neither directories that are no repository's nor those of another tree.
func TestHostileTree(t *testing.T) {
	alternate := func(line string) func(w world) {
		return func(w world) {
			w.repo("tree")
			w.write("tree/.git/objects/info/alternates", strings.ReplaceAll(line, "W", w.dir)+"\n")
		}
	}
	gitfile := func(line string) func(w world) {
		return func(w world) { w.write("tree/.git", "gitdir: "+strings.ReplaceAll(line, "W", w.dir)+"\n") }
	}
	for _, test := range []struct {
		name  string
		setup func(w world)
		want  string // of the error
	}{
		{"an alternate that is any directory", alternate("W/home/.ssh"), "home/.ssh, which is not taken"},
		{"an alternate that is relative", alternate("../../../home/.ssh"), "home/.ssh, which is not taken"},
		{"an alternate with nothing but such names", alternate("W/home/cache"), "home/cache, which is not taken"},
		{"an alternate by a link", func(w world) {
			w.link("../home/.ssh", "tree/objects")
			alternate("W/tree/objects")(w)
		}, "tree/objects, which is not taken"},
		{"an alternate that is a git directory", alternate("W/private/.git"), "private/.git, which is not taken"},
		{"an alternate with more in it", func(w world) {
			w.write("private/.git/objects/id_rsa", "key")
			alternate("W/private/.git/objects")(w)
		}, "private/.git/objects, which is not taken"},
		{"an alternate with a link in it", func(w world) {
			w.link("/", "private/.git/objects/zz")
			alternate("W/private/.git/objects")(w)
		}, "private/.git/objects, which is not taken"},
		{"an alternate of a repository made up around a link", func(w world) {
			w.fake("tree/fake", "")
			w.link("../../home/.ssh", "tree/fake/objects")
			alternate("W/tree/fake/objects")(w)
		}, "tree/fake/objects, which is not taken"},
		{"an alternate of an alternate", func(w world) {
			w.write("private/.git/objects/info/alternates", w.path("home/.ssh")+"\n")
			alternate("W/private/.git/objects")(w)
		}, "home/.ssh, which is not taken"},
		{"an alternate that is a file", alternate("W/home/.ssh/id"), "home/.ssh/id, which is not taken"},
		{"another repository", gitfile("W/private/.git"), "private/.git, which does not say that this is its tree"},
		{"another repository, by a relative path", gitfile("../private/.git"), "which does not say that this is its tree"},
		{"another repository, by a link", func(w world) { w.link(w.path("private/.git"), "tree/.git") }, "which does not say that this is its tree"},
		{"another repository that has a tree elsewhere", func(w world) {
			w.apart("other")
			gitfile("W/apart")(w)
		}, "apart, which does not say that this is its tree"},
		{"another's linked worktree", func(w world) {
			w.git("private", "worktree", "add", "-q", "../linked", "-b", "topic")
			gitfile("W/private/.git/worktrees/linked")(w)
		}, "private/.git, which has no worktree here"},
		{"another's submodule", func(w world) {
			w.repo("lib")
			w.git("private", "submodule", "--quiet", "add", w.path("lib"), "lib")
			gitfile("W/private/.git/modules/lib")(w)
		}, "private/.git/modules/lib, which does not say that this is its tree"},
		{"a worktree made up, of another repository", func(w world) {
			w.fake("tree/fake", "")
			w.write("tree/fake/commondir", w.path("private/.git")+"\n")
			w.write("tree/fake/gitdir", w.path("tree/.git")+"\n")
			gitfile("fake")(w)
		}, "in a way that leads out of it"},
		{"a worktree made up beside the tree, of another repository", func(w world) {
			w.fake("fake", "")
			w.write("fake/commondir", w.path("private/.git")+"\n")
			w.write("fake/gitdir", w.path("tree/.git")+"\n")
			gitfile("W/fake")(w)
		}, "private/.git, which has no worktree here"},
		{"objects that are a link, in the tree", func(w world) {
			w.fake("tree/fake", "[core]\n\tworktree = ..\n")
			w.link(w.path("home/.ssh"), "tree/fake/objects")
			gitfile("W/tree/fake")(w)
		}, "in a way that leads out of it"},
		{"objects that are a link, beside the tree", func(w world) {
			w.fake("fake", "[core]\n\tworktree = "+w.path("tree")+"\n")
			w.link(w.path("home/.ssh"), "fake/objects")
			gitfile("W/fake")(w)
		}, "no links"},
		{"a stranger's repository", func(w world) {
			w.apart("tree")
			w.chown("apart", 4321)
		}, "yours or root's"},
		{"a .git that is a pipe", func(w world) {
			w.write("tree/x", "")
			w.pipe("tree/.git")
		}, "names no repository"},
		{"a .git that names itself", gitfile(".git"), "which is no repository"},
		{"a .git that is a link to itself", func(w world) { w.link(".git", "tree/.git") }, "which is no repository"},
		{"two that name each other", func(w world) {
			w.link("b", "tree/.git")
			w.link(".git", "tree/b")
		}, "which is no repository"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.write("home/.ssh/id", "key")
			w.write("home/cache/ab/x", "secret")
			w.repo("private")
			test.setup(w)
			r, err := repository.Find(t.Context(), w.path("tree"))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if r != nil {
				t.Errorf("shows %q", r.Mounts())
			}
		})
	}
}

func (w world) chown(rel string, uid int) {
	w.Helper()
	if os.Getuid() != 0 {
		w.Skip("needs root")
	}
	err := filepath.WalkDir(w.path(rel), func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, uid, uid)
	})
	if err != nil {
		w.Fatal(err)
	}
}

// TestStrangerAbove: a repository that a stranger made above a directory does not widen what
// is shown to all that lies there.
func TestStrangerAbove(t *testing.T) {
	w := newWorld(t)
	w.repo("shared")
	w.write("shared/mine/x", "")
	if got := w.find("shared/mine").Top; got != "shared" {
		t.Fatalf("one's own: %s", got)
	}
	w.chown("shared/.git", 4321)
	if got := w.find("shared/mine"); got.Top != "shared/mine" || got.GitDir != "" {
		t.Errorf("a stranger's: %+v", got)
	}
}

// TestBounded: nothing in a repository makes the search for it wait, or run a program.
func TestBounded(t *testing.T) {
	for name, setup := range map[string]func(w world){
		"pipes": func(w world) {
			for _, f := range []string{"packed-refs", "index", "config", "commondir", "objects/info/alternates"} {
				w.pipe("tree/.git/" + f)
			}
			w.move("tree/.git/refs/heads/main", "tree/.git/refs/heads/other")
		},
		"a huge configuration": func(w world) {
			if err := os.Truncate(w.path("tree/.git/config"), 1<<40); err != nil {
				w.Fatal(err)
			}
		},
		"a pipe that is included": func(w world) {
			w.pipe("tree/wait")
			w.git("tree", "config", "include.path", "../wait")
		},
		"a configuration that includes itself": func(w world) { w.git("tree", "config", "include.path", "config") },
		"programs": func(w world) {
			touch := "touch " + w.path("ran")
			for _, key := range []string{
				"core.fsmonitor", "core.pager", "pager.config", "core.sshCommand", "core.editor", "core.askPass", "credential.helper",
				"alias.config", "filter.x.clean", "diff.external", "core.gitProxy", "gpg.program", "trace2.eventTarget",
			} {
				w.git("tree", "config", key, touch)
			}
			w.git("tree", "config", "core.hooksPath", w.path("tree"))
			w.write("tree/.gitattributes", "* filter=x\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.repo("tree")
			setup(w)
			done := make(chan error, 1)
			go func() {
				_, err := repository.Find(t.Context(), w.path("tree"))
				done <- err
			}()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience.For(time.Minute)):
				t.Fatal("still looking")
			}
			if _, err := os.Lstat(w.path("ran")); err == nil {
				t.Error("a program of the repository's ran")
			}
		})
	}
}

// TestConfigInside: of a configuration a sandbox has what git needs, and no credential, no
// program and nothing that is to be read elsewhere.
func TestConfigInside(t *testing.T) {
	w := newWorld(t)
	w.apart("tree")
	text, err := os.ReadFile(w.path("apart/config"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("apart/config", string(text)+`
[remote "origin"]
	url = https://ann:S3CRET@example.com/a.git
	pushurl = ssh://git:S3CRET@example.com:22/a.git?x
	url = "https://S3CRET@example.com/b.git?token=S3CRET"
	fetch = +refs/heads/*:refs/remotes/origin/*
	proxy = http://u:S3CRET@proxy
	uploadpack = S3CRET
[remote "https://S3CRET@example.com"] fetch = x
[branch "a \"b\" \\ c"]
	remote = origin ; S3CRET
	merge = refs/heads/a
	description = S3CRET
[user] name = "Ann \
O'Hara" # S3CRET
	signingKey = S3CRET
[core] pager = S3CRET
	fsmonitor = S3CRET
	hooksPath = S3CRET
	sshCommand = S3CRET
	ignoreCase
[http "https://example.com"]
	extraheader = AUTHORIZATION: basic S3CRET
[http]
	extraheader = S3CRET
	cookieFile = S3CRET
[credential]
	helper = "!echo S3CRET"
[url "https://u:S3CRET@example.com/"]
	insteadOf = https://example.com/
[include]
	path = S3CRET
[includeIf "gitdir:/"]
	path = S3CRET
[filter "x"]
	clean = S3CRET
[alias]
	x = !S3CRET
[gpg] program = S3CRET
`)
	got := w.inside("tree")
	if strings.Contains(got, "S3CRET") {
		t.Errorf("a secret inside:\n%s", got)
	}
	w.write("inside", got)
	want := strings.Join([]string{
		"core.repositoryformatversion=0", "core.filemode=true", "core.logallrefupdates=true",
		"remote.origin.url=https://example.com/a.git", "remote.origin.pushurl=ssh://git@example.com:22/a.git?x",
		"remote.origin.url=https://example.com/b.git", "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*",
		`branch.a "b" \ c.remote=origin`, `branch.a "b" \ c.merge=refs/heads/a`,
		"user.name=Ann O'Hara", "core.ignorecase=true", "core.worktree=..", "core.bare=false",
	}, "\n")
	if diff := cmp.Diff(want, w.git("", "config", "--file", w.path("inside"), "--list")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// inside is the configuration that a sandbox of a tree has.
func (w world) inside(dir string) string {
	w.Helper()
	r, err := repository.Find(w.Context(), w.path(dir))
	if err != nil {
		w.Fatal(err)
	}
	var archive bytes.Buffer
	if err := r.WriteTar(&archive, "git", ".."); err != nil {
		w.Fatal(err)
	}
	for tr := tar.NewReader(&archive); ; {
		h, err := tr.Next()
		if err != nil {
			w.Fatal(err)
		}
		if h.Name == "git/config" {
			text, err := io.ReadAll(tr)
			if err != nil {
				w.Fatal(err)
			}
			return string(text)
		}
	}
}

// FuzzForSandbox: what a sandbox has of a configuration is read by git, says that the tree is where
// it is, and has no setting but those that are meant.
func FuzzForSandbox(f *testing.F) {
	for _, seed := range []string{
		"", "[core]\n\tfilemode = true\n", "[remote \"a\\\"\"]url=\"x\\ty\"#z", "[branch \"x\"]\nremote=a\\\nb", "[", "[core", "[a.b]c", "[user]name=\"\\", "[core]eol=\"a\nb\"",
	} {
		f.Add(seed)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out, err := repository.ForSandbox(text)
		if err != nil {
			return
		}
		cmd := exec.Command(git, "config", "--file", "-", "--name-only", "--list")
		cmd.Stdin = bytes.NewReader(out)
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s: %q", err, said, out)
		}
		for key := range strings.Lines(string(said)) {
			switch section, _, _ := strings.Cut(key, "."); section {
			case "core", "index", "extensions", "remote", "branch", "user":
			default:
				t.Errorf("%q of %q", key, text)
			}
		}
		if !strings.HasSuffix(string(said), "core.worktree\ncore.bare\n") {
			t.Errorf("ends with %q", said)
		}
	})
}
