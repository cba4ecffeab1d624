package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
)

// rooted makes what a host makes for an instance: its group, with parts for the
// agent and for the commands, and n commands' groups that the kernel has
// filled.
func rooted(t *testing.T, n int, controllers ...string) (base *os.File, commands string) {
	t.Helper()
	dir := t.TempDir()
	commands = filepath.Join(dir, "commands")
	put(t, filepath.Join(dir, "agent"), "cgroup.procs", "")
	put(t, dir, "cgroup.procs", "")
	for _, d := range append([]string{commands}, children(commands, n)...) {
		put(t, d, "cgroup.events", "populated 0\n")
		put(t, d, "cgroup.kill", "")
		put(t, d, "cgroup.subtree_control", "")
		for _, c := range controllers {
			put(t, d, c+".events", "max 0\noom_kill 0\n")
			put(t, d, c+".max", "64\n")
			put(t, d, c+".current", "5\n")
		}
	}
	base, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = base.Close() })
	return base, commands
}

// What the host has set is left as it is, and counted per command.
func TestRootWithControllers(t *testing.T) {
	base, commands := rooted(t, 2, "memory", "pids")
	tree := prepare(t, base, cgroup.Options{Root: base.Name(), PIDs: 64})
	if got := text(t, base.Name(), "agent", "cgroup.procs"); got != "0" {
		t.Errorf("agent's cgroup.procs = %q, want 0", got)
	}
	if got := text(t, commands, "pids.max"); got != "64\n" {
		t.Errorf("pids.max was set to %q", got)
	}
	if got := text(t, commands, "cgroup.subtree_control"); !strings.HasPrefix(got, "+pids") {
		t.Errorf("cgroup.subtree_control = %q", got)
	}
	if !tree.LimitsPIDs() || !tree.CountsOOM() {
		t.Error("the limits are not seen")
	}
	one, two := acquire(t, tree), acquire(t, tree)
	put(t, children(commands, 1)[0], "memory.events", "oom_kill 1\n")
	put(t, commands, "memory.events", "oom_kill 1\n")
	if one.OutOfMemory() != cgroup.Certain || two.OutOfMemory() != cgroup.None {
		t.Errorf("out of memory: %d and %d, want the first alone", one.OutOfMemory(), two.OutOfMemory())
	}
	// The commands' limit was reached, by which of both is not told.
	put(t, commands, "pids.events", "max 3\n")
	if one.PIDsRefused() != cgroup.Perhaps || two.PIDsRefused() != cgroup.Perhaps {
		t.Errorf("refused: %d and %d, want perhaps", one.PIDsRefused(), two.PIDsRefused())
	}
}

