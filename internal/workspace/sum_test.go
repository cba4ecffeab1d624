package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// sumOf compares upper with base and returns the sum of the difference.
func sumOf(t *testing.T, base, upper string, content bool, paths ...string) workspace.Sum {
	t.Helper()
	o := options(content, future)
	o.Paths = paths
	b := openBase(t, base)
	set, err := workspace.Load(t.Context(), bytes.NewReader(stream(t, upper, o)), workspace.LoadOptions{})
	must(t, err)
	t.Cleanup(func() { set.Close() })
	d, err := workspace.Compare(t.Context(), b, set, workspace.CompareOptions{Paths: paths})
	must(t, err)
	return d.Sum()
}

// Whatever an apply would do otherwise changes the digest, and nothing else
// does.
func TestSum(t *testing.T) {
	base := tree{"a": "1", "d/b": "2", "d/c": "3", "l": "-> a", "x": "x! 1"}
	upper := tree{"a": "new", "n": "4", "nl": "-> a", "nd/e": "5", "d": "-> a"}
	tests := []struct {
		name   string
		change func(t *testing.T, base, upper string)
		paths  []string
		same   bool
	}{
		{name: "nothing", change: func(*testing.T, string, string) {}, same: true},
		{name: "times", change: func(t *testing.T, _, u string) { must(t, os.Chtimes(u+"/a", time.Now(), time.Unix(9, 0))) }, same: true},
		{name: "what-is-no-change", change: func(t *testing.T, _, u string) { tree{"x": "x! 1"}.write(t, u) }, same: true},
		{name: "content", change: func(t *testing.T, _, u string) { tree{"a": "neu"}.write(t, u) }},
		{name: "content-of-new", change: func(t *testing.T, _, u string) { tree{"nd/e": "6"}.write(t, u) }},
		{name: "one-more", change: func(t *testing.T, _, u string) { tree{"m": "6"}.write(t, u) }},
		{name: "one-less", change: func(t *testing.T, _, u string) { must(t, os.Remove(u+"/n")) }},
		{name: "name", change: func(t *testing.T, _, u string) { must(t, os.Rename(u+"/n", u+"/n2")) }},
		{name: "mode", change: func(t *testing.T, _, u string) { must(t, os.Chmod(u+"/n", 0o755)) }},
		{name: "set-id", change: func(t *testing.T, _, u string) { must(t, os.Chmod(u+"/n", 0o644|os.ModeSetuid)) }},
		{name: "mode-of-directory", change: func(t *testing.T, _, u string) { must(t, os.Chmod(u+"/nd", 0o700)) }},
		{name: "target", change: func(t *testing.T, _, u string) {
			must(t, os.Remove(u+"/nl"))
			must(t, os.Symlink("x", u+"/nl"))
		}},
		{name: "kind", change: func(t *testing.T, _, u string) {
			must(t, os.Remove(u+"/nl"))
			tree{"nl": "a"}.write(t, u)
		}},
		{name: "deletion", change: func(t *testing.T, _, u string) { whiteout(t, u+"/x") }},
		{name: "file-here", change: func(t *testing.T, b, _ string) { tree{"a": "mine"}.write(t, b) }},
		{name: "gone-here", change: func(t *testing.T, b, _ string) { must(t, os.Remove(b+"/a")) }},
		{name: "in-what-goes", change: func(t *testing.T, b, _ string) { tree{"d/b": "mine"}.write(t, b) }},
		{name: "one-more-in-what-goes", change: func(t *testing.T, b, _ string) { tree{"d/n": "mine"}.write(t, b) }},
		{name: "held-no-more", change: func(t *testing.T, b, _ string) { tree{"HEAD": "", "refs": "/", "objects": "/"}.write(t, b) }},
		{name: "selection", change: func(*testing.T, string, string) {}, paths: []string{"a", "d", "n", "nd", "nl"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, u := twoDirs(t, base)
			upper.write(t, u)
			before := sumOf(t, b, u, true)
			if len(before.Items) != 6 {
				t.Fatalf("%d items, want 6", len(before.Items))
			}
			tt.change(t, b, u)
			after := sumOf(t, b, u, true, tt.paths...)
			if same := before.Digest == after.Digest; same != tt.same {
				t.Errorf("the same: %v, want %v", same, tt.same)
			}
			if without := sumOf(t, b, u, false, tt.paths...); without.Digest != after.Digest {
				t.Error("without contents the digest is another one")
			}
		})
	}
}

// What attributes say is known only with their content; the digest is the same
// without.
func TestSumOfAttributes(t *testing.T) {
	b, u := twoDirs(t, nil)
	tree{".gitattributes": "* text\n"}.write(t, u)
	if sumOf(t, b, u, true).Digest != sumOf(t, b, u, false).Digest {
		t.Error("the digest is another one without contents")
	}
}

func TestSumNamesTheSelection(t *testing.T) {
	b, u := twoDirs(t, nil)
	tree{"a/b": "1", "c": "2"}.write(t, u)
	s := sumOf(t, b, u, true, "c", "a/", "a/b")
	if want := []string{"a", "c"}; !slices.Equal(s.Paths, want) {
		t.Errorf("paths = %q, want %q", s.Paths, want)
	}
	if s.Digest != sumOf(t, b, u, true, "a", "./c").Digest {
		t.Error("another spelling of the same paths has another digest")
	}
}

// Fields have ends: what is moved from one to the next is another change.
func TestSumOfNeighbours(t *testing.T) {
	b, u := twoDirs(t, nil)
	tree{"a": "-> bc"}.write(t, u)
	first := sumOf(t, b, u, true)
	must(t, os.Remove(u+"/a"))
	tree{"ab": "-> c"}.write(t, u)
	if first.Digest == sumOf(t, b, u, true).Digest {
		t.Error("a -> bc and ab -> c have one digest")
	}
}

