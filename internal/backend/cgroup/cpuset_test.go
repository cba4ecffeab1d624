package cgroup_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
)

// What enters a group is in one of its own in the tree of cpuset too, and may run
// everywhere all the same; a group that was made before has none there, and is of use.
func TestCPUSets(t *testing.T) {
	before, h := host(t, "sets"), host(t, "sets")
	h.AddCPUSets()
	limits := cgroup.Limits{PIDs: 100}
	g, err := h.Create("new", limits)
	if err != nil {
		t.Skipf("no group can be made: %v", err)
	}
	defer removed(t, g)
	if !slices.Contains(g.Controllers1(), "cpuset") {
		t.Skip("this machine has no tree of cpuset of version 1 to make groups in")
	}
	old, err := before.Create("old", limits)
	if err != nil {
		t.Fatal(err)
	}
	defer removed(t, old)
	if slices.Contains(old.Controllers1(), "cpuset") {
		t.Error("groups are made in the tree of cpuset unasked")
	}
	known, err := h.Open("old")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		group *cgroup.Group
		own   bool
	}{{g, true}, {known, false}} {
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := tt.group.Enter(cmd.Process.Pid); err != nil {
			t.Error(err)
		}
		if err := tt.group.Set(cgroup.Limits{PIDs: 200}, cgroup.Limits{}); err != nil {
			t.Error(err)
		}
		if at := setOf(t, cmd.Process.Pid); strings.HasSuffix(at, "/new") != tt.own {
			t.Errorf("it is in %s of cpuset", at)
		}
		if got, want := statusLine(t, cmd.Process.Pid), statusLine(t, os.Getpid()); got != want {
			t.Errorf("it may run on %s, this process on %s", got, want)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func removed(t *testing.T, g *cgroup.Group) {
	t.Helper()
	if err := g.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

// setOf is the path of a process in the tree of cpuset.
func setOf(t *testing.T, pid int) string {
	t.Helper()
	return line(t, fmt.Sprintf("/proc/%d/cgroup", pid), ":cpuset:")
}

func statusLine(t *testing.T, pid int) string {
	t.Helper()
	return line(t, fmt.Sprintf("/proc/%d/status", pid), "Cpus_allowed_list:")
}

// line is what follows a mark in the line of a file that has it.
func line(t *testing.T, file, mark string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(text)) {
		if _, rest, ok := strings.Cut(l, mark); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
