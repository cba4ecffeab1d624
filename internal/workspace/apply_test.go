package workspace_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

func TestApply(t *testing.T) {
	tests := []struct {
		name  string
		base  tree
		upper func(t *testing.T, upper string)
		opts  workspace.ApplyOptions
		diff  []string // as letters
		want  tree     // of base afterwards
		held  []string
		kind  sandbox.Kind
	}{
		{
			name: "nothing", base: tree{"a": "1"},
			upper: func(*testing.T, string) {}, diff: []string{}, want: tree{"a": "1"},
		},
		{
			name: "add-modify-delete", base: tree{"a": "1", "d/b": "2", "d/c": "3"},
			upper: func(t *testing.T, u string) {
				tree{"a": "new", "d/n": "x! run", "e/f/g": "deep"}.write(t, u)
				whiteout(t, u+"/d/b")
			},
			diff: []string{"M a", "D d/b", "A d/n", "A e", "A e/f", "A e/f/g"},
			want: tree{"a": "new", "d": "/", "d/c": "3", "d/n": "x! run", "e": "/", "e/f": "/", "e/f/g": "deep"},
		},
		{
			name: "copied-up-but-the-same", base: tree{"a": "1", "l": "-> a", "d/b": "x! 2"},
			upper: func(t *testing.T, u string) { tree{"a": "1", "l": "-> a", "d/b": "x! 2"}.write(t, u) },
			diff:  []string{}, want: tree{"a": "1", "l": "-> a", "d": "/", "d/b": "x! 2"},
		},
		{
			name: "executable", base: tree{"a": "1", "b": "x! 2"},
			upper: func(t *testing.T, u string) { tree{"a": "x! 1", "b": "2"}.write(t, u) },
			diff:  []string{"X a", "X b"}, want: tree{"a": "x! 1", "b": "2"},
		},
		{
			name: "opaque", base: tree{"d/a": "1", "d/s/b": "2", "d/s/c": "3"},
			upper: func(t *testing.T, u string) {
				opaque(t, u+"/d")
				tree{"d/s/b": "2"}.write(t, u)
			},
			diff: []string{"D d/a", "D d/s/c"}, want: tree{"d": "/", "d/s": "/", "d/s/b": "2"},
		},
		{
			name: "file-to-directory", base: tree{"a": "1"},
			upper: func(t *testing.T, u string) { tree{"a/b": "2"}.write(t, u) },
			diff:  []string{"T a", "A a/b"}, want: tree{"a": "/", "a/b": "2"},
		},
		{
			name: "directory-to-file", base: tree{"a/b/c": "1", "a/d": "2"},
			upper: func(t *testing.T, u string) { tree{"a": "2"}.write(t, u) },
			diff:  []string{"T a"}, want: tree{"a": "2"},
		},
		{
			name: "directory-to-link", base: tree{"a/b": "1", "c/d": "2"},
			upper: func(t *testing.T, u string) { tree{"a": "-> c"}.write(t, u) },
			diff:  []string{"T a"}, want: tree{"a": "-> c", "c": "/", "c/d": "2"},
		},
		{
			name: "link-to-directory", base: tree{"a": "-> c", "c/d": "2"},
			upper: func(t *testing.T, u string) { tree{"a/d": "3"}.write(t, u) },
			diff:  []string{"T a", "A a/d"}, want: tree{"a": "/", "a/d": "3", "c": "/", "c/d": "2"},
		},
		{
			name: "file-to-link-and-back", base: tree{"a": "1", "b": "-> a", "c": "-> a"},
			upper: func(t *testing.T, u string) { tree{"a": "-> x", "b": "2", "c": "-> b"}.write(t, u) },
			diff:  []string{"T a", "T b", "M c"}, want: tree{"a": "-> x", "b": "2", "c": "-> b"},
		},
		{
			name: "delete-directory", base: tree{"a/b/c": "1", "a/d": "2", "e": "3"},
			upper: func(t *testing.T, u string) { whiteout(t, u+"/a") },
			diff:  []string{"D a"}, want: tree{"e": "3"},
		},
		{
			name: "delete-what-is-gone", base: tree{"e": "3"},
			upper: func(t *testing.T, u string) { whiteout(t, u+"/a") },
			diff:  []string{}, want: tree{"e": "3"},
		},
		{
			name: "by-path", base: tree{"a": "1", "b": "1"},
			upper: func(t *testing.T, u string) { tree{"a": "2", "b": "2", "n/x/y": "3", "n/z": "4"}.write(t, u) },
			opts:  workspace.ApplyOptions{Paths: []string{"b", "n/x/"}},
			diff:  []string{"M b", "A n/x", "A n/x/y"},
			want:  tree{"a": "1", "b": "2", "n": "/", "n/x": "/", "n/x/y": "3"},
		},
		{
			name: "by-path-in-opaque", base: tree{"d/a": "1", "d/b/c": "2", "d/e": "3"},
			upper: func(t *testing.T, u string) { opaque(t, u+"/d") },
			opts:  workspace.ApplyOptions{Paths: []string{"d/b/c", "d/e"}},
			diff:  []string{"D d/b/c", "D d/e"}, want: tree{"d": "/", "d/a": "1", "d/b": "/"},
		},
		{
			name: "by-path-below-deleted", base: tree{"d/a": "1", "d/b": "2"},
			upper: func(t *testing.T, u string) { whiteout(t, u+"/d") },
			opts:  workspace.ApplyOptions{Paths: []string{"d/b"}},
			diff:  []string{"D d/b"}, want: tree{"d": "/", "d/a": "1"},
		},
		{
			name: "held", base: tree{"a": "1"},
			upper: func(t *testing.T, u string) {
				tree{"a": "2", ".git/hooks/pre-commit": "x! evil", ".envrc": "evil", "out": "-> /etc/passwd", "p": "fifo"}.write(t, u)
			},
			diff: []string{"*A .envrc", "*A .git", "*A .git/hooks", "*A .git/hooks/pre-commit", "M a", "*A out", "*A p"},
			want: tree{"a": "2"}, held: []string{".envrc", ".git", ".git/hooks", ".git/hooks/pre-commit", "out", "p"},
		},
		{
			name: "held-but-named", base: tree{},
			upper: func(t *testing.T, u string) {
				tree{".github/workflows/ci.yml": "ci", "out": "-> /etc/passwd", "sub/.envrc": "e", "sub/.env": "f"}.write(t, u)
			},
			opts: workspace.ApplyOptions{Allow: []string{".github/workflows", "out", "sub", "sub/.env"}},
			diff: []string{"*A .github", "*A .github/workflows", "*A .github/workflows/ci.yml", "*A out", "A sub", "*A sub/.env", "*A sub/.envrc"},
			want: tree{
				".github": "/", ".github/workflows": "/", ".github/workflows/ci.yml": "ci", "out": "-> /etc/passwd",
				"sub": "/", "sub/.env": "f",
			},
			held: []string{".github", "sub/.envrc"},
		},
		{
			name: "dot-allows-nothing", base: tree{},
			upper: func(t *testing.T, u string) { tree{".envrc": "e"}.write(t, u) },
			opts:  workspace.ApplyOptions{Allow: []string{"."}},
			diff:  []string{"*A .envrc"}, want: tree{}, held: []string{".envrc"},
		},
		{
			name: "special-is-never-applied", base: tree{},
			upper: func(t *testing.T, u string) { tree{"p": "fifo"}.write(t, u) },
			opts:  workspace.ApplyOptions{Allow: []string{"p"}},
			diff:  []string{"*A p"}, want: tree{}, held: []string{"p"},
		},
		{
			name: "changed-since", base: tree{"a": "1", "b": "1"},
			upper: func(t *testing.T, u string) { tree{"a": "2", "c": "new"}.write(t, u) },
			opts:  workspace.ApplyOptions{Since: past},
			diff:  []string{"M a", "A c"}, want: tree{"a": "1", "b": "1"}, kind: sandbox.Conflict,
		},
		{
			name: "changed-since-to-the-same", base: tree{"a": "2"},
			upper: func(t *testing.T, u string) { tree{"a": "2", "c": "new"}.write(t, u) },
			opts:  workspace.ApplyOptions{Since: past},
			diff:  []string{"A c"}, want: tree{"a": "2", "c": "new"},
		},
		{
			name: "changed-since-elsewhere", base: tree{"a": "1", "b": "1"},
			upper: func(t *testing.T, u string) { tree{"a": "2", "c": "new"}.write(t, u) },
			opts:  workspace.ApplyOptions{Since: past, Paths: []string{"c"}},
			diff:  []string{"A c"}, want: tree{"a": "1", "b": "1", "c": "new"},
		},
		{
			name: "changed-since-and-forced", base: tree{"a": "1"},
			upper: func(t *testing.T, u string) { tree{"a": "2"}.write(t, u) },
			opts:  workspace.ApplyOptions{Since: past, Paths: []string{"a"}, Force: true},
			diff:  []string{"M a"}, want: tree{"a": "2"},
		},
		{
			name: "deleted-directory-changed-since", base: tree{"d/a": "1"},
			upper: func(t *testing.T, u string) { whiteout(t, u+"/d") },
			opts:  workspace.ApplyOptions{Since: past},
			diff:  []string{"D d"}, want: tree{"d": "/", "d/a": "1"}, kind: sandbox.Conflict,
		},
		{
			name: "deleted-directory-with-repository", base: tree{"d/e/.git/config": "1"},
			upper: func(t *testing.T, u string) { whiteout(t, u+"/d") },
			diff:  []string{"*D d"}, want: tree{"d": "/", "d/e": "/", "d/e/.git": "/", "d/e/.git/config": "1"}, held: []string{"d"},
		},
		{
			name: "force-without-paths", base: tree{"a": "1"},
			upper: func(t *testing.T, u string) { tree{"a": "2"}.write(t, u) },
			opts:  workspace.ApplyOptions{Force: true},
			diff:  []string{"M a"}, want: tree{"a": "1"}, kind: sandbox.Invalid,
		},
		{
			name: "path-outside", base: tree{"a": "1"},
			upper: func(t *testing.T, u string) { tree{"a": "2"}.write(t, u) },
			opts:  workspace.ApplyOptions{Paths: []string{"../a"}},
			want:  tree{"a": "1"}, kind: sandbox.Invalid,
		},
		{
			name: "dry-run", base: tree{"a": "1"},
			upper: func(t *testing.T, u string) { tree{"a": "2", "b": "3"}.write(t, u) },
			opts:  workspace.ApplyOptions{DryRun: true},
			diff:  []string{"M a", "A b"}, want: tree{"a": "1"},
		},
		{
			name: "parent-not-selected", base: tree{"a": "1"},
			upper: func(t *testing.T, u string) { tree{"a/b": "2"}.write(t, u) },
			opts:  workspace.ApplyOptions{Paths: []string{"a/b"}},
			diff:  []string{"A a/b"}, want: tree{"a": "1"}, kind: sandbox.Conflict,
		},
		{
			name: "symlink-in-the-way", base: tree{"a": "-> ../outside"},
			upper: func(t *testing.T, u string) { tree{"a/b": "2"}.write(t, u) },
			opts:  workspace.ApplyOptions{Paths: []string{"a/b"}},
			diff:  []string{"A a/b"}, want: tree{"a": "-> ../outside"}, kind: sandbox.Conflict,
		},
		{
			name: "strange-names", base: tree{},
			upper: func(t *testing.T, u string) {
				tree{"new\nline": "1", "\x1b[31m": "2", "\xff\xfe": "3", "a b/..c": "4", "a-b": "5", "a.b": "6", "a/b": "7"}.write(t, u)
			},
			diff: []string{"A \x1b[31m", "A a", "A a/b", "A a b", "A a b/..c", "A a-b", "A a.b", "A new\nline", "A \xff\xfe"},
			want: tree{
				"new\nline": "1", "\x1b[31m": "2", "\xff\xfe": "3", "a b": "/", "a b/..c": "4", "a-b": "5", "a.b": "6", "a": "/", "a/b": "7",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base, upper := twoDirs(t, tt.base)
			tt.upper(t, upper)
			s := stream(t, upper, options(true, future))
			if tt.diff != nil {
				diff(t, "diff", letters(compare(t, base, s, tt.opts.Paths...).Items), tt.diff)
			}
			res, err := apply(t, base, s, tt.opts)
			if got := sandbox.KindOf(err); got != tt.kind {
				t.Fatalf("Apply = %v, want kind %q", err, tt.kind)
			}
			diff(t, "base", read(t, base), tt.want)
			if tt.held != nil {
				diff(t, "held", paths(res.Held), tt.held)
			}
			if tt.kind == sandbox.Conflict && (len(res.Conflicts) == 0 || len(res.Applied) > 0) {
				t.Errorf("conflicts %d, applied %d, want some and none", len(res.Conflicts), len(res.Applied))
			}
		})
	}
}

