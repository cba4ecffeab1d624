package workspace_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// git runs git without anyone's configuration.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	cmd := exec.Command("git", append([]string{
		"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main",
	}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// protected lists what is protected as "ro path", "pin path", "closed path"
// where it is for the directory alone, with + for what is to be made.
func protected(t *testing.T, root string) []string {
	t.Helper()
	ps, err := workspace.ProtectedGitPaths(openDir(t, root))
	must(t, err)
	out := []string{}
	for _, p := range ps {
		how, made := "pin", ""
		if p.ReadOnly {
			how = "ro"
		}
		if p.Shallow {
			how = "closed"
		}
		if p.Missing {
			made = "+"
		}
		out = append(out, fmt.Sprintf("%s %s%s", how, made, p.Path))
	}
	return out
}

func TestProtectedGitPaths(t *testing.T) {
	root := t.TempDir()
	git(t, root, "init", "-q")
	git(t, root, "commit", "-q", "--allow-empty", "-m", "x")
	diff(t, "a plain repository", protected(t, root), []string{
		"pin .git", "ro +.git/commondir", "ro .git/config", "ro +.git/config.worktree", "ro .git/hooks", "ro .git/info",
		"closed +.git/modules", "pin .git/objects", "pin .git/objects/info", "ro +.git/objects/info/alternates", "closed +.git/worktrees",
	})

	git(t, root, "config", "core.hooksPath", "tools/hooks")
	git(t, root, "config", "include.path", "../shared.gitconfig")
	tree{"tools/hooks/pre-commit": "x! true", "shared.gitconfig": "[core]\n\tpager = less\n"}.write(t, root)
	diff(t, "with paths of the tree", protected(t, root), []string{
		"pin .git", "ro +.git/commondir", "ro .git/config", "ro +.git/config.worktree", "ro .git/hooks", "ro .git/info",
		"closed +.git/modules", "pin .git/objects", "pin .git/objects/info", "ro +.git/objects/info/alternates", "closed +.git/worktrees",
		"ro shared.gitconfig", "pin tools", "ro tools/hooks",
	})
}

func TestProtectedWorktreesAndSubmodules(t *testing.T) {
	top := t.TempDir()
	sub, root := filepath.Join(top, "sub"), filepath.Join(top, "root")
	for _, d := range []string{sub, root} {
		must(t, os.Mkdir(d, 0o755))
		git(t, d, "init", "-q")
		git(t, d, "commit", "-q", "--allow-empty", "-m", "x")
	}
	git(t, root, "submodule", "--quiet", "add", sub, "deps/lib")
	git(t, root, "worktree", "add", "-q", root+"/wt", "-b", "other")
	got := strings.Join(protected(t, root), "\n")
	for _, want := range []string{
		"ro deps/lib/.git", "pin .git/modules/deps/lib", "ro .git/modules/deps/lib/config", "ro .git/modules/deps/lib/hooks",
		"ro +.git/modules/deps/lib/commondir", "ro wt/.git", "ro .git/worktrees/wt/commondir", "ro .git/worktrees/wt/gitdir",
		"ro +.git/worktrees/wt/config.worktree", "pin deps", "pin deps/lib", "closed .git/modules", "closed .git/modules/deps",
		"closed +.git/modules/deps/lib/modules", "pin wt", "closed .git/worktrees", "pin .git/worktrees/wt", "closed +.git/worktrees/wt/modules",
		"ro +.git/modules/deps/lib/objects/info/alternates",
	} {
		if !strings.Contains("\n"+got+"\n", "\n"+want+"\n") {
			t.Errorf("not protected: %s\n%s", want, got)
		}
	}

	diff(t, "a linked worktree alone", protected(t, root+"/wt"), []string{"ro .git"})
}

