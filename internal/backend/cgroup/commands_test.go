package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestCommandsV2Imitation(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	files := map[string]string{"cgroup.threads": "", "cgroup.freeze": "0\n", "cgroup.max.depth": "max\n"}
	for name, content := range v2files {
		files[name] = content
	}
	g := imitated(t, files)
	c, err := g.Commands(cgroup.Limits{Memory: 64 << 20, PIDs: 100}, 1234, 1235)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Tasks) > 0 || c.OOMFile != "" || c.PIDsFile != "" {
		t.Errorf("files of version 1: %+v", c)
	}
	if _, err := g.Commands(cgroup.Limits{}, 1234, 1235); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a second Commands = %v, want conflict", err)
	}
	if got := read(t, c.Root, "cgroup.subtree_control") + read(t, c.Root, "commands/memory.max"); got != "max\n" {
		t.Errorf("before Finish there is %q", got)
	}
	if err := c.Finish(); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"cgroup.subtree_control": "+pids", "cgroup.max.depth": "2",
		"commands/memory.max": "67108864", "commands/memory.swap.max": "0", "commands/pids.max": "100",
		"commands/memory.oom.group": "0", "agent/memory.max": "max", "agent/pids.max": "max", "memory.oom.group": "0",
	} {
		// A plain file keeps what the last, shorter write left of it.
		if got := read(t, c.Root, file); !strings.HasPrefix(got, want) {
			t.Errorf("%s = %q, want %q", file, got, want)
		}
	}
	checkOwners(t, c.Root, 1234, "cgroup.procs", "agent/cgroup.procs",
		"commands", "commands/cgroup.procs", "commands/cgroup.threads", "commands/cgroup.subtree_control", "commands/cgroup.freeze")

	put(t, c.Root, "agent/memory.events", "oom_kill 1\n")
	put(t, c.Root, "commands/memory.events", "oom_kill 5\n")
	put(t, c.Root, "memory.events", "oom_kill 6\n")
	if n, err := g.OOMKills(); n != 1 || err != nil {
		t.Errorf("OOMKills = %d, %v; want those of the agent's group, 1", n, err)
	}
	if n, err := g.CommandsOOMKills(); n != 5 || err != nil {
		t.Errorf("CommandsOOMKills = %d, %v; want 5", n, err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Error(err)
	}
}

// imitated makes a group of a version 2 machine with the given files in it.
func imitated(t *testing.T, files map[string]string) *cgroup.Group {
	t.Helper()
	root := fake(t, map[string]string{
		"proc/self/mountinfo": lineV2Only, "proc/self/cgroup": "0::/init.scope\n",
		"sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n", "sys/fs/cgroup/cgroup.subtree_control": "",
	})
	h, err := cgroup.Find(root, "home")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	h.Imitate(files)
	g, err := h.Create("box", cgroup.Limits{Memory: 128 << 20, PIDs: 300})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkOwners looks for files below dir that belong to uid: those that are
// named, and no others.
func checkOwners(t *testing.T, dir string, uid uint32, want ...string) {
	t.Helper()
	owned := map[string]bool{}
	for _, name := range want {
		owned[filepath.Join(dir, name)] = true
	}
	got := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Sys().(*syscall.Stat_t).Uid == uid {
			got[path] = true
		}
		return err
	})
	if d := cmp.Diff(owned, got); err != nil || d != "" {
		t.Errorf("owned by %d: %v\n%s", uid, err, d)
	}
}

func TestCommandsRefuses(t *testing.T) {
	g := imitated(t, v2files)
	tests := []struct {
		name   string
		limits cgroup.Limits
	}{
		{"cpus", cgroup.Limits{CPUs: 1}},
		{"together", cgroup.Limits{OOMTogether: true}},
		{"little-memory", cgroup.Limits{Memory: 1}},
		{"negative-pids", cgroup.Limits{PIDs: -1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := g.Commands(tt.limits, os.Geteuid(), os.Getegid()); sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("Commands = %v, want invalid", err)
			}
		})
	}
	var err error
	asNobody(t, func() {
		_, err = g.Commands(cgroup.Limits{}, 4321, 4321)
	})
	if err == nil {
		t.Error("an unprivileged user gave files away")
	}
}

// commands makes a group with a part for commands.
func commands(t *testing.T, suffix string, instance, inner cgroup.Limits) (*cgroup.Group, *cgroup.Commands) {
	t.Helper()
	g := group(t, host(t, suffix), "box", instance)
	c, err := g.Commands(inner, agentUID, agentUID)
	if err != nil {
		t.Fatal(err)
	}
	return g, c
}

const mib = 1 << 20