func TestConflictSaysWhatToDo(t *testing.T) {
	base, upper := twoDirs(t, tree{"a\x1b": "1"})
	tree{"a\x1b": "2"}.write(t, upper)
	_, err := apply(t, base, stream(t, upper, options(true, past)), workspace.ApplyOptions{})
	var e *sandbox.Error
	if !errors.As(err, &e) {
		t.Fatalf("Apply = %v, want a *sandbox.Error", err)
	}
	if want := `apply: a\x1b: it changed on the host since the workspace was made, and no copy of the earlier text is kept to merge with; nothing was changed`; e.Msg != want {
		t.Errorf("message = %q, want %q", e.Msg, want)
	}
	if want := `apply other paths, or take the workspace's side: --force a\x1b`; e.Hint != want {
		t.Errorf("hint = %q, want %q", e.Hint, want)
	}
}

func TestApplyAgainAfterMoreWork(t *testing.T) {
	base, upper := twoDirs(t, tree{"a": "1"})
	tree{"a": "2", "d/n": "1"}.write(t, upper)
	first, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{})
	must(t, err)

	tree{"a": "3", "d/n": "2"}.write(t, upper)
	s := stream(t, upper, options(true, past))
	if _, err := apply(t, base, s, workspace.ApplyOptions{}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Fatalf("Apply without marks = %v, want a conflict", err)
	}
	if _, err := apply(t, base, s, workspace.ApplyOptions{Applied: first.Marks}); err != nil {
		t.Fatalf("Apply with marks = %v", err)
	}
	diff(t, "base", read(t, base), tree{"a": "3", "d": "/", "d/n": "2"})

	whiteout(t, upper+"/x")
	must(t, os.RemoveAll(upper+"/d"))
	whiteout(t, upper+"/d")
	s = stream(t, upper, options(true, past))
	second, err := apply(t, base, s, workspace.ApplyOptions{Applied: first.Marks})
	if sandbox.KindOf(err) != sandbox.Conflict {
		t.Fatalf("Apply with old marks = %v, want a conflict", err)
	}
	if len(second.Marks) != 0 {
		t.Errorf("a refused apply returned %d marks", len(second.Marks))
	}
}