// What a tree has besides a repository of its own at the root.
func TestProtectedPlaces(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, root string)
		want []string
		not  []string
	}{
		{name: "nested", make: func(t *testing.T, root string) {
			git(t, root, "init", "-q", "a/b/own")
		}, want: []string{"pin a", "pin a/b", "pin a/b/own", "pin a/b/own/.git", "ro a/b/own/.git/config"}},
		{name: "submodules-that-are-not-there", make: func(t *testing.T, root string) {
			git(t, root, "init", "-q")
			tree{
				".gitmodules": submodules("gone/sub", "empty", "full", "../out", ".git/hooks", "file/sub", "/etc"),
				"full/file":   "x", "file": "x",
			}.write(t, root)
			must(t, os.Mkdir(root+"/empty", 0o755))
		}, want: []string{"pin +gone", "ro +gone/sub", "ro empty"}, not: []string{"full", "file", "file/sub", "etc"}},
		{name: "bare-beside", make: func(t *testing.T, root string) {
			of := t.TempDir()
			git(t, of, "init", "-q")
			git(t, of, "commit", "-q", "--allow-empty", "-m", "x")
			git(t, root, "clone", "-q", "--bare", of, "x/.bare")
			tree{"x/.git": "gitdir: ./.bare\n"}.write(t, root)
			git(t, root+"/x", "worktree", "add", "-q", "-b", "other", "main")
		}, want: []string{"ro x/.git", "pin x/.bare", "ro x/.bare/config", "ro x/.bare/hooks", "pin x/main", "ro x/main/.git"}},
		{name: "hooks-of-each-worktree", make: func(t *testing.T, root string) {
			git(t, root, "init", "-q")
			git(t, root, "commit", "-q", "--allow-empty", "-m", "x")
			git(t, root, "config", "core.hooksPath", "tools")
			git(t, root, "worktree", "add", "-q", root+"/wt")
		}, want: []string{"ro +tools", "ro +wt/tools"}},
		{name: "hooks-by-whole-path", make: func(t *testing.T, root string) {
			git(t, root, "init", "-q")
			git(t, root, "config", "core.hooksPath", root+"/tools/hooks")
		}, want: []string{"pin +tools", "ro +tools/hooks"}},
		{name: "hooks-of-an-included-file", make: func(t *testing.T, root string) {
			git(t, root, "init", "-q")
			git(t, root, "config", "include.path", "../etc/one")
			tree{
				"etc/one": "[include]\n\tpath = two\n\tpath = one\n\tpath = ../etc/one\n",
				"etc/two": "[core]\n\thooksPath = hooks\n[include]\n\tpath = one\n",
			}.write(t, root)
		}, want: []string{"pin etc", "ro etc/one", "ro etc/two", "ro +hooks"}},
		{name: "hooks-around-a-repository", make: func(t *testing.T, root string) {
			git(t, root, "init", "-q", "a/own")
			git(t, root, "init", "-q")
			git(t, root, "config", "core.hooksPath", "a")
		}, want: []string{"ro a", "pin a/own"}},
		{name: "nowhere", make: func(t *testing.T, root string) {
			tree{"a/.git": "gitdir: ../b/c\n"}.write(t, root)
		}, want: []string{"ro a/.git", "pin +b", "ro +b/c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			tt.make(t, root)
			got := protected(t, root)
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("not protected: %s\n%s", want, strings.Join(got, "\n"))
				}
			}
			for _, p := range got {
				_, name, _ := strings.Cut(p, " ")
				if slices.Contains(tt.not, strings.TrimPrefix(name, "+")) {
					t.Errorf("protected: %s", p)
				}
			}
		})
	}
}

// submodules is a .gitmodules that has submodules at paths.
func submodules(paths ...string) string {
	var b strings.Builder
	for i, p := range paths {
		fmt.Fprintf(&b, "[submodule \"m%d\"]\n\tpath = %s\n\turl = https://example.com\n", i, p)
	}
	return b.String()
}

func TestProtectedBareRoot(t *testing.T) {
	root := t.TempDir()
	git(t, root, "init", "-q", "--bare")
	diff(t, "a bare repository", protected(t, root), []string{
		"ro +commondir", "ro config", "ro +config.worktree", "ro hooks", "ro info",
		"closed +modules", "pin objects", "pin objects/info", "ro +objects/info/alternates", "closed +worktrees",
	})
	diff(t, "no repository", protected(t, t.TempDir()), []string{})
}

