package backendtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// gitAttempts would have git on the host run or obey what the instance wrote.
var gitAttempts = []struct{ name, script string }{
	{"hook", "printf '#!/bin/sh\\n' > .git/hooks/post-checkout && chmod 755 .git/hooks/post-checkout"},
	{"hooks-renamed", "mv .git/hooks .git/old && mkdir .git/hooks"},
	{"hooks-removed", "rm -rf .git/hooks && mkdir .git/hooks && touch .git/hooks/pre-commit"},
	{"config", "printf '[core]\\n\\tpager = touch /tmp/ran\\n' >> .git/config"},
	{"config-by-git", "git config core.fsmonitor 'touch /tmp/ran'"},
	{"config-replaced", "cp .git/config .git/c && mv .git/c .git/config"},
	{"worktree-config", "printf '[core]\\n\\tpager = x\\n' > .git/config.worktree"},
	{"common-directory", "echo /tmp > .git/commondir"},
	{"attributes", "echo '* filter=x' > .git/info/attributes"},
	{"renamed", "mv .git .git2 && mkdir .git"},
	{"removed", "rm -rf .git; test ! -e .git/config"},
	{"linked", "rm -rf .git; ln -s /tmp .git && test -L .git"},
	{"submodule-hook", "touch .git/modules/sub/hooks/post-checkout"},
	{"submodule-config", "echo >> .git/modules/sub/config"},
	{"submodule-replaced", "mv libs/sub libs/old && mkdir libs/sub && git init -q libs/sub"},
	{"submodule-way-replaced", "mv libs old && mkdir -p libs/sub && git init -q libs/sub"},
	{"submodule-made", "mkdir -p .git/modules/later && cp .git/config .git/modules/later/"},
	{"submodule-not-there", "git init -q later"},
	{"submodule-of-submodule", "mkdir -p .git/modules/sub/modules/x && touch .git/modules/sub/modules/x/config"},
	{"worktree-made", "mkdir -p .git/worktrees/x && touch .git/worktrees/x/commondir"},
	{"nested-replaced", "mv own old2 && git init -q own"},
	{"nested-way-replaced", "mv way old3 && mkdir way && git init -q way/own"},
	{"alternates", "echo /tmp > .git/objects/info/alternates"},
	{"alternates-replaced", "mv .git/objects/info .git/objects/old && mkdir .git/objects/info && echo /tmp > .git/objects/info/alternates"},
}

const gitModules = `[submodule "sub"]
	path = libs/sub
	url = ./sub
[submodule "later"]
	path = later
	url = ./later
`

// repository makes a work tree with a commit, and a submodule's directory.
func repository(t *testing.T) string {
	t.Helper()
	dir := tree(t, map[string]string{"f": "x\n"})
	git := func(args ...string) {
		native(t, append([]string{"git", "-c", "safe.directory=*", "-C", dir}, args...)...)
	}
	git("init", "-q", "-b", "main")
	git("config", "user.name", "a")
	git("config", "user.email", "a@example.com")
	git("add", "f")
	git("commit", "-qm", "one")
	for _, own := range []string{"libs/sub", "own", "way/own"} {
		native(t, "git", "init", "-q", "-b", "main", filepath.Join(dir, own))
	}
	for _, empty := range []string{"later", ".git/modules"} {
		must(t, os.Mkdir(filepath.Join(dir, empty), 0o755))
	}
	sub := filepath.Join(dir, "libs/sub")
	native(t, "git", "-C", sub, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "one")
	git("-c", "advice.addEmbeddedRepo=false", "add", "libs/sub")
	must(t, os.WriteFile(filepath.Join(dir, ".gitmodules"), []byte(gitModules), 0o644))
	native(t, "git", "-C", sub, "init", "-q", "--separate-git-dir", filepath.Join(dir, ".git/modules/sub"))
	must(t, os.WriteFile(filepath.Join(sub, ".git"), []byte("gitdir: ../../.git/modules/sub\n"), 0o644))
	git("add", ".gitmodules")
	git("commit", "-qm", "submodule")
	give(t, dir)
	return dir
}

