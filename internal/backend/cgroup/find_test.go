package cgroup_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// fake lays out a machine's root: files by path, empty directories by a
// trailing slash.
func fake(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		p := filepath.Join(root, name)
		dir := filepath.Dir(p)
		if strings.HasSuffix(name, "/") {
			dir = p
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if dir == p {
			continue
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const (
	lineTmpfs  = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
	lineMemory = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
	lineCPU    = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	linePIDs   = "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
	lineV2     = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	lineV2Only = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
	lineRO     = "31 23 0:28 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup2 rw\n"
)

func TestFind(t *testing.T) {
	v1dirs := map[string]string{"sys/fs/cgroup/memory/": "", "sys/fs/cgroup/cpu,cpuacct/": "", "sys/fs/cgroup/pids/": ""}
	tests := []struct {
		name   string
		mounts string
		own    string
		files  map[string]string
		mode   cgroup.Mode
		usable map[string]int // version by controller
		reason string         // part of memory's
	}{
		{"none", "20 1 8:1 / / rw - ext4 /dev/sda rw\n", "", nil, cgroup.ModeNone, nil, "no cgroup tree"},
		{
			"v1", lineTmpfs + lineMemory + lineCPU + linePIDs, "4:memory:/x\n", v1dirs, cgroup.ModeV1,
			map[string]int{"memory": 1, "cpu": 1, "cpuacct": 1, "pids": 1},
			"",
		},
		{"v1-missing-directory", lineTmpfs + lineMemory, "", nil, cgroup.ModeV1, nil, "may not make groups"},
		{
			"hybrid", lineTmpfs + lineMemory + lineCPU + lineV2, "0::/\n",
			map[string]string{"sys/fs/cgroup/memory/": "", "sys/fs/cgroup/cpu,cpuacct/": "", "sys/fs/cgroup/unified/cgroup.controllers": "pids\n"},
			cgroup.ModeHybrid,
			map[string]int{"memory": 1, "cpu": 1, "cpuacct": 1, "pids": 2},
			"",
		},
		{
			"v2", lineV2Only, "0::/system.slice/x\n",
			map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n"},
			cgroup.ModeV2,
			map[string]int{"memory": 2, "cpu": 2, "pids": 2},
			"",
		},
		{
			"v2-read-only", lineRO, "0::/\n",
			map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n"},
			cgroup.ModeV2, nil, "read-only",
		},
		{
			"v2-controller-not-given", lineV2Only, "0::/\n",
			map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu pids\n"},
			cgroup.ModeV2,
			map[string]int{"cpu": 2, "pids": 2},
			"not given",
		},
		{
			"v2-crowded-container", lineV2Only, "0::/\n",
			map[string]string{"sys/fs/cgroup/cgroup.controllers": "memory pids\n", "sys/fs/cgroup/cgroup.events": "populated 1\n", "sys/fs/cgroup/cgroup.procs": "1\n2\n", "sys/fs/cgroup/cgroup.subtree_control": "pids\n"},
			cgroup.ModeV2,
			map[string]int{"pids": 2},
			"2 other processes",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{"proc/self/mountinfo": tt.mounts, "proc/self/cgroup": tt.own}
			for k, v := range tt.files {
				files[k] = v
			}
			h, err := cgroup.Find(fake(t, files), "home")
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if got := h.Mode(); got != tt.mode {
				t.Errorf("mode = %s, want %s", got, tt.mode)
			}
			got := map[string]int{}
			for _, c := range h.Controllers() {
				if c.Usable {
					got[c.Name] = c.Version
				} else if c.Reason == "" {
					t.Errorf("%s is not usable for no reason", c.Name)
				}
				if c.Name == "memory" && !strings.Contains(c.Reason, tt.reason) {
					t.Errorf("reason = %q, want %q in it", c.Reason, tt.reason)
				}
			}
			if tt.usable == nil {
				tt.usable = map[string]int{}
			}
			if d := cmp.Diff(tt.usable, got); d != "" {
				t.Errorf("usable -want +got\n%s", d)
			}
		})
	}
}

func TestFindRefuses(t *testing.T) {
	root := fake(t, map[string]string{"proc/self/mountinfo": "garbage\n", "proc/self/cgroup": ""})
	if _, err := cgroup.Find(root, "home"); err == nil {
		t.Error("a malformed mountinfo was accepted")
	}
	for _, ns := range []string{"", "..", "a/b", "A", "a.b", "tasks", "notify_on_release", strings.Repeat("a", 129), "a\x00"} {
		if _, err := cgroup.Find("/", ns); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("Find(%q) = %v, want invalid", ns, err)
		}
	}
}

// v2files are the files of a group of version 2 with all controllers on.
var v2files = map[string]string{
	"cgroup.procs": "", "cgroup.subtree_control": "", "cgroup.controllers": "cpu memory pids\n", "cgroup.events": "populated 0\n", "cgroup.kill": "",
	"memory.max": "max\n", "memory.swap.max": "max\n", "memory.oom.group": "0\n", "memory.current": "4096\n", "memory.peak": "8192\n", "memory.reclaim": "",
	"memory.stat":   "anon 1\nfile 3072\nshmem 1024\nslab_reclaimable 512\n",
	"memory.events": "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\noom_group_kill 0\n",
	"cpu.max":       "max 100000\n", "cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "pids.max": "max\n",
}

// v2machine has one tree of version 2.
var v2machine = map[string]string{
	"proc/self/mountinfo": lineV2Only, "proc/self/cgroup": "0::/init.scope\n",
	"sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n", "sys/fs/cgroup/cgroup.subtree_control": "",
}

func TestV2Imitation(t *testing.T) {
	root := fake(t, v2machine)
	h, err := cgroup.Find(root, "home")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	h.Imitate(v2files)
	l := cgroup.Limits{Memory: 64 << 20, CPUs: 1.5, PIDs: 300, OOMTogether: true}
	g, err := h.Create("box", l)
	if err != nil {
		t.Fatal(err)
	}
	want := []sandbox.Enforcement{
		{Promise: "memory", Enforced: true, Mechanism: "cgroup v2 memory.max"},
		{Promise: "cpus", Enforced: true, Mechanism: "cgroup v2 cpu.max"},
		{Promise: "pids", Enforced: true, Mechanism: "cgroup v2 pids.max"},
	}
	if d := cmp.Diff(want, g.Enforced()); d != "" {
		t.Errorf("enforced -want +got\n%s", d)
	}
	dir := filepath.Join(root, "sys/fs/cgroup/carboy/home/box")
	if err := g.Reclaim(1234); err != nil {
		t.Errorf("Reclaim = %v", err)
	}
	for file, want := range map[string]string{
		"memory.reclaim": "1234",
		"memory.max":     "67108864", "memory.swap.max": "0", "memory.oom.group": "1", "cpu.max": "150000 100000", "pids.max": "300",
		// Each write turns one controller on, and a plain file keeps the last one.
		"../cgroup.subtree_control": "+pids", "../../cgroup.subtree_control": "+pids", "../../../cgroup.subtree_control": "+pids",
	} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if got := strings.TrimRight(string(b), "\n"); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s = %q, %v; want %q", file, got, err, want)
		}
	}
	checkV2Counters(t, g)
	if got := g.ProcsFiles(); len(got) != 1 || got[0] != filepath.Join(dir, "cgroup.procs") {
		t.Errorf("ProcsFiles = %q", got)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "cgroup.kill")); string(b) != "1" {
		t.Errorf("cgroup.kill = %q, want 1", b)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if err := h.Prune(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(root, "sys/fs/cgroup/carboy")); err == nil {
		t.Error("the parent is left")
	}
}

