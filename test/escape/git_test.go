package escape

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// gitSetup makes a repository with submodules, one of them not there yet, a
// linked worktree, and a repository of its own in a directory of it.
const gitSetup = `
git init -q origin && git -C origin commit -q --allow-empty -m one
git init -q tree && cd tree
for sub in libs/sub sub absent later; do git submodule --quiet add "$PWD/../origin" $sub; done
git commit -q -m submodules
for sub in absent later; do git submodule --quiet deinit -f $sub; rm -rf .git/modules/$sub; done
git worktree add -q trees/linked -b linked
git init -q way/own`

// gitReplacements put repositories in the places of those, or make what git on
// the host would take for theirs. What git obeys of each leaves a file.
const gitReplacements = `cd /workspace
obey() { git -C $1 config core.fsmonitor "touch $RAN-$2; :"; }
plant() { git init -q $1 && obey $1 $2; }
mv libs libs.old && mkdir libs && plant libs/sub way-to-submodule
mv sub sub.old && plant sub submodule
plant absent absent-submodule
git init -q --bare .git/modules/later && git -C .git/modules/later config core.bare false && obey .git/modules/later module
mv trees trees.old && mkdir trees && plant trees/linked worktree
mv way way.old && mkdir way && plant way/own nested
echo tried`

// gitLooks are what the host then asks git, where it is.
const gitLooks = `git status
git -C libs/sub status
git -C trees/linked status
git -C way/own status
git submodule update --init later
git -C later status
true`

// gitReplaced has a box that is shown a repository put others into it, and then
// runs git there, on the host.
func gitReplaced(w *world) (found []string) {
	if w.user == "root" {
		return nil // who is shown no such tree
	}
	dir := w.path("git")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		w.t.Fatal(err)
	}
	w.hostGit(dir, "set -e"+gitSetup)
	tree, ran := dir+"/tree", dir+"/ran"
	w.hostGit(tree, gitLooks+"; git submodule --quiet deinit -f later; rm -rf .git/modules/later")
	out := w.further("RAN="+ran+"; "+gitReplacements+" 2>&1", "--workspace", tree+":rw")
	w.whole(strings.Contains(out, "tried"), "it was not tried:\n%s", out)
	w.hostGit(tree, gitLooks)
	marks, err := filepath.Glob(ran + "-*")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range marks {
		found = append(found, "git on the host runs what is set in the place of "+strings.TrimPrefix(m, ran+"-"))
	}
	return found
}

// hostGit runs a script of git's on the host.
func (w *world) hostGit(dir, script string) {
	w.t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(w.env, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=4",
		"GIT_CONFIG_KEY_0=user.name", "GIT_CONFIG_VALUE_0=a", "GIT_CONFIG_KEY_1=user.email", "GIT_CONFIG_VALUE_1=a@example.com",
		"GIT_CONFIG_KEY_2=protocol.file.allow", "GIT_CONFIG_VALUE_2=always", "GIT_CONFIG_KEY_3=safe.directory", "GIT_CONFIG_VALUE_3=*")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("git on the host: %v: %s", err, out)
	}
}
