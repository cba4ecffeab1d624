package workspace_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// What the host's user adds to a directory that the sandbox has by its own making is no deletion of the
// sandbox's, and no conflict; what an apply or a sync left in one and the sandbox deleted is.
func TestAdditions(t *testing.T) {
	write := func(files tree) func(*testing.T, *wholeView) {
		return func(t *testing.T, v *wholeView) { files.write(t, v.base) }
	}
	for name, tt := range map[string]struct {
		inside func(t *testing.T, view string)
		host   func(t *testing.T, v *wholeView)
		want   []string // changes
		fails  bool     // an apply of all of them is a conflict
	}{
		"made-and-applied": {
			inside: func(t *testing.T, v string) { tree{"new/a": "1", "new/sub/b": "2"}.write(t, v) },
			host: func(t *testing.T, v *wholeView) {
				v.apply(t, workspace.ApplyOptions{})
				tree{"new/mine": "m", "new/sub/mine": "m", "new/more/mine": "m"}.write(t, v.base)
			},
			want: []string{},
		},
		"renamed-and-applied": {
			inside: func(t *testing.T, v string) { must(t, os.Rename(v+"/src", v+"/lib")) },
			host: func(t *testing.T, v *wholeView) {
				v.apply(t, workspace.ApplyOptions{})
				tree{"lib/mine": "m"}.write(t, v.base)
			},
			want: []string{},
		},
		"made-on-both-sides": {
			inside: func(t *testing.T, v string) { tree{"new/a": "1"}.write(t, v) },
			host:   write(tree{"new/mine": "m", "new/sub/mine": "m"}),
			want:   []string{"A new/a"},
		},
		"applied-and-deleted-inside": {
			inside: func(t *testing.T, v string) { tree{"new/a": "1", "new/b": "2"}.write(t, v) },
			host: func(t *testing.T, v *wholeView) {
				v.apply(t, workspace.ApplyOptions{})
				tree{"new/mine": "m"}.write(t, v.base)
				must(t, os.Remove(v.view+"/new/b"))
			},
			want: []string{"D new/b"},
		},
		"applied-changed-and-deleted-inside": {
			inside: func(t *testing.T, v string) { tree{"new/a": "1"}.write(t, v) },
			host: func(t *testing.T, v *wholeView) {
				v.apply(t, workspace.ApplyOptions{})
				tree{"new/a": "mine"}.write(t, v.base)
				must(t, os.Remove(v.view+"/new/a"))
			},
			want: []string{"D new/a"}, fails: true,
		},
		// The control: what the sandbox deleted was there.
		"deleted-and-made-anew": {
			inside: func(t *testing.T, v string) {
				must(t, os.RemoveAll(v+"/src"))
				tree{"src/new": "1"}.write(t, v)
			},
			host: func(*testing.T, *wholeView) {},
			want: []string{"D src/a", "A src/new"},
		},
		"deleted-and-changed-here": {
			inside: func(t *testing.T, v string) {
				must(t, os.RemoveAll(v+"/src"))
				tree{"src/new": "1"}.write(t, v)
			},
			host: write(tree{"src/a": "mine"}),
			want: []string{"D src/a", "A src/new"}, fails: true,
		},
		// A directory with old files in the place of one that the sandbox made.
		"another-renamed-into-its-place": {
			inside: func(t *testing.T, v string) { tree{"new/a": "1"}.write(t, v) },
			host:   func(t *testing.T, v *wholeView) { must(t, os.Rename(v.base+"/src", v.base+"/new")) },
			want:   []string{"M new/a"}, fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newWholeView(t, tree{"src/a": "old", "keep": "k"})
			v.begins(t)
			tt.inside(t, v.view)
			tt.host(t, v)
			must(t, makeWhole(t, v.view, v.upper, v.base))
			before := tokens(read(t, v.base))
			s := v.changes(t)
			diff(t, "changes", letters(compareWith(t, v, s).Items), tt.want)
			_, err := apply(t, v.base, s, workspace.ApplyOptions{Applied: v.marks})
			if failed := sandbox.KindOf(err) == sandbox.Conflict; failed != tt.fails || err != nil && !failed {
				t.Errorf("apply: %v", err)
			}
			for text := range before {
				if (text == "m" || text == "mine") && !tokens(read(t, v.base))[text] {
					t.Errorf("the base lost %q", text)
				}
			}
		})
	}
}

