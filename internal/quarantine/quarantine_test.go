package quarantine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/quarantine"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/role"
)

func TestMain(m *testing.M) {
	role.Become(jail.Roles())
	os.Exit(m.Run())
}

const testID = "sb_aaaaaaaaaaaaaaaaaaaa"

// repo is a repository of a test's, with real git.
type repo struct {
	t   *testing.T
	dir string
}

// newRepo makes one with a commit on main.
func newRepo(t *testing.T, args ...string) *repo {
	t.Helper()
	r := &repo{t, t.TempDir()}
	r.git(append([]string{"init", "-q", "-b", "main"}, args...)...)
	r.commit("README", "hello\n", "first")
	return r
}

func (r *repo) command(args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b.example", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b.example", "GIT_COMMITTER_DATE=1700000000 +0000")
	return cmd
}

// git runs git, and returns what it says.
func (r *repo) git(args ...string) string {
	r.t.Helper()
	return r.gitIn("", args...)
}

func (r *repo) gitIn(in string, args ...string) string {
	r.t.Helper()
	cmd := r.command(args...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes a file and commits it.
func (r *repo) commit(name, text, subject string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		r.t.Fatal(err)
	}
	r.git("add", "-A")
	r.git("commit", "-q", "-m", subject)
	return r.git("rev-parse", "HEAD")
}

// view is the repository as a sandbox sees it: a copy.
func (r *repo) view() *repo {
	r.t.Helper()
	v := &repo{r.t, filepath.Join(r.t.TempDir(), "view")}
	if out, err := exec.Command("cp", "-a", r.dir, v.dir).CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	return v
}

// Refs implements quarantine.Source, as the other methods do, with git.
func (r *repo) Refs(ctx context.Context, out io.Writer) error {
	return r.say(ctx, "", out, "show-ref", "--head", "--heads", "--tags")
}

func (r *repo) Commits(ctx context.Context, tips []string, most int, out io.Writer) error {
	return r.say(ctx, strings.Join(tips, "\n"), out, "rev-list", "--parents", fmt.Sprintf("--max-count=%d", most), "--stdin")
}

func (r *repo) Pack(ctx context.Context, want, have []string, out io.Writer) error {
	in := strings.Join(want, "\n") + "\n"
	for _, h := range have {
		in += "^" + h + "\n"
	}
	return r.say(ctx, in, out, "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q")
}

func (r *repo) say(_ context.Context, in string, out io.Writer, args ...string) error {
	cmd := r.command(args...)
	cmd.Stdin, cmd.Stdout = strings.NewReader(in), out
	return cmd.Run()
}

// state is each file of a repository's directory, and what is in it.
func (r *repo) state() map[string]string {
	r.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(r.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%v", fi.Mode())
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %x %d %v", sha256.Sum256(b), fi.Size(), fi.ModTime())
		}
		rel, err := filepath.Rel(r.dir, p)
		all[rel] = text
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// added are the paths that are new since before, less the ends of packs. Whatever else
// differs is an error.
func (r *repo) added(before map[string]string) (added []string) {
	r.t.Helper()
	after := r.state()
	for p, was := range before {
		if after[p] != was {
			r.t.Errorf("%s: %q, and was %q", p, after[p], was)
		}
	}
	for p := range after {
		if _, ok := before[p]; !ok {
			added = append(added, p)
		}
	}
	return added
}

// fetch takes what src has into r.
func (r *repo) fetch(src quarantine.Source, change ...func(*quarantine.Options)) (*quarantine.Result, error) {
	r.t.Helper()
	git, err := jail.Find(r.t.Context(), os.Getenv("PATH"))
	if err != nil {
		r.t.Fatal(err)
	}
	repo, err := quarantine.Open(r.t.Context(), git, r.dir)
	if err != nil {
		return nil, err
	}
	state := r.t.TempDir()
	o := quarantine.Options{State: state, ID: testID, Name: "otter"}
	for _, c := range change {
		c(&o)
	}
	res, err := repo.Fetch(r.t.Context(), src, o)
	if left, _ := filepath.Glob(filepath.Join(o.State, "fetch", "*")); len(left) > 0 {
		r.t.Errorf("a fetch left %q", left)
	}
	return res, err
}

// states is what became of each ref, in short.
func states(res *quarantine.Result) map[string]string {
	m := map[string]string{}
	for _, c := range res.Refs {
		m[strings.TrimPrefix(c.Ref, "refs/carboy/otter/")] = fmt.Sprintf("%s %d", c.State, len(c.Commits))
	}
	return m
}

// TestFetch: commits come, and nothing else of the repository changes.
func TestFetch(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			mine := newRepo(t, "--object-format="+format)
			mine.commit("other", "x\n", "second")
			mine.git("tag", "v0")
			mine.git("pack-refs", "--all")
			view := mine.view()
			view.git("switch", "-q", "-c", "fix")
			view.commit("a.go", "package a\n", "fix \x1b[31mit")
			view.commit(".github/workflows/ci.yml", "on: push\n", "and that")
			view.git("tag", "-a", "-m", "one", "v1")
			view.git("branch", "idle", "main")
			if err := os.WriteFile(filepath.Join(mine.dir, "dirty"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := mine.state()

			res, err := mine.fetch(view)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"fix": "new 2", "tags/v1": "new 2"}
			if diff := cmp.Diff(want, states(res)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if h := res.Refs[0].Held; len(h) != 1 || h[0].Path != ".github/workflows/ci.yml" {
				t.Errorf("held: %v", h)
			}
			for _, p := range mine.added(before) {
				if !strings.HasPrefix(p, ".git/objects/pack/pack-") && p != ".git/refs/carboy" && !strings.HasPrefix(p, ".git/refs/carboy/") {
					t.Errorf("%s was made", p)
				}
			}
			mine.git("fsck", "--strict", "--full")
			mine.git("merge", "-q", "refs/carboy/otter/fix")
			if got := mine.git("log", "-1", "--format=%s"); got != "and that" {
				t.Errorf("merged: %q", got)
			}
		})
	}
}

// TestFetchAgain: a second fetch brings what is new, says what was rewritten, and
// removes what is gone where it is told to.
// TestFetchOfDeltas: commits whose trees come as deltas, after the files that git looks at a
// second time, are as lawful as others.
func TestFetchOfDeltas(t *testing.T) {
	mine := newRepo(t)
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(mine.dir, fmt.Sprintf("a-file-of-many-%03d", i)), []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mine.git("add", ".")
	mine.commit("b", "1\n", "many")
	view := mine.view()
	view.git("switch", "-q", "-c", "fix")
	for i := range 3 {
		view.commit(".gitattributes", strings.Repeat("*.x text\n", i+1), "attributes")
	}
	res, err := mine.fetch(view)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"fix": "new 3"}, states(res)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestFetchAgain(t *testing.T) {
	mine := newRepo(t)
	view := mine.view()
	view.git("switch", "-q", "-c", "fix")
	view.commit("a", "1", "one")
	view.git("branch", "side")
	step := func(want map[string]string, change ...func(*quarantine.Options)) {
		t.Helper()
		res, err := mine.fetch(view, change...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, states(res)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	step(map[string]string{"fix": "new 1", "side": "new 1"})
	before := mine.state()
	step(map[string]string{"fix": "same 0", "side": "same 0"})
	if added := mine.added(before); len(added) > 0 {
		t.Errorf("nothing came, and %q", added)
	}
	view.commit("a", "2", "two")
	step(map[string]string{"fix": "updated 1", "side": "same 0"})
	view.git("reset", "-q", "--hard", "HEAD~2")
	view.commit("a", "3", "three")
	view.git("branch", "-D", "side")
	step(map[string]string{"fix": "forced 1", "side": "gone 0"})
	view.git("branch", "side/way")
	if _, err := mine.fetch(view); err == nil || !strings.Contains(err.Error(), "can't both be") {
		t.Errorf("a file and a directory at once: %v", err)
	}
	step(map[string]string{"fix": "same 0", "side": "pruned 0", "side/way": "new 0"}, func(o *quarantine.Options) { o.Prune = true })
	view.git("checkout", "-q", "--detach")
	view.commit("a", "4", "apart")
	step(map[string]string{"HEAD": "new 1", "fix": "same 0", "side/way": "same 0"})
	step(map[string]string{"main": "new 0"}, func(o *quarantine.Options) { o.Named = []string{"main"} })
	if _, err := mine.fetch(view, func(o *quarantine.Options) { o.Named = []string{"nope"} }); err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("no such branch: %v", err)
	}
}

// stream is a source that says what it was given.
type stream struct {
	refs string
	pack []byte
}

func (s stream) Refs(_ context.Context, out io.Writer) error { return write(out, s.refs) }

func (s stream) Commits(context.Context, []string, int, io.Writer) error { return nil }

func (s stream) Pack(_ context.Context, _, _ []string, out io.Writer) error {
	_, err := io.Copy(out, bytes.NewReader(s.pack))
	return err
}

func write(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return err
}
