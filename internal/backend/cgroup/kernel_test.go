package cgroup_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// helper names the role in which the test binary was started.
const helper = "CGROUP_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "":
		os.Exit(m.Run())
	case "hog":
		hog()
	case "delegated":
		delegated()
	case "agent":
		agent()
	case "holder":
		holder()
	}
}

// hog waits for a line and then touches as many MiB as it says.
func hog() {
	var n int
	if _, err := fmt.Scan(&n); err != nil {
		os.Exit(2)
	}
	b, err := unix.Mmap(-1, 0, n<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		os.Exit(3)
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	fmt.Println("survived")
	os.Exit(0)
}

// host finds this machine's cgroups in a namespace of the test's own.
func host(t testing.TB, suffix string) *cgroup.Host {
	t.Helper()
	h, err := cgroup.Find("/", fmt.Sprintf("test-%d-%s", os.Getpid(), suffix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if names, err := h.List(); err != nil || len(names) > 0 {
			t.Errorf("groups left: %q, %v", names, err)
		}
		if err := h.Prune(); err != nil {
			t.Error(err)
		}
		h.Close()
	})
	return h
}

// group makes a group with limits, or skips where one can't be enforced.
func group(t testing.TB, h *cgroup.Host, name string, l cgroup.Limits) *cgroup.Group {
	t.Helper()
	for _, e := range h.Report(l) {
		if !e.Enforced {
			t.Skip(e.Reason)
		}
	}
	g, err := h.Create(name, l)
	if sandbox.KindOf(err) == sandbox.Unsupported {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, g) })
	return g
}

// child starts a command whose stdin stays open until the test ends.
func child(t testing.TB, env string, argv ...string) (*exec.Cmd, *os.File, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(os.Environ(), env)
	c.Stdin = r
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() { w.Close(); _ = c.Process.Kill(); _ = c.Wait() })
	return c, w, bufio.NewReader(out)
}

func TestLifeOnThisKernel(t *testing.T) {
	h := host(t, "life")
	g := group(t, h, "box", cgroup.Limits{Memory: 64 << 20, CPUs: 0.5, PIDs: 100})
	for _, e := range g.Enforced() {
		t.Logf("%s: %s", e.Promise, e.Mechanism)
	}
	if _, err := h.Create("box", cgroup.Limits{}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a second Create = %v, want conflict", err)
	}
	c, _, _ := child(t, "", "sh", "-c", "read x")
	if err := g.Enter(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if got, err := g.PIDs(); err != nil || !slices.Equal(got, []int{c.Process.Pid}) {
		t.Errorf("PIDs = %v, %v", got, err)
	}
	for _, p := range g.ProcsFiles() {
		if b, err := os.ReadFile(p); err != nil || strings.TrimSpace(string(b)) != strconv.Itoa(c.Process.Pid) {
			t.Errorf("%s = %q, %v", p, b, err)
		}
	}
	if names, err := h.List(); err != nil || !slices.Equal(names, []string{"box"}) {
		t.Errorf("List = %q, %v", names, err)
	}
	again, err := h.Open("box") // what the next daemon does
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.CPUUsage(); err != nil {
		t.Error(err)
	}
	if err := again.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if procid.Alive(mustID(t, c)) {
		t.Error("the process survived")
	}
	for range 2 {
		if err := again.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := again.Kill(t.Context()); err != nil {
		t.Errorf("Kill of a removed group = %v", err)
	}
	if _, err := h.Open("box"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("Open of a removed group = %v, want not found", err)
	}
	if err := g.Enter(os.Getpid()); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("Enter of a removed group = %v, want not found", err)
	}
	if _, err := g.MemoryCurrent(); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("MemoryCurrent of a removed group = %v, want not found", err)
	}
}