// What an apply left, and the sandbox deleted after it moved the directory around it, goes with the move.
func TestAppliedMovedAndDeleted(t *testing.T) {
	v := newWholeView(t, tree{"src/sub/a": "1"})
	v.begins(t)
	tree{"src/sub/n/b": "2", "src/sub/n/c": "3"}.write(t, v.view)
	v.take(t, workspace.ApplyOptions{})
	must(t, os.Mkdir(v.view+"/new", 0o755))
	must(t, os.Rename(v.view+"/src/sub", v.view+"/new/sub"))
	must(t, os.Remove(v.view+"/new/sub/n/b"))
	v.take(t, workspace.ApplyOptions{})
	diff(t, "base", read(t, v.base), tree{"src": "/", "new": "/", "new/sub": "/", "new/sub/a": "1", "new/sub/n": "/", "new/sub/n/c": "3"})
	must(t, os.Remove(v.view+"/new/sub/n/c"))
	v.take(t, workspace.ApplyOptions{})
	diff(t, "base", read(t, v.base), tree{"src": "/", "new": "/", "new/sub": "/", "new/sub/a": "1", "new/sub/n": "/"})
}

// An apply renames directories of the base while the sandbox is held still, and writes what is in them anew when it isn't.
func TestRenamesWhileStill(t *testing.T) {
	for _, still := range []bool{true, false} {
		v := newWholeView(t, tree{"src/sub/a": "1"})
		v.begins(t)
		was := inodeOf(t, v.base+"/src/sub/a")
		must(t, os.Rename(v.view+"/src", v.view+"/lib"))
		v.take(t, workspace.ApplyOptions{Still: func() bool { return still }})
		diff(t, "base", read(t, v.base), tree{"lib": "/", "lib/sub": "/", "lib/sub/a": "1"})
		if renamed := inodeOf(t, v.base+"/lib/sub/a") == was; renamed != still {
			t.Errorf("still %v: renamed %v", still, renamed)
		}
	}
}

// An apply that is killed when it has renamed a directory knows afterwards what it left in that before.
func TestKilledAfterRenames(t *testing.T) {
	killed := errors.New("killed")
	for i, kept := range []bool{true, true, false} { // false is the control: what went along is the host's, and a conflict
		v := newWholeView(t, tree{"src/sub/a": "1"})
		v.begins(t)
		tree{"src/sub/b": "2", "src/sub/c": "3"}.write(t, v.view)
		v.take(t, workspace.ApplyOptions{})
		must(t, os.Rename(v.view+"/src", v.view+"/lib"))
		must(t, os.Remove(v.view+"/lib/sub/b"))
		want := read(t, v.view)

		must(t, makeWhole(t, v.view, v.upper, v.base))
		_, err := apply(t, v.base, v.changes(t), workspace.ApplyOptions{Applied: v.marks, Note: func(m []workspace.Mark) error {
			if kept {
				v.marks = append(v.marks, m...)
			}
			must(t, os.Rename(v.base+"/src", v.base+"/lib"))
			return killed
		}})
		v.marks = openBase(t, v.base).Finish(v.marks)
		if !errors.Is(err, killed) {
			t.Fatalf("apply: %v", err)
		}
		if i == 1 { // what was renamed goes on
			must(t, os.Rename(v.view+"/lib", v.view+"/last"))
			want = read(t, v.view)
		}
		_, err = apply(t, v.base, v.changes(t), workspace.ApplyOptions{Applied: v.marks})
		if got := read(t, v.base); (err == nil) != kept || maps.Equal(got, want) != kept {
			t.Errorf("kept %t: %v, the base has %q", kept, err, got)
		}
	}
}

func compareWith(t *testing.T, v *wholeView, s []byte) *workspace.Diff {
	t.Helper()
	b := openBase(t, v.base)
	set, err := workspace.Load(t.Context(), bytes.NewReader(s), workspace.LoadOptions{})
	must(t, err)
	t.Cleanup(func() { set.Close() })
	d, err := workspace.Compare(t.Context(), b, set, workspace.CompareOptions{Applied: v.marks})
	must(t, err)
	return d
}