// A hog dies of its own limit, and the agent, though larger than any command,
// does not. Where commands are not in a part of their own, the agent dies.
func TestHogInCommands(t *testing.T) {
	for _, apart := range []bool{true, false} {
		t.Run(map[bool]string{true: "apart", false: "together"}[apart], func(t *testing.T) {
			g, c := commands(t, "hog", cgroup.Limits{Memory: 256 * mib}, cgroup.Limits{Memory: 64 * mib})
			a := startAgent(t, g, c)
			a.must("hold 96")
			if apart {
				a.must("enter")
			}
			got := a.do("hogs 8")
			inner, err := g.CommandsOOMKills()
			if err != nil {
				t.Fatal(err)
			}
			outer, err := g.OOMKills()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%q; killed inside %d, outside %d", got, inner, outer)
			if !apart {
				if got != "" || inner != 0 || outer == 0 {
					t.Error("the agent outlived hogs in its own group")
				}
				return
			}
			if got != fmt.Sprintf("%d killed", inner) || inner < 5 || outer != 0 {
				t.Error("hogs did not die alone")
			}
			a.must("fork")
			if got := a.do("hogs 1"); got != "0 killed" {
				t.Errorf("the next command: %s", got)
			}
		})
	}
}

// A thread is moved, and what it forks is born there; the others stay.
func TestThreadEnters(t *testing.T) {
	g, c := commands(t, "thread", cgroup.Limits{Memory: 256 * mib, PIDs: 300}, cgroup.Limits{Memory: 64 * mib, PIDs: 20})
	if len(c.Tasks) == 0 {
		t.Skip("no version 1 tree")
	}
	a := startAgent(t, g, c)
	if got := a.do("threads"); got != "0 in, others true" {
		t.Errorf("before: %s", got)
	}
	a.must("enter")
	if got := a.do("threads"); got != "1 in, others true" {
		t.Errorf("after: %s", got)
	}
	a.must("fill")
	dir := filepath.Dir(c.PIDsFile)
	if got := strings.TrimSpace(read(t, dir, "pids.current")); got != "21" {
		t.Errorf("%s processes and the thread that forks them, want 21", got)
	}
	if n, ok := cgroup.ParseKeyed([]byte(read(t, c.PIDsFile)), "max"); !ok || n == 0 {
		t.Errorf("refused %d times", n)
	}
	a.must("fork") // the agent's own limit is far
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.PIDs(); err != nil || len(pids) > 0 {
		t.Errorf("left: %v, %v", pids, err)
	}
}

// Where the bomb is in the agent's own group, the agent can't fork either.
func TestBombOutsideCommands(t *testing.T) {
	g, c := commands(t, "outside", cgroup.Limits{PIDs: 60}, cgroup.Limits{PIDs: 20})
	a := startAgent(t, g, c)
	a.must("fill")
	if got := a.do("fork"); got == "ok" {
		t.Error("the agent could fork beside a bomb in its own group")
	}
}

func TestKillTakesCommands(t *testing.T) {
	for _, v2 := range []bool{true, false} {
		t.Run(map[bool]string{true: "as-found", false: "v1-alone"}[v2], func(t *testing.T) {
			h := host(t, "kill")
			if !v2 && !h.DropV2() {
				t.Skip("no version 1 tree")
			}
			g := group(t, h, "box", cgroup.Limits{PIDs: 500})
			c, err := g.Commands(cgroup.Limits{PIDs: 200}, agentUID, agentUID)
			if err != nil {
				t.Fatal(err)
			}
			a := startAgent(t, g, c)
			a.must("enter")
			a.must("bomb")
			if err := g.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if pids, err := g.PIDs(); err != nil || len(pids) > 0 {
				t.Errorf("left: %v, %v", pids, err)
			}
			if names, err := h.List(); err != nil || len(names) != 1 {
				t.Errorf("List = %q, %v; want the instance alone", names, err)
			}
			if err := g.Remove(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := g.CommandsOOMKills(); err == nil {
				t.Error("the part is left")
			}
		})
	}
}

// The agent may use what is given to it and write nothing else; its commands
// may not even do that.
func TestLimitsAreOutOfReach(t *testing.T) {
	g, c := commands(t, "reach", cgroup.Limits{Memory: 256 * mib, PIDs: 300}, cgroup.Limits{Memory: 64 * mib, PIDs: 20})
	a := startAgent(t, g, c)
	for _, file := range c.Tasks {
		a.must("open " + file)
		instance := filepath.Dir(filepath.Dir(file))
		out, err := exec.Command("find", instance, filepath.Dir(instance), "-maxdepth", "2", "-user", fmt.Sprint(agentUID)).Output()
		if err != nil || string(out) != file+"\n" {
			t.Errorf("the agent's below %s: %q, %v", filepath.Dir(instance), out, err)
		}
		for _, other := range []string{
			instance + "/tasks", instance + "/cgroup.procs", filepath.Dir(instance) + "/tasks", filepath.Dir(file) + "/cgroup.procs",
			instance + "/memory.limit_in_bytes", filepath.Dir(file) + "/memory.limit_in_bytes",
			instance + "/pids.max", filepath.Dir(file) + "/pids.max", filepath.Dir(file) + "/memory.oom_control",
		} {
			if got := a.do("open " + other); got == "ok" {
				t.Errorf("the agent may write %s", other)
			}
		}
		cmd := exec.Command("sh", "-c", `echo 0 >"$0"`, file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: agentUID + 1000, Gid: agentUID + 1000}}
		if cmd.Run() == nil {
			t.Errorf("a command's user may write %s", file)
		}
	}
	if c.Root == "" {
		return
	}
	checkOwners(t, c.Root, agentUID, "cgroup.procs", "agent/cgroup.procs",
		"commands", "commands/cgroup.procs", "commands/cgroup.threads", "commands/cgroup.subtree_control", "commands/cgroup.freeze")
	a.must("guest")
}

