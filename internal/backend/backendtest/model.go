package backendtest

import (
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// modelScript does random things to the tree that is its working directory, and says of each whether it
// could be done; or it prints that tree.
//
//go:embed model.pl
var modelScript string

// modelSteps are how many are done between two looks.
func (s *suite) modelSteps() int {
	if s.Long {
		return 2500
	}
	return 400
}

// A view is as a plain directory to which the same was done, whatever ends between; and what is
// applied of it makes the base that.
func testModel(t *testing.T, s *suite) {
	seeds := 1
	if s.Long {
		seeds = 4
	}
	for i := range seeds {
		t.Run(fmt.Sprint("seed-", i), func(t *testing.T) { modelOf(t, s, i) })
	}
}

func modelOf(t *testing.T, s *suite, seed int) {
	w := s.open(t)
	files := map[string]string{}
	for i := range 4 * 4 * 4 {
		files[fmt.Sprintf("%c/%c/%c", 'a'+i/16, 'a'+i/4%4, 'a'+i%4)] = fmt.Sprint("base ", i, "\n")
	}
	dir := tree(t, files)
	plain := filepath.Join(t.TempDir(), "plain")
	if out, err := exec.Command("cp", "-a", dir, plain).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	links := 0
	if s.HardLinks {
		links = 1
	}
	b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir), func(sb *sandbox.Sandbox) { sb.Spec.Limits.Inodes = 60_000 })
	var marks []workspace.Mark
	steps := s.modelSteps()
	for i, between := range []func(){
		func() {},
		func() { w.mustStop(t, b.id); b = w.restart(t, b.sb) },
		func() { marks = takeModel(t, w, b, dir, marks) },
		func() {
			if p := w.Capabilities().Suspend; p != nil && p.Suspendable(t.Context(), b.id) == nil {
				must(t, p.Suspend(t.Context(), b.id))
				b = w.restart(t, b.sb)
			}
		},
		func() {
			if w.Capabilities().Snapshots != nil {
				w.save(t, b.sb)
			}
		},
	} {
		do := fmt.Sprintf("%d %d %d %d", unix.SYS_RENAMEAT2, links, 100*seed+i+1, steps)
		inside, host := b.model(t, do), onPlain(t, plain, do)
		if plain, view := parted(host, inside); plain != view {
			t.Fatalf("round %d: on the plain directory %q, in the view %q", i, plain, view)
		}
		if done := strings.Count(host, " ok\n"); done < steps/4 {
			t.Errorf("round %d: only %d of %d could be done", i, done, steps)
		}
		between()
		want := strings.Split(onPlain(t, plain, "show"), "\n")
		if diff := cmp.Diff(want, strings.Split(b.model(t, "show"), "\n")); diff != "" {
			t.Fatalf("round %d (-plain +view):\n%.3000s", i, diff)
		}
		if t.Failed() {
			return
		}
	}
	w.mustStop(t, b.id)
	takeModel(t, w, b, dir, marks)
	want, got := onPlain(t, plain, "show"), onPlain(t, dir, "show")
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("applied (-plain +applied):\n%.3000s", diff)
	}
	b = w.restart(t, b.sb)
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(b.model(t, "show"), "\n")); diff != "" {
		t.Errorf("the view, applied (-plain +view):\n%.3000s", diff)
	}
}

// takeModel applies a model's view to the directory that it is of. Where views are copies, nothing shows through.
func takeModel(t *testing.T, w *world, b *instance, dir string, marks []workspace.Mark) []workspace.Mark {
	t.Helper()
	res := w.take(t, b.sb, dir, workspace.ApplyOptions{Applied: marks})
	return res.Marks
}

// parted returns the first lines that are not the same.
func parted(a, b string) (string, string) {
	inB := strings.Split(b, "\n")
	for i, line := range strings.Split(a, "\n") {
		if i >= len(inB) || line != inB[i] {
			return line, strings.Join(inB[min(i, len(inB)):min(i+1, len(inB))], "")
		}
	}
	return "", ""
}

// model runs the script in the workspace.
func (b *instance) model(t *testing.T, args string) string {
	t.Helper()
	return b.sh(t, "", "cd /workspace && perl - "+args+" <<'end of the script'\n"+modelScript+"end of the script\n")
}

// onPlain runs the script in a directory of the host.
func onPlain(t *testing.T, dir, args string) string {
	t.Helper()
	cmd := exec.Command("perl", append([]string{"-"}, strings.Fields(args)...)...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(modelScript)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("perl: %v: %s", err, out)
	}
	return string(out)
}