// What is added on the host to a directory that a sync made is brought by the next, and is no change; what the
// sandbox edits in it is applied.
func TestAdditionsToSynced(t *testing.T) {
	v := newWholeView(t, tree{"keep": "k"})
	v.begins(t)
	if exists(v.view + "/new") { // the kernel remembers that it is not there
		t.Fatal("it is there")
	}
	tree{"new/a": "1", "new/b": "2"}.write(t, v.base)
	var seen []workspace.Mark // nil: none was looked at
	sync := func(brought []workspace.Brought) (*workspace.SyncPlan, []workspace.Brought) {
		t.Helper()
		set, err := workspace.Load(t.Context(), bytes.NewReader(v.changes(t)), workspace.LoadOptions{})
		must(t, err)
		defer set.Close()
		b := openBase(t, v.base)
		all := scan(t, v.base, sandbox.ChangesFilter{}).Files
		found := workspace.ChangedSince(all, seen, v.since)
		for _, f := range all {
			seen = append(seen, f.Mark)
		}
		plan, err := workspace.PlanSync(t.Context(), b, set, workspace.CompareOptions{Brought: brought}, found, nil)
		must(t, err)
		more, err := b.Now(t.Context(), plan.Bring)
		must(t, err)
		for _, f := range plan.Bring {
			tree{f.Path: read(t, v.base)[f.Path]}.write(t, v.view) // as the agent does
		}
		return plan, append(brought, more...)
	}
	_, brought := sync(nil)
	tree{"new/c": "3", "new/sub/d": "4"}.write(t, v.base)
	plan, brought := sync(brought)
	diff(t, "brought", foundPaths(plan.Bring), []string{"new/c", "new/sub/d"})
	if len(plan.Conflicts) > 0 {
		t.Errorf("conflicts %v", plan.Conflicts)
	}
	tree{"new/mine": "m"}.write(t, v.base)
	tree{"new/a": "edited"}.write(t, v.view)
	must(t, os.Remove(v.view+"/new/b"))
	res, err := apply(t, v.base, v.changes(t), workspace.ApplyOptions{Brought: brought})
	must(t, err)
	diff(t, "applied", letters(res.Applied), []string{"M new/a", "D new/b"})
}

// What a sync brought and the sandbox deleted was deleted there, with the directory around it; what a sync took away,
// and the host's user made anew, is new.
func TestSyncedAndDeleted(t *testing.T) {
	v := newWholeView(t, tree{"keep": "k"})
	v.begins(t)
	if exists(v.view + "/new") { // the kernel remembers that it is not there
		t.Fatal("it is there")
	}
	both := tree{"new/a": "1", "new/sub/b": "2"}
	both.write(t, v.base)
	both.write(t, v.view)
	b := openBase(t, v.base)
	brought, err := b.Now(t.Context(), scan(t, v.base, sandbox.ChangesFilter{}).Files)
	must(t, err)
	brought = append(brought, workspace.Brought{Mark: workspace.Mark{Path: "new/again"}, Kind: workspace.Deleted})
	tree{"new/again": "3", "new/mine/c": "4"}.write(t, v.base)
	must(t, os.RemoveAll(v.view+"/new/sub"))

	set, err := workspace.Load(t.Context(), bytes.NewReader(v.changes(t)), workspace.LoadOptions{})
	must(t, err)
	defer set.Close()
	o := workspace.CompareOptions{Brought: brought}
	d, err := workspace.Compare(t.Context(), b, set, o)
	must(t, err)
	diff(t, "changes", letters(d.Items), []string{"D new/sub"})
	plan, err := workspace.PlanSync(t.Context(), b, set, o, scan(t, v.base, sandbox.ChangesFilter{}, "new/again", "new/mine").Files, nil)
	must(t, err)
	diff(t, "brought", foundPaths(plan.Bring), []string{"new/again", "new/mine/c"})
	if len(plan.Conflicts) > 0 {
		t.Errorf("conflicts %v", plan.Conflicts)
	}
}

// begins has the view made now: what was done to the base is older, and what will be younger.
func (v *wholeView) begins(t *testing.T) {
	t.Helper()
	dir := filepath.Dir(v.base)
	v.since = laterThan(t, dir)
	laterThan(t, dir)
}