// Finish takes whoever has entered to the part that they share.
func TestFinishMoves(t *testing.T) {
	g, c := commands(t, "finish", cgroup.Limits{}, cgroup.Limits{})
	if c.Root == "" {
		t.Skip("no version 2 tree")
	}
	// As where version 2 has controllers, which is not so on every machine.
	c.Moves = []cgroup.Move{{From: c.Root + "/cgroup.procs", To: c.Root + "/agent/cgroup.procs"}}
	p, in, out := child(t, "", "sh", "-c", "read x; sleep 1000 & sleep 1000 & echo up; wait")
	if err := g.Enter(p.Process.Pid); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, c.Root, "cgroup.procs"); got != "" {
		t.Errorf("left in the group itself: %q", got)
	}
	if got := strings.Fields(read(t, c.Root, "agent/cgroup.procs")); len(got) != 3 {
		t.Errorf("agent = %q, want three", got)
	}
}

// Finish meets the kernel's own rule for groups with controllers, by way of
// one that this package has no use for where version 1 has the others.
func TestFinishWithController(t *testing.T) {
	top := v2Top(t)
	ctl := spareController(t, top)
	g, c := commands(t, "divide", cgroup.Limits{}, cgroup.Limits{})
	passDown(t, ctl, top, filepath.Dir(c.Root))
	c.Settings = append(c.Settings, cgroup.Setting{File: c.Root + "/cgroup.subtree_control", Value: "+" + ctl})
	c.Moves = []cgroup.Move{{From: c.Root + "/cgroup.procs", To: c.Root + "/agent/cgroup.procs"}}
	a := startAgent(t, g, c)
	a.must("namespace")
	if got := a.do("where"); got != "/" {
		t.Errorf("before: in %s", got)
	}
	moves := c.Moves
	c.Moves = nil
	if err := c.Finish(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("without a move: %v, want busy", err)
	}
	c.Moves = moves
	if err := c.Finish(); err != nil {
		t.Fatal(err)
	}
	if got := a.do("where"); got != "/agent" {
		t.Errorf("after: in %s", got)
	}
	if got := a.do("open " + c.Root + "/cgroup.subtree_control"); got == "ok" {
		t.Error("the agent may take the limits' controllers away")
	}
	a.must("divide " + ctl)
	a.must("guest")
	p, _, _ := child(t, "", "sh", "-c", "read x")
	if err := g.Enter(p.Process.Pid); err != nil {
		t.Errorf("Enter of a divided group: %v", err)
	}
}

// v2Top is where the version 2 tree begins.
func v2Top(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(dir + "/cgroup.subtree_control"); err == nil {
			return dir
		}
	}
	t.Skip("no version 2 tree")
	return ""
}

// spareController returns one that is given to nobody until the test ends.
func spareController(t *testing.T, top string) string {
	t.Helper()
	const name = "hugetlb"
	file := top + "/cgroup.subtree_control"
	if !slices.Contains(strings.Fields(read(t, top, "cgroup.controllers")), name) || slices.Contains(strings.Fields(read(t, file)), name) {
		t.Skip("no controller to spare here")
	}
	t.Cleanup(func() {
		// Others may keep the directory of all homes, or just have removed it.
		_ = os.WriteFile(top+"/carboy/cgroup.subtree_control", []byte("-"+name), 0)
		put(t, top, "cgroup.subtree_control", "-"+name)
	})
	return name
}

// passDown gives a controller to all groups from top to the children of dir.
func passDown(t *testing.T, controller, top, dir string) {
	t.Helper()
	rel, err := filepath.Rel(top, dir)
	if err != nil {
		t.Fatal(err)
	}
	put(t, top, "cgroup.subtree_control", "+"+controller)
	for name := range strings.SplitSeq(rel, "/") {
		top = filepath.Join(top, name)
		put(t, top, "cgroup.subtree_control", "+"+controller)
	}
}
