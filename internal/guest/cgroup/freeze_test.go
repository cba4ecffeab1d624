package cgroup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
)

// A freezer is opened once, and freezes and thaws as often as it is asked.
func TestFreezer(t *testing.T) {
	tree := realTree(t, cgroup.Options{})
	g := acquire(t, tree)
	defer g.Release()
	state := filepath.Join(filepath.Dir(where(t, g)), "cgroup.freeze")
	f, err := tree.Freezer()
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		t.Skip("this kernel has no freezer")
	}
	defer f.Close()
	for _, frozen := range []bool{true, false, true, false} {
		if err := f.Set(frozen); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(state)
		if got := strings.TrimSpace(string(b)) == "1"; err != nil || got != frozen {
			t.Errorf("frozen: got %q, %v, want %t", b, err, frozen)
		}
	}
}
