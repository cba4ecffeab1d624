package backendtest

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// changesOf reads an instance's changes: the kind of each path, with a file's
// content or a link's target after it.
func (w *world) changesOf(t *testing.T, sb *sandbox.Sandbox, opts sandbox.ChangesOptions) map[string]string {
	t.Helper()
	var stream bytes.Buffer
	if err := w.Changes(t.Context(), sb, opts, &stream); err != nil {
		t.Fatalf("Changes: %v", err)
	}
	got := map[string]string{}
	for c, err := range workspace.Read(&stream) {
		if err != nil {
			t.Fatalf("read the changes: %v", err)
		}
		what := string(c.Kind)
		switch {
		case c.Kind == workspace.Symlink:
			what += " " + c.Target
		case c.Kind == workspace.Special:
			what += " " + c.Detail
		case c.Body != nil:
			body, err := io.ReadAll(c.Body)
			must(t, err)
			what += " " + string(body)
		}
		got[c.Path] = what
	}
	return got
}

func testChanges(t *testing.T, s *suite) {
	w := s.open(t)
	t.Run("copy-on-write", func(t *testing.T) { changesOfCopy(t, w) })
	// The others have nothing to compare with.
	t.Run("no-copy", func(t *testing.T) {
		dir := tree(t, nil)
		for _, change := range []func(*sandbox.Sandbox){
			func(*sandbox.Sandbox) {}, over(t, sandbox.WorkspaceReadOnly, dir), over(t, sandbox.WorkspaceWritable, dir),
		} {
			b := w.begin(t, change)
			if err := w.Changes(t.Context(), b.sb, sandbox.ChangesOptions{}, discard{}); err == nil {
				t.Errorf("%s: no error", b.sb.Spec.Workspace.Mode)
			}
		}
	})
	t.Run("none", func(t *testing.T) {
		b := w.begin(t, over(t, sandbox.WorkspaceCOW, tree(t, map[string]string{"f": "x"})))
		if got := w.changesOf(t, b.sb, sandbox.ChangesOptions{Content: true}); len(got) > 0 {
			t.Errorf("changes of an untouched workspace: %q", got)
		}
	})
	t.Run("of-others", func(t *testing.T) { changesOfOthers(t, w) })
	t.Run("reader-leaves", func(t *testing.T) {
		b := w.begin(t, over(t, sandbox.WorkspaceCOW, tree(t, nil)))
		b.sh(t, "", "head -c 30000000 /dev/urandom > /workspace/big")
		enough := errors.New("enough")
		err := w.Changes(t.Context(), b.sb, sandbox.ChangesOptions{Content: true}, &limited{left: 1 << 20, err: enough})
		if !errors.Is(err, enough) {
			t.Errorf("Changes = %v, want the reader's own error", err)
		}
		wantAlive(t, w, b.id, true)
	})
}

// changesOfOthers renames what only root may read in a user's directory: the kernel copies that with
// root's rights, and nobody is to have it of the view.
func changesOfOthers(t *testing.T, w *world) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make files of others")
	}
	const user = 4711
	dir := tree(t, map[string]string{"secret": "secret\n", "shared": "shared\n", "own": "own\n"})
	for name, mode := range map[string]os.FileMode{"secret": 0o600, "shared": 0o644} {
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	must(t, errors.Join(os.Chown(dir, user, user), os.Chown(filepath.Join(dir, "own"), user, user)))
	b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir))
	b.sh(t, "", "! cat secret && mv secret a && mv shared b && mv own c && chmod 600 c")
	want := map[string]string{
		"secret": "deleted", "a": "special file or directory that its directory's owner may not read",
		"shared": "deleted", "b": "file shared\n", "own": "deleted", "c": "file own\n",
	}
	if diff := cmp.Diff(want, w.changesOf(t, b.sb, sandbox.ChangesOptions{Content: true})); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// limited takes some bytes and then refuses.
type limited struct {
	left int
	err  error
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, l.err
	}
	return len(p), nil
}

func changesOfCopy(t *testing.T, w *world) {
	dir := tree(t, map[string]string{
		"kept": "kept\n", "edited": "one\n", "gone": "gone\n", "sub/deep/f": "deep\n", "removed/a": "a\n", "removed/b": "b\n", "renamed": "r\n",
	})
	must(t, os.Symlink("kept", filepath.Join(dir, "link")))
	b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir))
	b.sh(t, "", `echo two >> edited; rm gone; rm -r removed; mv renamed moved; echo new > sub/deep/new; ln -sfn edited link; mkfifo fifo; mkdir empty`)
	want := map[string]string{
		"edited": "file one\ntwo\n", "gone": "deleted", "removed": "deleted", "renamed": "deleted", "moved": "file r\n",
		"sub/deep/new": "file new\n", "link": "symlink edited", "empty": "dir",
	}
	// Directories on the way to a change may be named as well; and a fifo,
	// where it lies on the disk and not in the wall's own kernel.
	dirs := map[string]bool{"sub": true, "sub/deep": true}
	wanted := func(what string, opts sandbox.ChangesOptions, want map[string]string) {
		t.Helper()
		got := w.changesOf(t, b.sb, opts)
		maps.DeleteFunc(got, func(path, kind string) bool {
			return dirs[path] && kind == "dir" || path == "fifo" && kind == "special fifo"
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	full := sandbox.ChangesOptions{Content: true}
	wanted("of a running instance", full, want)
	wanted("some of them", sandbox.ChangesOptions{Content: true, Paths: []string{"sub", "edited"}},
		map[string]string{"edited": want["edited"], "sub/deep/new": want["sub/deep/new"]})
	w.mustStop(t, b.id)
	wanted("of a stopped instance", full, want)
	b = w.restart(t, b.sb)
	wanted("of one that was started again", full, want)
	// What was told without content has none.
	for path, what := range w.changesOf(t, b.sb, sandbox.ChangesOptions{}) {
		if path == "edited" && what != "file" {
			t.Errorf("without content: %q", what)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "edited")); string(got) != "one\n" {
		t.Errorf("the host's file is %q", got)
	}
}
