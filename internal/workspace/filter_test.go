package workspace_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/ignore"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// gitOut runs git where nothing but the repository has a say.
func gitOut(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent")
	out, err := cmd.Output()
	if err != nil && (args[0] != "check-ignore" || cmd.ProcessState.ExitCode() != 1) {
		t.Fatalf("git %v: %v", args, err)
	}
	return string(out)
}

func rules(t *testing.T, base string) *workspace.IgnoreRules {
	t.Helper()
	r, err := openBase(t, base).IgnoreRules(t.Context())
	must(t, err)
	return r
}

// TestIgnoreRulesAsGit asks git about every path of a repository with rules at each
// level, a repository within, and a work tree of another.
func TestIgnoreRulesAsGit(t *testing.T) {
	root := t.TempDir()
	tree{
		".gitignore": "node_modules/\n*.log\n/dist\n!important.log\npackages/*/out\n", "a.log": "", "important.log": "", "dist/x": "", "src/dist/x": "",
		"node_modules/m/i.js": "", "node_modules/.gitignore": "!m/\n", "packages/p/out/x": "", "packages/p/.gitignore": "!debug.log\nlocal*\n",
		"packages/p/debug.log": "", "packages/p/other.log": "", "packages/p/local.ts": "", "packages/p/node_modules/z": "", "excluded": "", "kept.log": "",
		"nested/a.log": "", "nested/own": "", "nested/.gitignore": "own\n", "nested/node_modules/x": "", "vendor.log/repo/f": "", "sp ace/[x]/f": "", "sp ace/[x]/.gitignore": "f\n",
	}.write(t, root)
	gitOut(t, root, "init", "-q")
	gitOut(t, filepath.Join(root, "nested"), "init", "-q")
	must(t, os.WriteFile(filepath.Join(root, ".git/info/exclude"), []byte("excluded\n"), 0o644))
	gitOut(t, root, "add", "-f", "kept.log")
	sameAsGit(t, root, root, "")
	sameAsGit(t, root, filepath.Join(root, "packages/p"), "packages/p")
	// A repository within is a matter of its own.
	sameAsGit(t, filepath.Join(root, "nested"), root, "nested")

	gitOut(t, root, "-c", "user.name=u", "-c", "user.email=u@example.com", "commit", "-qm", "one", "--allow-empty")
	linked := filepath.Join(t.TempDir(), "linked")
	gitOut(t, root, "worktree", "add", "-q", "--detach", linked)
	tree{"excluded": "", "some": "", ".gitignore": "x\n"}.write(t, linked)
	sameAsGit(t, linked, linked, "")
}

// sameAsGit compares what base ignores with what git says in its repository. Where that
// is in the base, prefix is where.
func sameAsGit(t *testing.T, repo, base, prefix string) {
	t.Helper()
	r := rules(t, base)
	list := ignore.NewList(r.Filter.Ignore, r.Filter.Prefix, r.Filter.Tracked)
	top := base
	if len(repo) > len(base) {
		top = repo
	}
	err := filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == top {
			return err
		}
		_, nested := os.Stat(filepath.Join(p, ".git"))
		if d.Name() == ".git" || d.IsDir() && nested == nil {
			return filepath.SkipDir
		}
		inBase, _ := filepath.Rel(base, p)
		inRepo, _ := filepath.Rel(repo, p)
		want := gitOut(t, repo, "check-ignore", inRepo) != ""
		if got := list.Has(inBase, d.IsDir()); got != want {
			t.Errorf("%s in %s is ignored: %v, git says %v; rules %q", inBase, base, got, want, r.Filter.Ignore)
		}
		return nil
	})
	must(t, err)
}

func TestIgnoreRulesElsewhere(t *testing.T) {
	t.Run("no-repository", func(t *testing.T) {
		root := t.TempDir()
		tree{".gitignore": "x\n", "d/.gitignore": "y\n"}.write(t, root)
		diff(t, "rules", rules(t, root).Filter.Ignore, []string{"x", "/d/**/y"})
	})
	t.Run("base-is-ignored", func(t *testing.T) {
		root := t.TempDir()
		tree{".gitignore": "*\n", "work/a": ""}.write(t, root)
		gitOut(t, root, "init", "-q")
		if r := rules(t, root+"/work"); len(r.Filter.Ignore) != 0 || r.Filter.Prefix != "" {
			t.Errorf("rules = %+v, want none: the base is no part of that repository", r.Filter)
		}
	})
	t.Run("links-and-pipes", func(t *testing.T) {
		root := t.TempDir()
		outside := filepath.Join(t.TempDir(), "rules")
		must(t, os.WriteFile(outside, []byte("*\n"), 0o644))
		must(t, os.Symlink(outside, root+"/.gitignore"))
		must(t, os.Mkdir(root+"/d", 0o755))
		must(t, exec.Command("mkfifo", root+"/d/.gitignore").Run())
		must(t, os.Symlink(filepath.Dir(outside), root+"/e"))
		r := rules(t, root)
		if len(r.Filter.Ignore) != 0 || len(r.Notes) == 0 {
			t.Errorf("rules = %+v, want none, and a note", r)
		}
	})
	t.Run("broken-index", func(t *testing.T) {
		root := t.TempDir()
		gitOut(t, root, "init", "-q")
		must(t, os.WriteFile(root+"/.git/index", []byte("DIRC"), 0o644))
		if r := rules(t, root); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "index") {
			t.Errorf("notes = %q, want one about the index", r.Notes)
		}
	})
}