func prepare(t *testing.T, base *os.File, opts cgroup.Options) *cgroup.Hierarchy {
	t.Helper()
	tree, err := cgroup.Prepare(base, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	return tree
}

func acquire(t *testing.T, tree *cgroup.Hierarchy) *cgroup.Group {
	t.Helper()
	g, err := tree.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Where a command is put among the others, and not born there, the agent
// counts.
func TestRootIsFull(t *testing.T) {
	base, commands := rooted(t, 9, "pids")
	tree := prepare(t, base, cgroup.Options{Root: base.Name()})
	put(t, commands, "pids.current", "61\n")
	one, two := acquire(t, tree), acquire(t, tree)
	three := acquire(t, tree)
	if g, err := tree.Acquire(); !errors.Is(err, cgroup.ErrFull) {
		t.Errorf("a 65th process: %v, %v", g, err)
	}
	one.Release()
	four := acquire(t, tree)
	for _, g := range []*cgroup.Group{two, three, four} {
		g.Begun()
		g.Begun()
	}
	put(t, commands, "pids.current", "64\n")
	if g, err := tree.Acquire(); !errors.Is(err, cgroup.ErrFull) {
		t.Errorf("a 65th process: %v, %v", g, err)
	}
	put(t, commands, "pids.current", "63\n")
	acquire(t, tree)
	put(t, commands, "pids.current", "64\n")
	two.Release()
	if g, err := tree.Acquire(); !errors.Is(err, cgroup.ErrFull) {
		t.Errorf("a 65th process: %v, %v", g, err)
	}
}

func TestRootWithoutLimit(t *testing.T) {
	base, commands := rooted(t, 0, "pids")
	put(t, commands, "pids.max", "max\n")
	if prepare(t, base, cgroup.Options{Root: base.Name()}).LimitsPIDs() {
		t.Error("a limit is reported that is not there")
	}
}

// counters are the host's files of version 1.
func counters(t *testing.T) (dir string, opts cgroup.Options) {
	dir = t.TempDir()
	set(t, dir, 0, 0)
	return dir, cgroup.Options{OOMFile: filepath.Join(dir, "memory.oom_control"), PIDsFile: filepath.Join(dir, "pids.events")}
}

func set(t *testing.T, dir string, oom, pids int) {
	t.Helper()
	put(t, dir, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill "+strconv.Itoa(oom)+"\n")
	put(t, dir, "pids.events", "max "+strconv.Itoa(pids)+"\n")
}

// One counter for all is certain of whoever ran alone, and each kill is one
// command's.
func TestSharedCounters(t *testing.T) {
	base, _ := rooted(t, 4)
	dir, opts := counters(t)
	opts.Root = base.Name()
	tree := prepare(t, base, opts)
	if !tree.LimitsPIDs() || !tree.CountsOOM() {
		t.Error("the host's limits are not seen")
	}
	set(t, dir, 7, 7)
	alone := acquire(t, tree)
	if alone.OutOfMemory() != cgroup.None || alone.PIDsRefused() != cgroup.None {
		t.Error("a command inherits what was before it")
	}
	set(t, dir, 8, 9)
	if alone.OutOfMemory() != cgroup.Certain || alone.PIDsRefused() != cgroup.Certain {
		t.Error("one that ran alone is not blamed")
	}
	alone.Release()

	one, two := acquire(t, tree), acquire(t, tree)
	if one.ClaimKill() {
		t.Error("a kill is claimed of before the command began")
	}
	set(t, dir, 9, 9)
	if one.OutOfMemory() != cgroup.Perhaps || two.OutOfMemory() != cgroup.Perhaps || two.PIDsRefused() != cgroup.None {
		t.Error("of two that ran at once either may have been it")
	}
	if !two.ClaimKill() || one.ClaimKill() || two.ClaimKill() {
		t.Error("one kill must be claimed once")
	}
	two.Release()
	three := acquire(t, tree)
	set(t, dir, 10, 10)
	if three.PIDsRefused() != cgroup.Perhaps {
		t.Error("the first still runs")
	}
	if !three.ClaimKill() || one.ClaimKill() {
		t.Error("the next kill must be claimed once")
	}
}

func TestRootRefuses(t *testing.T) {
	dir, opts := counters(t)
	put(t, dir, "empty", "")
	tests := []struct {
		name      string
		oom, pids string
	}{
		{"no-oom-file", dir + "/none", opts.PIDsFile},
		{"no-pids-file", opts.OOMFile, dir + "/none"},
		{"no-count-of-kills", dir + "/empty", opts.PIDsFile},
		{"no-count-of-refusals", opts.OOMFile, dir + "/empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base, _ := rooted(t, 0)
			if tree, err := cgroup.Prepare(base, cgroup.Options{Root: base.Name(), OOMFile: tt.oom, PIDsFile: tt.pids}); err == nil {
				tree.Close()
				t.Error("accepted")
			}
		})
	}
	for _, root := range []string{dir, dir + "/none", opts.OOMFile} {
		if tree, err := cgroup.Open(cgroup.Options{Root: root}); err == nil {
			tree.Close()
			t.Errorf("%s was taken for a cgroup", root)
		}
	}
}