// What the wall is to make where it is missing does not disturb git.
func TestMissingPathsAreHarmless(t *testing.T) {
	root := t.TempDir()
	git(t, root, "init", "-q")
	must(t, os.RemoveAll(root+"/.git/hooks"))
	git(t, root, "commit", "-q", "--allow-empty", "-m", "x")
	ps, err := workspace.ProtectedGitPaths(openDir(t, root))
	must(t, err)
	for _, p := range ps {
		switch {
		case p.Missing && p.Dir:
			must(t, os.Mkdir(filepath.Join(root, p.Path), 0o755))
		case p.Missing:
			must(t, os.WriteFile(filepath.Join(root, p.Path), []byte(p.Content), 0o644))
		}
	}
	for _, p := range protected(t, root) {
		if strings.Contains(p, "+") {
			t.Errorf("still missing: %s", p)
		}
	}
	git(t, root, "commit", "-q", "--allow-empty", "-m", "y")
	git(t, root, "gc", "-q")
	git(t, root, "fsck", "--strict")
	git(t, root, "worktree", "add", "-q", t.TempDir()+"/w")
	if got := strings.TrimSpace(git(t, root, "status", "--porcelain")); got != "" {
		t.Errorf("git status = %q", got)
	}
	if got := strings.TrimSpace(git(t, root, "rev-list", "--count", "HEAD")); got != "2" {
		t.Errorf("%s commits, want 2", got)
	}
}

// Why commondir is on the list: with it, an agent brings a configuration of
// its own.
func TestCommondirRedirectsGit(t *testing.T) {
	root := t.TempDir()
	git(t, root, "init", "-q")
	tree{"evil/config": "[core]\n\trepositoryformatversion = 0\n[carboy]\n\ttest = obeyed\n", "evil/objects": "/", "evil/refs": "/"}.write(t, root)
	must(t, os.WriteFile(root+"/.git/commondir", []byte("../evil\n"), 0o644))
	if got := strings.TrimSpace(git(t, root, "config", "carboy.test")); got != "obeyed" {
		t.Errorf("git config = %q: it no longer follows commondir", got)
	}
}

func TestLinksCannotBeProtected(t *testing.T) {
	for name, make := range map[string]func(root string) error{
		"git":   func(root string) error { return os.Symlink("elsewhere", root+"/.git") },
		"hooks": func(root string) error { return os.Symlink("../tools", root+"/.git/hooks") },
		"modules": func(root string) error {
			return os.Symlink("../tools", root+"/.git/modules")
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if name != "git" {
				must(t, os.Mkdir(root+"/.git", 0o755))
			}
			must(t, make(root))
			_, err := workspace.ProtectedGitPaths(openDir(t, root))
			if got := sandbox.KindOf(err); got != sandbox.Unsupported {
				t.Errorf("ProtectedGitPaths = %v, want kind %q", err, sandbox.Unsupported)
			}
		})
	}
}

// Any configuration is read without harm, and hooksPath is found in odd forms.
func FuzzGitConfig(f *testing.F) {
	f.Add("[core]\n\thooksPath = x\n")
	f.Add("[core]hookspath=\"x\" # y\n[includeIf \"gitdir:a]b\"]\npath = \\\n y\n")
	f.Add("[core \"")
	f.Fuzz(func(t *testing.T, config string) {
		root := t.TempDir()
		tree{".git/HEAD": "x", ".git/config": config}.write(t, root)
		ps, err := workspace.ProtectedGitPaths(openDir(t, root))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ps {
			if p.Path == "" || p.Path == "." || strings.HasPrefix(p.Path, "/") || strings.Contains("/"+p.Path+"/", "/../") {
				t.Fatalf("protects %q", p.Path)
			}
		}
	})
}

func TestHooksPathForms(t *testing.T) {
	for _, config := range []string{
		"[core]\n\thooksPath = h\n", "[CORE]\nHOOKSPATH=h", "[core] hookspath = \"h\" ; x\n", "[core]\r\nhooksPath = h\r\n",
		"[core]\nhooksPath = \\\nh\n", "[a]\n[core]\n\n# c\n  hooksPath\t=\th  # c\n",
	} {
		root := t.TempDir()
		tree{".git/HEAD": "x", ".git/config": config}.write(t, root)
		if got := strings.Join(protected(t, root), "\n"); !strings.Contains(got, "ro +h") {
			t.Errorf("%q: h is not protected:\n%s", config, got)
		}
	}
}
