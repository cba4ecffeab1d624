package cgroup_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestSet raises and lowers the limits of a group of this kernel's, and of its
// commands' part.
func TestSet(t *testing.T) {
	g, c := commands(t, "set", cgroup.Limits{Memory: 128 * mib, CPUs: 1, PIDs: 200}, cgroup.Limits{Memory: 64 * mib, PIDs: 100})
	a := startAgent(t, g, c)
	a.must("hold 48")
	if err := g.Set(cgroup.Limits{Memory: 16 * mib}, cgroup.Limits{}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("less than is used: %v, want conflict", err)
	}
	for _, m := range []int64{512, 256, 700} {
		if err := g.Set(cgroup.Limits{Memory: m * mib, CPUs: 2, PIDs: m}, cgroup.Limits{Memory: (m - 64) * mib, PIDs: m - 64}); err != nil {
			t.Fatalf("%d MiB: %v", m, err)
		}
	}
	a.must("enter")
	if got := a.do("hogs 2"); got == "" {
		t.Error("the agent died")
	}
	if err := g.Set(cgroup.Limits{Memory: -1}, cgroup.Limits{}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a limit below zero: %v", err)
	}
}

// TestSetV2Imitation: the files of version 2, of the group and of the part.
func TestSetV2Imitation(t *testing.T) {
	root := fake(t, v2machine)
	h, err := cgroup.Find(root, "home")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.Imitate(v2files)
	g, err := h.Create("box", cgroup.Limits{Memory: 64 * mib, CPUs: 1, PIDs: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Set(cgroup.Limits{Memory: 32 * mib, CPUs: 0.5, PIDs: 50}, cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "sys/fs/cgroup/carboy/home/box")
	for file, want := range map[string]string{"memory.max": "33554432", "cpu.max": "50000 100000", "pids.max": "50"} {
		if got := strings.TrimSpace(read(t, dir, file)); !strings.HasPrefix(got, want) {
			t.Errorf("%s = %q, want %s", file, got, want)
		}
	}
}
