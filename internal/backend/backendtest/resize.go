package backendtest

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// testResize: a running instance gets other limits, and one that has ended a larger
// disk, with what was on it.
func testResize(t *testing.T, s *suite) {
	w := s.open(t)
	r := w.Capabilities().Resize
	if r == nil {
		t.Fatal("the wall changes no limits")
	}
	b := w.begin(t, func(sb *sandbox.Sandbox) {
		sb.Spec.Limits.Memory, sb.Spec.Limits.PIDs, sb.Spec.Limits.Disk, sb.Spec.Limits.Inodes = 128<<20, 200, 32<<20, 2000
	})
	kept := func(limit string) bool {
		e, _ := promise(b.enforced, limit)
		return e.Enforced
	}
	to := b.sb.Spec.Limits
	to.Memory, to.PIDs, to.CPUs = 640<<20, 40, 1
	if kept(sandbox.LimitMemory) {
		for range 2 { // as after a crash
			out := r.Resize(t.Context(), b.sb, to)
			if len(out.Later) > 0 {
				t.Fatalf("Resize leaves %v", out.Later)
			}
		}
		if e := b.run(t, hog(300)); e.stdout != "300\n" {
			t.Errorf("within the new limit: %+v", e)
		}
	}
	if kept(sandbox.LimitPIDs) && kept(sandbox.LimitMemory) {
		b.says(t, `i=0; (while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done) >/dev/null 2>&1 || echo bounded`, "bounded\n")
	}
	if !kept(sandbox.LimitDisk) {
		return
	}
	b.sh(t, "", "head -c 20M /dev/zero >/workspace/f; sync")
	w.mustStop(t, b.id)
	large := b.sb.Spec.Limits
	large.Disk = 96 << 20
	for range 2 {
		is, err := r.Grow(t.Context(), b.id, b.sb.Spec.Limits, large)
		if err != nil || is.Disk != large.Disk || is.Inodes < b.sb.Spec.Limits.Inodes {
			t.Fatalf("Grow = %+v, %v", is, err)
		}
	}
	b = w.restart(t, b.sb)
	out := b.sh(t, "", "wc -c </workspace/f; head -c 60M /dev/zero >/workspace/g && wc -c </workspace/g; head -c 60M /dev/zero 2>/dev/null >/workspace/h || echo full")
	if got := strings.Fields(out); strings.Join(got, " ") != "20971520 62914560 full" {
		t.Errorf("after Grow: %q", out)
	}
}
