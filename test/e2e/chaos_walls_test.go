package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/long"
)

// behindEach runs a test behind every wall, at the same time.
func behindEach(t *testing.T, test func(t *testing.T, wall string)) {
	t.Helper()
	for _, wall := range wallNames {
		t.Run(wall, func(t *testing.T) {
			t.Parallel()
			test(t, wall)
		})
	}
}

// behindOne makes a test of what does not depend on a wall: in make test behind the one that is
// named, in make test-long behind each.
func behindOne(t *testing.T, wall string, test func(t *testing.T, wall string)) {
	t.Helper()
	if long.On() {
		behindEach(t, test)
		return
	}
	t.Run(wall, func(t *testing.T) { test(t, wall) })
}

// inside lists the host's processes of a sandbox, by their control group.
func inside(id string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !alive(pid) {
			continue
		}
		groups, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if bytes.Contains(groups, []byte(id)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// id returns the ID of a sandbox.
func (h *home) id(name string) string {
	h.t.Helper()
	for _, sb := range h.list() {
		if sb.Name == name {
			return sb.ID
		}
	}
	h.t.Fatalf("no sandbox is called %s", name)
	return ""
}

// Each process that a sandbox has on the host is killed once, the guest agent
// among them where the host can see it. Whatever it was, the sandbox either
// goes on or has ended, is told as such, and starts again with its work.
func TestSandboxProcessesKilled(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall)
		id := h.id(name)
		h.ok("exec", name, "--", "sh", "-c", "echo work > /workspace/f")
		most := len(inside(id))
		if most == 0 {
			t.Fatal("it has none")
		}
		for i := range most {
			pids := inside(id)
			if i >= len(pids) {
				break
			}
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pids[i]))
			if err := syscall.Kill(pids[i], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			until(t, func() bool { return !alive(pids[i]) })
			h.worksOn(fmt.Sprintf("after the death of %s", bytes.TrimSpace(comm)), name)
		}
	})
}

// worksOn wants a sandbox to answer, by itself or after a start, with what is
// in /workspace/f. While it is being noticed that it has ended, commands may
// fail.
func (h *home) worksOn(when, name string) {
	h.t.Helper()
	var last result
	until(h.t, func() bool {
		last = h.run(nil, "exec", name, "--", "cat", "/workspace/f")
		if last.code == 0 {
			return true
		}
		if last.code != 125 && last.code != 137 {
			h.t.Fatalf("%s: %+v", when, last)
		}
		if strings.Contains(last.stderr, "carboy start") {
			h.ok("start", name)
		}
		return false
	})
	if last.stdout != "work\n" {
		h.t.Errorf("%s: the work is %q", when, last.stdout)
	}
}

// All of a sandbox's processes die at some moment of a command line. It ends,
// with success or with an error that says something, and never hangs.
func TestSandboxKilledDuring(t *testing.T) {
	t.Parallel()
	steps := []struct {
		name string
		args func(h *home, name string) []string
	}{
		{"exec", func(_ *home, name string) []string {
			return []string{"exec", name, "--", "sh", "-c", "sleep 0.3; echo done"}
		}},
		{"output", func(_ *home, name string) []string {
			return []string{"exec", name, "--", "head", "-c", "100000000", "/dev/zero"}
		}},
		{"copy-in", func(h *home, name string) []string { return []string{"cp", h.dir + "/big", name + ":/workspace/big"} }},
		{"copy-out", func(h *home, name string) []string { return []string{"cp", name + ":/usr/bin/git", h.dir + "/out"} }},
		{"stop", func(_ *home, name string) []string { return []string{"stop", name} }},
	}
	moments := long.Moments(2, 4, 60*time.Millisecond)
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		if err := os.WriteFile(h.dir+"/big", make([]byte, 64<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		name := h.create("--isolation", wall)
		id := h.id(name)
		h.ok("exec", name, "--", "sh", "-c", "echo work > /workspace/f")
		for _, step := range steps {
			t.Run(step.name, func(t *testing.T) {
				for _, at := range moments {
					done := make(chan result, 1)
					go func() { done <- h.run(nil, step.args(h, name)...) }()
					<-time.After(at)
					for _, pid := range inside(id) {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
					if r := <-done; r.code != 0 && strings.TrimSpace(r.stderr) == "" {
						t.Errorf("at %v: exit code %d, and nothing said", at, r.code)
					}
					h.worksOn(fmt.Sprintf("%s, at %v", step.name, at), name)
				}
			})
		}
	})
}

// The processes of a sandbox that is being made die: the create fails and
// leaves nothing, or the sandbox is whole.
func TestSandboxKilledDuringCreate(t *testing.T) {
	t.Parallel()
	moments := long.Moments(2, 8, 10*time.Millisecond)
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		keep := h.id(h.create("--isolation", wall, "--name", "kept"))
		failed := 0
		for _, at := range moments {
			done := make(chan result, 1)
			go func() { done <- h.run(nil, "create", "--isolation", wall, "--name", "victim") }()
			until(t, func() bool { return len(h.others(keep)) > 0 || len(done) > 0 })
			<-time.After(at)
			for _, pid := range h.others(keep) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			if r := <-done; r.code != 0 {
				failed++
				if strings.TrimSpace(r.stderr) == "" {
					t.Errorf("at %v: exit code %d, and nothing said", at, r.code)
				}
				if list := h.list(); len(list) != 1 {
					t.Errorf("at %v: the create failed and left %+v", at, list)
				}
				continue
			}
			until(t, func() bool { // it may have died just after, unnoticed so far
				h.run(nil, "start", "victim")
				return h.run(nil, "exec", "victim", "--", "true").code == 0
			})
			h.ok("rm", "-f", "victim")
		}
		t.Logf("%d of %d creates failed", failed, len(moments))
		h.ok("exec", "kept", "--", "true")
	})
}

// others lists the processes of the home's boxes but one's.
func (h *home) others(id string) []int {
	var pids []int
	for _, pattern := range []string{"/boxes/*", "/boxes/*/*"} {
		dirs, _ := filepath.Glob(h.dir + "/state/carboy" + pattern)
		for _, d := range dirs {
			if other := filepath.Base(d); strings.HasPrefix(other, "sb_") && other != id {
				pids = append(pids, inside(other)...)
			}
		}
	}
	return pids
}