// gitState is what git on the host would obey in a tree.
func gitState(t *testing.T, dir string) string {
	t.Helper()
	script := `cd "$1" && ls -ld .git .git/hooks | cut -c1 && find .git .git/modules/sub libs own way later -maxdepth 4 \( -path '*/hooks/*' -o -name 'config*' -o -name commondir -o -path '*/info/*' -o -name .git \) -type f | sort | xargs cksum`
	return native(t, "sh", "-c", script, "sh", dir)
}

func testGit(t *testing.T, s *suite) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	w := s.open(t)
	t.Run("writable", func(t *testing.T) {
		dir := repository(t)
		b := w.begin(t, over(t, sandbox.WorkspaceWritable, dir))
		before := gitState(t, dir)
		for _, a := range gitAttempts {
			t.Run(a.name, func(t *testing.T) {
				if e := b.run(t, shell(a.script)); e.exit.GetCode() == 0 {
					t.Errorf("it says that it went through: %+v", e)
				}
				if after := gitState(t, dir); after != before {
					t.Errorf("git on the host obeys something else now:\n%s\nbefore:\n%s", after, before)
				}
			})
		}
	})
	// Work as such goes on, and reaches the host as its owner's.
	t.Run("work", func(t *testing.T) {
		dir := repository(t)
		b := w.begin(t, over(t, sandbox.WorkspaceWritable, dir))
		b.sh(t, "", "echo y >> f && git commit -qam two && git switch -qc topic && echo z >> f && git stash -q && git stash pop -q && git checkout -q f && git gc -q && git status")
		b.sh(t, "", "cd libs/sub && echo y > f && git add f && git -c user.name=a -c user.email=a@example.com commit -qm two && git switch -qc topic && git fetch -q ../.. main && git gc -q && git status")
		if got := native(t, "git", "-c", "safe.directory=*", "-C", dir, "log", "--format=%s", "topic"); got != "two\nsubmodule\none\n" {
			t.Errorf("the host's log: %q", got)
		}
		native(t, "git", "-c", "safe.directory=*", "-C", dir, "fsck", "--strict")
	})
	// Where the host's tree is out of reach, nothing needs to be forbidden.
	t.Run("copy", func(t *testing.T) {
		dir := repository(t)
		before := gitState(t, dir)
		for _, a := range gitAttempts {
			b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir))
			if e := b.run(t, shell(a.script)); e.exit.GetCode() != 0 {
				t.Errorf("%s: %+v", a.name, e)
			}
			w.mustRemove(t, b.id)
		}
		if after := gitState(t, dir); after != before {
			t.Errorf("the host's repository has changed:\n%s\nbefore:\n%s", after, before)
		}
	})
	// What is to be made lies in what is to be read-only.
	t.Run("hooks-around-a-repository", func(t *testing.T) {
		dir := repository(t)
		native(t, "git", "-c", "safe.directory=*", "-C", dir, "config", "core.hooksPath", "way")
		b := w.begin(t, over(t, sandbox.WorkspaceWritable, dir))
		if e := b.run(t, shell("touch way/own/.git/x || touch way/pre-commit")); e.exit.GetCode() == 0 {
			t.Errorf("it says that it went through: %+v", e)
		}
		b.sh(t, "", "echo y >> f && git commit -qam two")
	})
	t.Run("links-are-refused", func(t *testing.T) {
		dir := repository(t)
		must(t, os.RemoveAll(filepath.Join(dir, ".git/hooks")))
		must(t, os.Symlink("../f", filepath.Join(dir, ".git/hooks")))
		sb := w.record(over(t, sandbox.WorkspaceWritable, dir))
		_, err := w.Start(t.Context(), sb)
		wantKind(t, "Start", err, sandbox.Unsupported)
		if err != nil && !strings.Contains(err.Error(), "hooks") {
			t.Errorf("the error does not say what it is about: %v", err)
		}
		w.mustRemove(t, sb.ID)
	})
}