func TestConfirm(t *testing.T) {
	base, upper := twoDirs(t, tree{"a": "1", "t": "1"})
	tree{"a": "2", "n/x": "1", "n/y": "2", "o/z": "3", "t/u": "4", "e": "/"}.write(t, upper)
	s := stream(t, upper, options(true, future))
	var asked []string
	res, err := apply(t, base, s, workspace.ApplyOptions{Confirm: func(it workspace.Item) (bool, error) {
		asked = append(asked, it.Path)
		return it.Path == "n/x" || it.Path == "e", nil
	}})
	must(t, err)
	diff(t, "asked", asked, []string{"a", "e", "n/x", "n/y", "o/z", "t"})
	diff(t, "base", read(t, base), tree{"a": "1", "t": "1", "e": "/", "n": "/", "n/x": "1"})
	diff(t, "declined", paths(res.Declined), []string{"a", "n/y", "o/z", "t", "t/u"})

	stop := errors.New("stop")
	_, err = apply(t, base, s, workspace.ApplyOptions{Confirm: func(it workspace.Item) (bool, error) {
		return true, map[bool]error{true: stop}[it.Path == "o/z"]
	}})
	if !errors.Is(err, stop) {
		t.Fatalf("Apply = %v, want %v", err, stop)
	}
	diff(t, "base after stop", read(t, base), tree{"a": "1", "t": "1", "e": "/", "n": "/", "n/x": "1"})
}