func mustID(t testing.TB, c *exec.Cmd) procid.ID {
	t.Helper()
	id, err := procid.Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestMemoryLimitKills(t *testing.T) {
	h := host(t, "memory")
	for _, tt := range []struct {
		name  string
		limit int64
		dies  bool
	}{{"within", 256 << 20, false}, {"beyond", 32 << 20, true}} {
		t.Run(tt.name, func(t *testing.T) {
			g := group(t, h, tt.name, cgroup.Limits{Memory: tt.limit})
			c, in, out := child(t, helper+"=hog", "/proc/self/exe")
			if err := g.Enter(c.Process.Pid); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(in, 64)
			line, _ := out.ReadString('\n')
			if died := line == ""; died != tt.dies {
				t.Errorf("died = %t, want %t", died, tt.dies)
			}
			kills, err := g.OOMKills()
			if err != nil || (kills > 0) != tt.dies {
				t.Errorf("OOMKills = %d, %v", kills, err)
			}
			if cache, err := g.Reclaimable(); err != nil || cache < 0 || cache > tt.limit {
				t.Errorf("Reclaimable = %d, %v; limit %d", cache, err, tt.limit)
			}
			peak, err := g.MemoryPeak()
			// What the kernel can't refuse, such as a dying task's pages, goes past the limit.
			if err != nil || peak > tt.limit+1<<20 || peak < 16<<20 {
				t.Errorf("MemoryPeak = %d, %v; limit %d", peak, err, tt.limit)
			}
		})
	}
}

func TestPIDLimitStopsForks(t *testing.T) {
	g := group(t, host(t, "pids"), "box", cgroup.Limits{PIDs: 5})
	c, in, out := child(t, "", "sh", "-c", "read x; for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 >/dev/null & done 2>/dev/null; echo unreachable")
	if err := g.Enter(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in)
	_, _ = out.ReadString('\n') // the shell gave up, or got there
	if pids, err := g.PIDs(); err != nil || len(pids) > 5 || len(pids) < 4 {
		t.Errorf("PIDs = %v, %v; want at most 5", pids, err)
	}
}

func TestCPUQuotaThrottles(t *testing.T) {
	g := group(t, host(t, "cpu"), "box", cgroup.Limits{CPUs: 0.1})
	c, in, _ := child(t, "", "sh", "-c", "read x; while :; do :; done")
	if err := g.Enter(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in)
	var dir string
	for _, p := range g.ProcsFiles() {
		if _, err := os.Stat(filepath.Join(filepath.Dir(p), "cpu.max")); err == nil || strings.Contains(p, "/cpu/") || strings.Contains(p, "cpu,cpuacct") {
			dir = filepath.Dir(p)
		}
	}
	throttled := func() uint64 {
		b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		if err != nil {
			t.Fatal(err)
		}
		n, _ := cgroup.ParseKeyed(b, "nr_throttled")
		return n
	}
	start := time.Now()
	if !patience.Until(20*time.Second, func() bool { return throttled() >= 3 }) {
		t.Fatal("it was not throttled")
	}
	used, err := g.CPUUsage()
	if err != nil || used == 0 {
		t.Errorf("CPUUsage = %v, %v", used, err)
	}
	t.Logf("used %v of %v", used, time.Since(start))
}

func TestKillEndsAForkBomb(t *testing.T) {
	for _, v2 := range []bool{true, false} {
		t.Run(map[bool]string{true: "as-found", false: "v1-alone"}[v2], func(t *testing.T) {
			h := host(t, "bomb")
			if !v2 && !h.DropV2() {
				t.Skip("no version 1 tree")
			}
			g := group(t, h, "box", cgroup.Limits{PIDs: 400})
			c, in, out := child(t, "", "sh", "-c", `read x; echo go; f() { f & f & }; f 2>/dev/null; wait`)
			if err := g.Enter(c.Process.Pid); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(in)
			if _, err := out.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			for n := 0; n < 50; { // let it grow
				pids, err := g.PIDs()
				if err != nil {
					t.Fatal(err)
				}
				if n = len(pids); n == 0 {
					break
				}
			}
			if err := g.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if pids, err := g.PIDs(); err != nil || len(pids) > 0 {
				t.Errorf("PIDs = %v, %v; want none", pids, err)
			}
			if err := g.Remove(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRemoveWaitsForTheDyingAlone(t *testing.T) {
	h := host(t, "remove")
	g := group(t, h, "box", cgroup.Limits{})
	c, _, _ := child(t, "", "sh", "-c", "read x")
	if err := g.Enter(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	h.SetRemoveWait(20 * time.Millisecond)
	if err := g.Remove(t.Context()); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("Remove of a busy group = %v, want conflict", err)
	}
	if !procid.Alive(mustID(t, c)) {
		t.Fatal("Remove killed a process")
	}
	h.SetRemoveWait(cgroup.RemoveWait)
	done := make(chan error, 1)
	go func() { done <- g.Remove(t.Context()) }()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Remove = %v", err)
	}
}

func TestRemoveTakesNestedGroups(t *testing.T) {
	g := group(t, host(t, "nested"), "box", cgroup.Limits{})
	c, _, _ := child(t, "", "sh", "-c", "read x")
	for _, p := range g.ProcsFiles() {
		inner := filepath.Join(filepath.Dir(p), "inner", "most")
		if err := os.MkdirAll(inner, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(inner, "cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if pids, err := g.PIDs(); err != nil || !slices.Equal(pids, []int{c.Process.Pid}) {
		t.Errorf("PIDs = %v, %v", pids, err)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNamespacesAreApart(t *testing.T) {
	a, b := host(t, "a"), host(t, "b")
	ga := group(t, a, "box", cgroup.Limits{})
	if _, err := b.Open("box"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("Open = %v, want not found", err)
	}
	group(t, b, "box", cgroup.Limits{})
	if err := b.Prune(); err != nil {
		t.Error(err)
	}
	if names, err := a.List(); err != nil || !slices.Equal(names, []string{"box"}) {
		t.Errorf("List = %q, %v", names, err)
	}
	end(t, ga)
	if names, err := b.List(); err != nil || !slices.Equal(names, []string{"box"}) {
		t.Errorf("List = %q, %v", names, err)
	}
}

func TestCreateAfterAnotherPruned(t *testing.T) {
	h := host(t, "pruned")
	end(t, group(t, h, "one", cgroup.Limits{}))
	other, err := cgroup.Find("/", fmt.Sprintf("test-%d-pruned", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Prune(); err != nil {
		t.Fatal(err)
	}
	end(t, group(t, h, "two", cgroup.Limits{}))
}

func TestCreateRefuses(t *testing.T) {
	h := host(t, "bad")
	for name, l := range map[string]cgroup.Limits{
		"../x": {}, "": {}, "a.b": {}, "tasks": {},
		"low": {Memory: 1}, "negative": {Memory: -1}, "no-cpu": {CPUs: 0.001}, "minus-cpu": {CPUs: -1}, "many": {PIDs: 1 << 30},
	} {
		if _, err := h.Create(name, l); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("Create(%q, %+v) = %v, want invalid", name, l, err)
		}
	}
}

func TestBornInTheGroup(t *testing.T) {
	g := group(t, host(t, "born"), "box", cgroup.Limits{})
	f, err := g.CgroupFD()
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	c := exec.Command("cat", "/proc/self/cgroup")
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "-born/box\n") {
		t.Errorf("cgroup = %q", out)
	}
}

// end kills and removes a group.
func end(t testing.TB, g *cgroup.Group) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // cleanups run after it has ended
	if err := errors.Join(g.Kill(ctx), g.Remove(ctx)); err != nil {
		t.Error(err)
	}
}