// changed is a base and what a sandbox made of it, as an overlay's upper directory.
func changed(t *testing.T) (base, upper string) {
	base, upper = twoDirs(t, tree{".gitignore": "node_modules/\n*.log\n", "main.go": "1", "docs/a.md": "1", "docs/secret.log": "1"})
	tree{
		".gitignore": "*\n", "main.go": "2", "main_test.go": "n", "node_modules/m/i.js": "x", "node_modules/.bin/b": "x",
		"a.log": "x", "docs/a.md": "2", "sub/node_modules/z": "z",
	}.write(t, upper)
	return base, upper
}

func filtered(t *testing.T, base, upper string, f sandbox.ChangesFilter, paths ...string) *workspace.Diff {
	t.Helper()
	o := options(true, future, paths...)
	o.Filter = f
	set, err := workspace.Load(t.Context(), bytes.NewReader(stream(t, upper, o)), workspace.LoadOptions{SpoolDir: openDir(t, t.TempDir())})
	must(t, err)
	t.Cleanup(func() { set.Close() })
	d, err := workspace.Compare(t.Context(), openBase(t, base), set, workspace.CompareOptions{Paths: paths, Filter: f})
	must(t, err)
	return d
}

func TestFilter(t *testing.T) {
	base, upper := changed(t)
	ignored := rules(t, base).Filter
	with := func(edit func(*sandbox.ChangesFilter)) sandbox.ChangesFilter {
		f := ignored
		edit(&f)
		return f
	}
	tests := []struct {
		name   string
		filter sandbox.ChangesFilter
		paths  []string
		want   []string
		left   workspace.Left
	}{
		{name: "none", want: []string{
			"M .gitignore", "A a.log", "M docs/a.md", "M main.go", "A main_test.go", "A node_modules", "A node_modules/.bin",
			"A node_modules/.bin/b", "A node_modules/m", "A node_modules/m/i.js", "A sub", "A sub/node_modules", "A sub/node_modules/z",
		}},
		// The .gitignore that the sandbox wrote would hide all: the host's counts.
		{name: "ignored", filter: ignored, want: []string{"M .gitignore", "M docs/a.md", "M main.go", "A main_test.go", "A sub"}, left: workspace.Left{Ignored: 4}},
		{name: "exclude", filter: with(func(f *sandbox.ChangesFilter) { f.Exclude = []string{"*_test.go", "/docs/"} }), want: []string{"M .gitignore", "M main.go", "A sub"}, left: workspace.Left{Ignored: 4, Excluded: 2}},
		{name: "only", filter: with(func(f *sandbox.ChangesFilter) { f.Only = []string{"*.go"} }), want: []string{"M main.go", "A main_test.go"}, left: workspace.Left{Ignored: 4, Excluded: 2}},
		{name: "named", filter: ignored, paths: []string{"node_modules/m"}, want: []string{"A node_modules/m", "A node_modules/m/i.js"}},
		{name: "tracked", filter: with(func(f *sandbox.ChangesFilter) { f.Tracked = []string{"node_modules/m/i.js"} }), want: []string{
			"M .gitignore", "M docs/a.md", "M main.go", "A main_test.go", "A node_modules", "A node_modules/m", "A node_modules/m/i.js", "A sub",
		}, left: workspace.Left{Ignored: 3}},
	}
	sums := map[workspace.Digest]string{}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			d := filtered(t, base, upper, tc.filter, tc.paths...)
			got := letters(d.Items)
			got = slices.DeleteFunc(got, func(s string) bool { return s == "A node_modules" && tc.name == "named" })
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], "*")
			}
			diff(t, "items", got, tc.want)
			diff(t, "left", d.Left, tc.left)
			if other, ok := sums[d.Sum().Digest]; ok {
				t.Errorf("the digest is that of %s", other)
			}
			sums[d.Sum().Digest] = tc.name
		})
	}
}