func TestModes(t *testing.T) {
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	base, upper := twoDirs(t, tree{"secret": "1", "wide": "1", "prog": "1"})
	must(t, os.Chmod(base+"/secret", 0o600))
	must(t, os.Chmod(base+"/wide", 0o664))
	must(t, os.Chmod(base+"/prog", 0o640))
	tree{"secret": "2", "wide": "2", "prog": "2", "new": "1", "private": "1", "suid": "1", "named": "1", "dir/f": "1"}.write(t, upper)
	for p, mode := range map[string]uint32{
		"secret": 0o644, "wide": 0o600, "prog": 0o755, "new": 0o666, "private": 0o400, "suid": 0o6755, "named": 0o4755, "dir": 0o3777,
	} {
		must(t, unix.Chmod(upper+"/"+p, mode))
	}
	_, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{Allow: []string{"named"}})
	must(t, err)
	got, want := map[string]uint32{}, map[string]uint32{
		"secret": 0o600, "wide": 0o664, "prog": 0o750, "new": 0o644, "private": 0o400, "suid": 0o755, "named": 0o4755, "dir": 0o755,
	}
	for p := range want {
		var st unix.Stat_t
		must(t, unix.Lstat(base+"/"+p, &st))
		got[p] = st.Mode & 0o7777
	}
	diff(t, "modes", got, want)
}

