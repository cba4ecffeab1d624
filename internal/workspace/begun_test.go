package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// ends is a context that ends when it was asked left times since it began to count.
type ends struct {
	context.Context
	counts bool
	left   int
}

func (e *ends) Err() error {
	if e.counts {
		e.left--
	}
	if e.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestKilledAtEachStep: an apply that is killed, wherever it is, is taken up by the next, although the sandbox goes on and
// changes the same again. What was noted is what tells that from the user's doing.
func TestKilledAtEachStep(t *testing.T) {
	steps, missed := 0, 0
	for done := false; !done; steps++ {
		done = killedAt(t, steps, true, &missed)
	}
	if steps < 20 || missed > 0 {
		t.Errorf("%d steps, %d of them not taken up", steps, missed)
	}
	for step := 0; step < steps && missed == 0; step++ {
		killedAt(t, step, false, &missed)
	}
	if missed == 0 {
		t.Error("the control: without notes each apply was taken up too")
	}
}

// killedAt kills an apply at a step, or returns true: there are no so many. It counts what the next one does not take up.
func killedAt(t *testing.T, step int, noted bool, missed *int) (done bool) {
	t.Helper()
	v := newWholeView(t, tree{
		"edit": "1", "gone/a": "1", "gone/sub/b": "2", "mode": "1", "turn": "1", "src/sub/f": "1", "src/e": "1", "back/x": "1",
	})
	v.begins(t)
	tree{"src/g": "1"}.write(t, v.view)
	v.apply(t, workspace.ApplyOptions{})

	must(t, os.RemoveAll(v.view+"/gone"))
	must(t, os.Chmod(v.view+"/mode", 0o755))
	must(t, os.Remove(v.view+"/turn"))
	must(t, os.RemoveAll(v.view+"/back"))
	must(t, os.Rename(v.view+"/src", v.view+"/lib"))
	must(t, os.Symlink("edit", v.view+"/link"))
	tree{"edit": "2", "turn/t": "1", "new/d/f": "1", "lib/e": "2", "back": "now a file"}.write(t, v.view)

	must(t, makeWhole(t, v.view, v.upper, v.base))
	ctx := &ends{Context: context.Background(), left: step}
	_, err := workspace.Apply(ctx, openBase(t, v.base), bytes.NewReader(v.changes(t)), workspace.ApplyOptions{
		Applied: v.marks, Note: func(m []workspace.Mark) error {
			ctx.counts = true
			if noted {
				v.marks = append(v.marks, m...)
			}
			return ctx.Err()
		},
	})
	if err == nil {
		return true
	}
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("step %d: %v", step, err)
	}
	remount(t, v.base, v.view, v.upper)

	must(t, os.RemoveAll(v.view+"/turn"))
	must(t, os.RemoveAll(v.view+"/new"))
	must(t, os.RemoveAll(v.view+"/lib/sub"))
	must(t, os.Rename(v.view+"/lib", v.view+"/last"))
	must(t, os.Remove(v.view+"/link"))
	must(t, os.Remove(v.view+"/back"))
	must(t, os.Symlink("mode", v.view+"/link"))
	tree{"edit": "3", "turn": "2", "mode": "2", "gone/a": "2", "back/x": "2", "last/e": "3"}.write(t, v.view)
	must(t, makeWhole(t, v.view, v.upper, v.base))
	marks := openBase(t, v.base).Finish(v.marks)
	_, err = apply(t, v.base, v.changes(t), workspace.ApplyOptions{Applied: marks})
	if want, got := read(t, v.view), read(t, v.base); err != nil || !maps.Equal(want, got) {
		*missed++
		if noted {
			t.Errorf("step %d: %v: the view has %q, the base %q", step, err, want, got)
		}
	}
	return false
}

// TestFinish: what was begun and has been edited since is the user's.
func TestFinish(t *testing.T) {
	dir := t.TempDir()
	tree{"kept": "1", "edited": "1", "replaced": "1", "d/f": "1"}.write(t, dir)
	must(t, os.Symlink("kept", dir+"/link"))
	b := openBase(t, dir)
	begun := func(path string, kind workspace.Kind) workspace.Mark {
		m, err := b.Stamp(path)
		must(t, err)
		fi, err := os.Lstat(dir + "/" + path)
		must(t, err)
		m.CTime, m.Begun = 0, &workspace.Begun{Kind: kind}
		switch kind {
		case workspace.File:
			m.Begun.MTime, m.Begun.Size = fi.ModTime().UnixNano(), fi.Size()
		case workspace.Symlink:
			m.Begun.Target = "kept"
		}
		return m
	}
	old := workspace.Mark{Path: "edited", Ino: 1, CTime: 1}
	marks := []workspace.Mark{
		old, begun("kept", workspace.File), begun("edited", workspace.File), begun("replaced", workspace.File),
		begun("link", workspace.Symlink), begun("d", workspace.Dir),
		{Path: "d/f", Begun: &workspace.Begun{Kind: workspace.Dir}},
		{Path: "absent", Begun: &workspace.Begun{Kind: workspace.Dir}},
	}
	must(t, os.WriteFile(dir+"/edited", []byte("12"), 0o644))
	must(t, os.WriteFile(dir+"/other", []byte("1"), 0o644))
	must(t, os.Rename(dir+"/other", dir+"/replaced"))
	must(t, os.Chmod(dir+"/kept", 0o600))
	var got []string
	for _, m := range b.Finish(marks) {
		if now, err := b.Stamp(m.Path); m != old && (err != nil || m != now) {
			t.Errorf("%+v, want %+v", m, now)
		}
		got = append(got, m.Path)
	}
	if want := []string{"edited", "kept", "link", "d"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