// Others prune what is above a group while it is made.
func TestCreateWhileOthersPrune(t *testing.T) {
	root := fake(t, v2machine)
	for _, name := range []string{"carboy", "home"} {
		h, err := cgroup.Find(root, "home")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		h.Imitate(v2files)
		h.PruneAt(name, 3)
		g, err := h.Create("box", cgroup.Limits{PIDs: 300})
		if err != nil {
			t.Errorf("where %s is pruned: %v", name, err)
			continue
		}
		if err := g.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if err := h.Prune(); err != nil {
			t.Error(err)
		}
	}
}

func checkV2Counters(t *testing.T, g *cgroup.Group) {
	t.Helper()
	if n, err := g.OOMKills(); n != 2 || err != nil {
		t.Errorf("OOMKills = %d, %v; want 2", n, err)
	}
	if n, err := g.MemoryCurrent(); n != 4096 || err != nil {
		t.Errorf("MemoryCurrent = %d, %v", n, err)
	}
	if n, err := g.Reclaimable(); n != 2560 || err != nil {
		t.Errorf("Reclaimable = %d, %v", n, err)
	}
	if n, err := g.MemoryPeak(); n != 8192 || err != nil {
		t.Errorf("MemoryPeak = %d, %v", n, err)
	}
	if d, err := g.CPUUsage(); d.Microseconds() != 1500 || err != nil {
		t.Errorf("CPUUsage = %v, %v", d, err)
	}
}

