package backendtest

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
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

// modelSteps are done between two looks.
const modelSteps = 2500

// A view is as a plain directory to which the same was done, whatever ends between; and what is
// applied of it makes the base that.
func testModel(t *testing.T, s *suite) {
	w := s.open(t)
	files := map[string]string{}
	for i := range 4 * 4 * 4 {
		files[fmt.Sprintf("%c/%c/%c", 'a'+i/16, 'a'+i/4%4, 'a'+i%4)] = fmt.Sprint("base ", i, "\n")
	}
	dir := tree(t, files)
	plain, target := filepath.Join(t.TempDir(), "plain"), filepath.Join(t.TempDir(), "target")
	for _, to := range []string{plain, target} {
		if out, err := exec.Command("cp", "-a", dir, to).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
	}
	links := 0
	if s.HardLinks {
		links = 1
	}
	b := w.begin(t, over(t, sandbox.WorkspaceCOW, dir), func(sb *sandbox.Sandbox) { sb.Spec.Limits.Inodes = 60_000 })
	for i, between := range []func(){
		func() {},
		func() { w.mustStop(t, b.id); b = w.restart(t, b.sb) },
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
		do := fmt.Sprintf("%d %d %d %d", unix.SYS_RENAMEAT2, links, i+1, modelSteps)
		inside, host := b.model(t, do), onPlain(t, plain, do)
		if plain, view := parted(host, inside); plain != view {
			t.Fatalf("round %d: on the plain directory %q, in the view %q", i, plain, view)
		}
		if done := strings.Count(host, " ok\n"); done < modelSteps/4 {
			t.Errorf("round %d: only %d of %d could be done", i, done, modelSteps)
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
	applied(t, w, b, target)
	want, got := onPlain(t, plain, "show"), onPlain(t, target, "show")
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("applied (-plain +applied):\n%.3000s", diff)
	}
	if got := onPlain(t, dir, "show"); got == want || strings.Count(got, "base") != len(files) {
		t.Errorf("the host's directory is\n%.1000s", got)
	}
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

// applied applies all of an instance's changes to a directory.
func applied(t *testing.T, w *world, b *instance, dir string) {
	t.Helper()
	var stream bytes.Buffer
	must(t, w.Changes(t.Context(), b.sb, sandbox.ChangesOptions{Content: true}, &stream))
	var all []string
	for c, err := range workspace.Read(bytes.NewReader(stream.Bytes())) {
		must(t, err)
		all = append(all, c.Path)
	}
	base, err := workspace.OpenBase(dir)
	must(t, err)
	defer base.Close()
	res, err := workspace.Apply(t.Context(), base, &stream, workspace.ApplyOptions{Paths: []string{"."}, Force: true, Allow: all})
	if err != nil || len(res.Held) > 0 {
		t.Fatalf("Apply = %v, held %v, conflicts %v", err, res.Held, res.Conflicts)
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		t.Fatal(err)
	}
}
