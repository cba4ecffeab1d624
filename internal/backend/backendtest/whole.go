package backendtest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// wholeStream reads the changes of a view as an apply does: what is not whole is made so.
func (w *world) wholeStream(t *testing.T, sb *sandbox.Sandbox) []byte {
	t.Helper()
	at, err := w.Capabilities().Whole.MakeWhole(t.Context(), sb)
	must(t, err)
	defer at.Release()
	opts := sandbox.ChangesOptions{Content: true, Whole: true, Shape: at.Shape, Origins: true, Selves: true}
	var stream bytes.Buffer
	must(t, w.Changes(t.Context(), sb, opts, &stream))
	return stream.Bytes()
}

// take applies all changes of a view to the directory that it is of, and returns what was not taken.
func (w *world) take(t *testing.T, sb *sandbox.Sandbox, dir string, o workspace.ApplyOptions) *workspace.Result {
	t.Helper()
	s := w.wholeStream(t, sb)
	for c, err := range workspace.Read(bytes.NewReader(s)) {
		must(t, err)
		o.Allow = append(o.Allow, c.Path)
	}
	base, err := workspace.OpenBase(dir)
	must(t, err)
	defer base.Close()
	res, err := workspace.Apply(t.Context(), base, bytes.NewReader(s), o)
	if err != nil {
		t.Fatalf("Apply = %v, conflicts %v", err, res.Conflicts)
	}
	return res
}

// What was renamed in a view stays in it when an apply takes it from its old place, while it runs, when it is
// started again, and when the next apply comes.
func testWhole(t *testing.T, s *suite) {
	w := s.open(t)
	if w.Capabilities().Whole == nil || os.Geteuid() != 0 {
		t.Skip("needs root, and a wall whose views show the directory through: here they are copies")
	}
	for _, running := range []bool{true, false} {
		name := "stopped"
		if running {
			name = "running"
		}
		t.Run(name, func(t *testing.T) { wholeApplied(t, w, running) })
		t.Run(name+"-beside-a-mount", func(t *testing.T) { wholeBesideMount(t, w, running) })
	}
}

// The directories that lead to a mount are mounts themselves, and may show ones that were made for that: what is
// renamed in them is applied as ever.
func wholeBesideMount(t *testing.T, w *world, running bool) {
	dir := tree(t, map[string]string{"a/src/x": "x\n", "a/b/src/y": "y\n", "a/file": "f\n"})
	b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir), func(sb *sandbox.Sandbox) {
		sb.Spec.Mounts = []sandbox.Mount{{Own: true, Target: "/workspace/a/b/mnt"}}
	})
	b.says(t, "cd /workspace; "+rename("a/src", "a/lib", 0)+"; "+rename("a/b/src", "a/b/lib", 0)+"; echo more >>a/file", "")
	if !running {
		w.mustStop(t, b.id)
	}
	w.take(t, b.sb, dir, workspace.ApplyOptions{})
	for name, want := range map[string]string{"a/lib/x": "x\n", "a/b/lib/y": "y\n", "a/file": "f\nmore\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != want {
			t.Errorf("applied: %s is %q, %v", name, got, err)
		}
	}
	if running {
		b.says(t, "cd /workspace; cat a/lib/x a/b/lib/y a/file; ls a/b", "x\ny\nf\nmore\nlib\nmnt\n")
	}
}

func wholeApplied(t *testing.T, w *world, running bool) {
	dir := tree(t, map[string]string{"src/a": "a\n", "src/sub/b": "b\n", "src/deep/er/c": "c\n", "other/o": "o\n", "keep": "k\n"})
	b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir))
	// A command that has the directory open, as an editor or a shell has.
	b.sh(t, "", "cd /workspace/src; (sleep 1000 >/dev/null 2>&1 &) ; cd ..; "+rename("src", "lib", 0)+"; "+rename("lib/deep", "other/deep", 0))
	const look = "cd /workspace; cat lib/a lib/sub/b other/deep/er/c; ls lib other/deep | tr '\\n' ' '; ls"
	const want = "a\nb\nc\nlib: a sub  other/deep: er keep\nlib\nother\n"
	b.says(t, look, want)

	// The negative control: what shows through is not read for an apply.
	if err := w.Changes(t.Context(), b.sb, sandbox.ChangesOptions{Whole: true}, discard{}); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("changes for an apply, not made whole: %v", err)
	}
	if !running {
		w.mustStop(t, b.id)
	}
	res := w.take(t, b.sb, dir, workspace.ApplyOptions{})
	if running {
		b.says(t, look, want)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "lib/sub/b")); string(got) != "b\n" {
		t.Errorf("applied: %q, %v", got, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "src/a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old place has its file still: %v", err)
	}
	if running {
		w.mustStop(t, b.id)
	}
	b = w.restart(t, b.sb)
	b.says(t, look, want)
	w.mustStop(t, b.id)
	w.take(t, b.sb, dir, workspace.ApplyOptions{Applied: res.Marks})
	if _, err := os.Lstat(filepath.Join(dir, "src")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old place is there still: %v", err)
	}
	base, err := workspace.OpenBase(dir)
	must(t, err)
	defer base.Close()
	set, err := workspace.Load(t.Context(), bytes.NewReader(w.wholeStream(t, b.sb)), workspace.LoadOptions{})
	must(t, err)
	defer set.Close()
	d, err := workspace.Compare(t.Context(), base, set, workspace.CompareOptions{})
	must(t, err)
	if len(d.Items) > 0 {
		t.Errorf("after an apply of all there is more: %v", d.Items)
	}
	b = w.restart(t, b.sb)
	b.says(t, look, want)
}