// What Check and Confirm are shown is what is written, whatever the sandbox has
// by then.
func TestShownIsWritten(t *testing.T) {
	b, u := twoDirs(t, tree{"a": "old\n"})
	tree{"a": "print(1)\n"}.write(t, u)
	s := stream(t, u, options(true, future))
	tree{"a": "evil()\n"}.write(t, u)
	var checked, shown bytes.Buffer
	var sum workspace.Sum
	_, err := apply(t, b, s, workspace.ApplyOptions{
		Check: func(d *workspace.Diff) error {
			sum = d.Sum()
			return d.WritePatch(t.Context(), &checked, workspace.PatchOptions{})
		},
		Confirm: func(it workspace.Item) (bool, error) {
			return true, it.WritePatch(t.Context(), &shown, workspace.PatchOptions{})
		},
	})
	must(t, err)
	if !strings.Contains(shown.String(), "-old\n+print(1)\n") || shown.String() != checked.String() {
		t.Errorf("shown: %q; checked: %q", shown.String(), checked.String())
	}
	if got, _ := os.ReadFile(filepath.Join(b, "a")); string(got) != "print(1)\n" {
		t.Errorf("written: %q", got)
	}
	must(t, os.WriteFile(filepath.Join(b, "a"), []byte("old\n"), 0o644))
	if len(sum.Items) != 1 || sum.Items[0] == sumOf(t, b, u, true).Items[0] {
		t.Error("the sandbox's next answer has the same sum")
	}
}

func TestCheckRefuses(t *testing.T) {
	base := tree{"a": "1", "d/b": "2"}
	b, u := twoDirs(t, base)
	tree{"a": "2", "d": "-> a", "n": "3"}.write(t, u)
	no := errors.New("no")
	res, err := apply(t, b, stream(t, u, options(true, future)), workspace.ApplyOptions{
		Check:   func(*workspace.Diff) error { return no },
		Confirm: func(workspace.Item) (bool, error) { t.Error("asked all the same"); return true, nil },
	})
	if !errors.Is(err, no) || len(res.Applied) > 0 {
		t.Errorf("Apply = %+v, %v", res, err)
	}
	diff(t, "base", read(t, b), tree{"a": "1", "d": "/", "d/b": "2"})
}

// A directory that gains or loses something after it was shown stays, even
// where it is said to go whatever is in it.
func TestForceTakesNoMoreThanWasShown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, base string)
		kind   sandbox.Kind
	}{
		{"as-it-was", func(*testing.T, string) {}, ""},
		{"one-more", func(t *testing.T, b string) { tree{"d/mine": "x"}.write(t, b) }, sandbox.Conflict},
		{"another-content", func(t *testing.T, b string) { tree{"d/s/b": "mine"}.write(t, b) }, sandbox.Conflict},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, u := twoDirs(t, tree{"d/s/b": "2"})
			whiteout(t, u+"/d")
			_, err := apply(t, b, stream(t, u, options(true, past)), workspace.ApplyOptions{
				Paths: []string{"d"}, Force: true,
				Confirm: func(workspace.Item) (bool, error) {
					tt.change(t, b)
					return true, nil
				},
			})
			if got := sandbox.KindOf(err); err != nil && got != tt.kind || err == nil && tt.kind != "" {
				t.Errorf("Apply = %v, want %q", err, tt.kind)
			}
			_, gone := os.Stat(filepath.Join(b, "d"))
			if (gone != nil) != (tt.kind == "") {
				t.Errorf("d: %v", gone)
			}
		})
	}
}

// Only the side that was compared is shown: an apply refuses any other.
func TestPatchOfWhatMovedMeanwhile(t *testing.T) {
	b, u := twoDirs(t, tree{"a": "old\n", "d/b": "two\n"})
	tree{"a": "new\n", "d": "-> a"}.write(t, u)
	var patch bytes.Buffer
	_, err := apply(t, b, stream(t, u, options(true, future)), workspace.ApplyOptions{
		DryRun: true,
		Check: func(d *workspace.Diff) error {
			tree{"a": "mine\n", "d/c": "three\n"}.write(t, b)
			return d.WritePatch(context.Background(), &patch, workspace.PatchOptions{})
		},
	})
	must(t, err)
	if got := patch.String(); strings.Contains(got, "mine") || strings.Count(got, "changed on the host since it was compared") != 2 {
		t.Errorf("patch:\n%s", got)
	}
}

// Who names a file with set-id bits is told that it gets them.
func TestSetIDIsTold(t *testing.T) {
	for _, allow := range []bool{false, true} {
		b, u := twoDirs(t, nil)
		tree{"n": "x! 1"}.write(t, u)
		must(t, os.Chmod(u+"/n", 0o755|os.ModeSetuid))
		opts := workspace.ApplyOptions{Confirm: func(it workspace.Item) (bool, error) {
			if got := strings.Contains(strings.Join(it.Notes, " "), "gets set-id bits"); got != allow {
				t.Errorf("named: %v; notes: %q", allow, it.Notes)
			}
			return true, nil
		}}
		if allow {
			opts.Allow = []string{"n"}
		}
		_, err := apply(t, b, stream(t, u, options(true, future)), opts)
		must(t, err)
		fi, err := os.Stat(filepath.Join(b, "n"))
		must(t, err)
		if got := fi.Mode()&os.ModeSetuid != 0; got != allow {
			t.Errorf("named: %v; mode %v", allow, fi.Mode())
		}
	}
}
