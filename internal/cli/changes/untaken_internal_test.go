package changes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
)

// TestRefIDs: what names a commit that could be lost is found, and what is no file of refs
// is not read as one.
func TestRefIDs(t *testing.T) {
	a, b := strings.Repeat("a", 40), strings.Repeat("b", 40)
	for name, tt := range map[string]struct {
		path, file string
		want       []string
		ok         bool
	}{
		"loose":      {".git/refs/heads/x", a + "\n", []string{a}, true},
		"symbolic":   {".git/HEAD", "ref: refs/heads/main\n", nil, true},
		"empty":      {".git/refs/heads/x", "", nil, true},
		"packed":     {".git/packed-refs", "# pack-refs with: peeled\n" + a + " refs/heads/x\n" + a + " refs/remotes/origin/x\n" + b + " refs/stash\n^" + a + "\n", []string{a, b, a}, true},
		"stashes":    {stashes, b + " " + a + " A <a@b> 1 +0000\tWIP\n" + a + " " + b + " A <a@b> 1 +0000\tWIP\n", []string{a, b}, true},
		"no-stashes": {stashes, b, []string{""}, true}, // which no repository has
		"no-name":    {".git/HEAD", "zz\n", []string{"zz"}, true},
		"like-one":   {".git/refs/heads/x", a + " refs/remotes/x\n", []string{a + " refs/remotes/x"}, true},
		"two":        {".git/refs/heads/x", a + "\n" + b + "\n", nil, false},
		"long":       {".git/HEAD", strings.Repeat("x", maxRefLine+1), nil, false},
		"many":       {".git/packed-refs", strings.Repeat(a+" refs/heads/x\n", maxRefIDs+1), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := refIDs(nil, tt.path, strings.NewReader(tt.file))
			if ok != tt.ok || ok && !slices.Equal(got, tt.want) {
				t.Errorf("%q, %v, want %q, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// TestOfCommits: what git runs or obeys is no file in which it keeps commits.
func TestOfCommits(t *testing.T) {
	for p, want := range map[string]bool{
		".git": true, ".git/objects/aa/b": true, ".git/refs/heads/x": true, ".git/index": true, ".git/hooks": false, ".git/hooks/x": false,
		".git/config": false, ".git/info/attributes": false, ".git/info/refs": true, ".github/workflows/x": false, "a/.git/objects/x": false, ".gitx/objects": false,
	} {
		if got := ofCommits(p); got != want {
			t.Errorf("%s: %v, want %v", p, got, want)
		}
	}
}

// TestOfSubmodule: what a submodule's repository names is known by its file.
func TestOfSubmodule(t *testing.T) {
	for p, want := range map[string]bool{
		".git/modules/sub/HEAD": true, ".git/modules/a/b/packed-refs": true, ".git/modules/sub/refs/heads/fix": true, ".git/modules/sub/logs/refs/stash": true,
		".git/modules/sub/index": false, ".git/modules/sub/objects/aa/b": false, ".git/modules/sub/refs/remotes/origin/HEAD": false,
		".git/modules/sub/logs/HEAD": false, ".git/refs/heads/x": false, "modules/sub/HEAD": false,
	} {
		if got := ofSubmodule(p); got != want {
			t.Errorf("%s: %v, want %v", p, got, want)
		}
	}
}

// TestGitKeeps: where the directory's .git leads elsewhere, that of the sandbox is its own.
func TestGitKeeps(t *testing.T) {
	sb := &api.Sandbox{Workspace: api.Workspace{Source: t.TempDir()}}
	if gitKeeps(ofSandbox(sb))(".git/hooks/x") {
		t.Error("a hook of a directory's own repository is no matter of git's alone")
	}
	if err := os.WriteFile(filepath.Join(sb.Workspace.Source, ".git"), []byte("gitdir: /elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept := gitKeeps(ofSandbox(sb)); !kept(".git/hooks/x") || !kept(".git") || kept(".github/x") || kept("a/.git/x") {
		t.Error("all of .git is the sandbox's own, and nothing else")
	}
}