// TestFilterCopy is TestFilter's for a copy.
func TestFilterCopy(t *testing.T) {
	base := t.TempDir()
	tree{".gitignore": "out/\n", "out/same": "s", "out/edited": "1", "out/gone": "g", "out/sub/gone": "g", "main.go": "1", "dir/out/x": "1"}.write(t, base)
	copied := t.TempDir()
	var manifest bytes.Buffer
	_, err := workspace.Populate(t.Context(), openDir(t, base), openDir(t, copied), workspace.PopulateOptions{UID: os.Getuid(), GID: os.Getgid(), Manifest: &manifest})
	must(t, err)
	tree{"out/edited": "22", "out/new/er": "n", "main.go": "22", "dir/out/y": "y"}.write(t, copied)
	must(t, os.Remove(copied+"/out/gone"))
	must(t, os.RemoveAll(copied+"/out/sub"))
	src, err := workspace.Copy(openDir(t, copied), bytes.NewReader(manifest.Bytes()))
	must(t, err)
	var s bytes.Buffer
	o := options(false, future)
	o.Filter = rules(t, base).Filter
	must(t, workspace.WriteChanges(t.Context(), &s, src, o))
	set, err := workspace.Load(t.Context(), &s, workspace.LoadOptions{})
	must(t, err)
	d, err := workspace.Compare(t.Context(), openBase(t, base), set, workspace.CompareOptions{Filter: o.Filter})
	must(t, err)
	diff(t, "items", letters(d.Items), []string{"M main.go"})
	diff(t, "left", d.Left, workspace.Left{Ignored: 5})
}

// TestFilterNeverRemoves: what is left out of a stream is not taken for deleted, nor
// goes with a directory that is.
func TestFilterNeverRemoves(t *testing.T) {
	privateMounts(t)
	base := t.TempDir()
	tree{".gitignore": "*.env\n", "again/my.env": "secret", "again/code": "1", "gone/my.env": "secret", "gone/code": "1", "all.env": "s", "plain/x": "1"}.write(t, base)
	merged, upper := overlay(t, base)
	for _, p := range []string{"again", "gone", "all.env", "plain"} {
		must(t, os.RemoveAll(merged+"/"+p))
	}
	tree{"again/new": "n"}.write(t, merged)
	o := options(true, future)
	o.Filter = rules(t, base).Filter
	res, err := apply(t, base, stream(t, upper, o), workspace.ApplyOptions{Filter: o.Filter})
	must(t, err)
	diff(t, "applied", letters(res.Applied), []string{"D again/code", "A again/new", "D plain"})
	diff(t, "held", letters(res.Held), []string{"*D gone"})
	for _, p := range []string{"again/my.env", "gone/my.env", "all.env", "gone/code"} {
		if _, err := os.Stat(filepath.Join(base, p)); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	// Without the filter it is taken for what it is.
	if _, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base + "/gone"); err == nil {
		t.Error("without a filter, gone is still there")
	}
}

func TestBrought(t *testing.T) {
	base, upper := twoDirs(t, tree{"edited": "2", "gone": "1", "same": "2", "l": "-> there"})
	tree{"edited": "1", "same": "2", "new": "1", "l": "-> here"}.write(t, upper)
	d := compare(t, base, stream(t, upper, options(true, future)))
	var brought []workspace.Brought
	for _, it := range d.Items {
		brought = append(brought, workspace.Brought{Mark: workspace.Mark{Path: it.Path}, Kind: it.Kind, Mode: it.Mode, Digest: it.Digest, Target: it.Target})
	}
	set, err := workspace.Load(t.Context(), bytes.NewReader(stream(t, upper, options(false, future))), workspace.LoadOptions{})
	must(t, err)
	again, err := workspace.Compare(t.Context(), openBase(t, base), set, workspace.CompareOptions{Brought: brought})
	must(t, err)
	diff(t, "what was only brought", letters(again.Items), []string{})

	// What the sandbox changed after is a change, and no conflict where the host is as it was.
	tree{"edited": "3"}.write(t, upper)
	st, err := openBase(t, base).Stamp("edited")
	must(t, err)
	now := workspace.Brought{Mark: st, Kind: workspace.File, Mode: 0o644}
	past := options(true, time.Unix(1, 0), "edited")
	res, err := apply(t, base, stream(t, upper, past), workspace.ApplyOptions{Paths: []string{"edited"}, Brought: []workspace.Brought{now}})
	must(t, err)
	diff(t, "applied", letters(res.Applied), []string{"M edited"})
}