// asNobody runs fn with the file permissions of an unprivileged user.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its identity
		_, _ = unix.SetfsgidRetGid(65534)
		_, _ = unix.SetfsuidRetUid(65534)
		fn()
	}()
	<-done
}

func TestDelegationImitation(t *testing.T) {
	const user = "sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
	layout := map[string]string{
		"proc/self/mountinfo":              lineV2Only,
		"proc/self/cgroup":                 "0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope\n",
		"sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
	}
	for _, d := range []string{user, user + "/app.slice", user + "/app.slice/x.scope"} {
		layout[d+"/cgroup.controllers"] = "memory pids\n"
		layout[d+"/cgroup.procs"] = ""
		layout[d+"/cgroup.subtree_control"] = "memory pids\n"
		layout[d+"/cgroup.events"] = "populated 1\n"
	}
	tests := []struct {
		name string
		give []string // delegated directories below the user's service, "" for none
		want string   // where groups would go, "" where they can't
	}{
		{"nothing", nil, ""},
		{"whole-service", []string{"", "/app.slice", "/app.slice/x.scope"}, user},
		{"own-scope", []string{"/app.slice/x.scope"}, user + "/app.slice/x.scope"},
		{"not-contiguous", []string{""}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := fake(t, layout)
			for _, d := range tt.give {
				for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
					if err := os.Chown(filepath.Join(root, user+d, f), 65534, 65534); err != nil {
						t.Skip(err)
					}
				}
			}
			var h *cgroup.Host
			var err error
			asNobody(t, func() { h, err = cgroup.Find(root, "home") })
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			for _, c := range h.Controllers() {
				switch want := filepath.Join(root, tt.want); {
				case c.Name == "cpu" || tt.want == "":
					if c.Usable || c.Reason == "" {
						t.Errorf("%+v, want a reason", c)
					}
				case !c.Usable || c.Path != want:
					t.Errorf("%+v, want %s", c, want)
				}
			}
		})
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte(lineTmpfs + lineMemory + lineV2))
	f.Add([]byte("1 2 0:1 / /a\\040b rw - cgroup c rw,memory\n0::/x (deleted)\n"))
	f.Add([]byte("1\n22\n0\n"))
	f.Add([]byte("oom_kill 3\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := cgroup.ParseMounts(b); err != nil && n != 0 {
			t.Error("an error and a result")
		}
		if own := cgroup.ParseOwn(b); strings.Contains(own, "\n") {
			t.Errorf("own = %q", own)
		}
		if pids, err := cgroup.ParsePIDs(b); err == nil {
			for _, p := range pids {
				if p <= 0 {
					t.Errorf("process number %d", p)
				}
			}
		}
		cgroup.ParseKeyed(b, "oom_kill")
	})
}