func TestNoTimesFromTheAgent(t *testing.T) {
	base, upper := twoDirs(t, tree{"a": "1"})
	tree{"a": "2"}.write(t, upper)
	must(t, os.Chtimes(upper+"/a", past, past))
	before, err := os.Stat(base + "/a")
	must(t, err)
	_, err = apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{})
	must(t, err)
	after, err := os.Stat(base + "/a")
	must(t, err)
	if after.ModTime().Before(before.ModTime()) {
		t.Errorf("modification time went from %v back to %v", before.ModTime(), after.ModTime())
	}
}

func TestCancelledApplyChangesNothing(t *testing.T) {
	base, upper := twoDirs(t, tree{"a": "1"})
	tree{"a": "2"}.write(t, upper)
	s := stream(t, upper, options(true, future))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	_, err := workspace.Apply(ctx, openBase(t, base), strings.NewReader(string(s)), workspace.ApplyOptions{})
	if !errors.Is(err, cause) {
		t.Fatalf("Apply = %v, want %v", err, cause)
	}
	diff(t, "base", read(t, base), tree{"a": "1"})
}

func TestSparseFilesStaySparse(t *testing.T) {
	base, upper := twoDirs(t, tree{})
	const size = 1 << 40 // hours, if holes were read
	f, err := os.Create(upper + "/big")
	must(t, err)
	must(t, f.Truncate(size))
	_, err = f.WriteAt([]byte("middle"), size/2)
	must(t, err)
	must(t, f.Close())
	must(t, os.Truncate(upper+"/big", size))
	tree{"hole": ""}.write(t, upper)
	must(t, os.Truncate(upper+"/hole", 10<<20))

	s := stream(t, upper, options(true, future))
	if len(s) > 1<<20 {
		t.Errorf("stream of %d bytes for 6 bytes of data", len(s))
	}
	_, err = apply(t, base, s, workspace.ApplyOptions{})
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Stat(base+"/big", &st))
	if st.Size != size || st.Blocks > 1<<10 {
		t.Errorf("size %d with %d blocks, want %d with few", st.Size, st.Blocks, size)
	}
	got := make([]byte, 6)
	g := openDir(t, base+"/big")
	_, err = g.ReadAt(got, size/2)
	must(t, err)
	if string(got) != "middle" {
		t.Errorf("read %q, want %q", got, "middle")
	}
	diff(t, "second diff", letters(compare(t, base, s).Items), []string{})
}

func TestHardLinks(t *testing.T) {
	base, upper := twoDirs(t, tree{"a": "1"})
	must(t, os.Link(base+"/a", base+"/b"))
	tree{"a": "2", "c": "3"}.write(t, upper)
	must(t, os.Link(upper+"/a", upper+"/b"))
	_, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{})
	must(t, err)
	diff(t, "base", read(t, base), tree{"a": "2", "b": "2", "c": "3"})
	leftovers(t, filepath.Dir(base))
}

// A file that became executable in the workspace has a name outside it, too,
// and what goes by that one stays as it is.
func TestModeOfHardLink(t *testing.T) {
	base, upper := twoDirs(t, tree{"a": "1"})
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.Link(base+"/a", outside))
	tree{"a": "1"}.write(t, upper)
	must(t, os.Chmod(upper+"/a", 0o755))
	_, err := apply(t, base, stream(t, upper, options(true, future)), workspace.ApplyOptions{})
	must(t, err)
	diff(t, "base", read(t, base), tree{"a": "x! 1"})
	fi, err := os.Stat(outside)
	must(t, err)
	if fi.Mode().Perm()&0o111 != 0 {
		t.Errorf("the other name is %v", fi.Mode())
	}
	leftovers(t, filepath.Dir(base))
}

// leftovers fails the test if any temporary file is below dir.
func leftovers(t *testing.T, dir string) {
	t.Helper()
	for p := range read(t, dir) {
		if strings.Contains(p, ".carboy-tmp-") {
			t.Errorf("left behind: %s", p)
		}
	}
}
