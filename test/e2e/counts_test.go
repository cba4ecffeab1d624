package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// counts is what a home holds of the machine, by kind. What other homes hold
// at the same time is not counted, but for network interfaces.
func (h *home) counts() map[string]int {
	h.t.Helper()
	daemon := h.daemonPID()
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", daemon))
	nets, _ := os.ReadDir("/sys/class/net")
	groups := h.groups()
	pids := h.members(groups)
	files := 0
	for _, dir := range []string{h.dir, cacheDir(h.t)} {
		_ = filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
			if err == nil && !strings.Contains(p, "carboy.db") {
				files++
			}
			return nil
		})
	}
	return map[string]int{
		"processes":          len(pids),
		"mounts and loops":   len(h.mountsAndLoops()),
		"loop devices":       h.loops(),
		"cgroups":            len(groups),
		"interfaces":         len(nets),
		"namespaces":         namespaces(append(pids, daemon)),
		"files":              files,
		"daemon descriptors": len(fds),
	}
}

// groups lists the home's cgroups, of every version and wall.
func (h *home) groups() []string {
	var dirs []string
	for _, state := range []string{"", "/boxes/gvisor", "/boxes/process"} {
		sum := sha256.Sum256([]byte(h.dir + "/state/carboy" + state))
		dirs = append(dirs, hex.EncodeToString(sum[:8]))
	}
	var found []string
	for _, name := range dirs {
		for _, top := range []string{"/sys/fs/cgroup/*/carboy/", "/sys/fs/cgroup/carboy/"} {
			tops, _ := filepath.Glob(top + name)
			for _, t := range tops {
				_ = filepath.WalkDir(t, func(p string, d os.DirEntry, err error) error {
					if err == nil && d.IsDir() {
						found = append(found, p)
					}
					return nil // it may be gone by now
				})
			}
		}
	}
	return found
}

// members lists the processes in cgroups, and those that name the home.
func (h *home) members(groups []string) []int {
	seen := map[int]bool{}
	for _, g := range groups {
		procs, _ := os.ReadFile(filepath.Join(g, "cgroup.procs"))
		for _, f := range bytes.Fields(procs) {
			var pid int
			if _, err := fmt.Sscan(string(f), &pid); err == nil {
				seen[pid] = true
			}
		}
	}
	for _, p := range h.processes() {
		var pid int
		if _, err := fmt.Sscanf(p, "process %d:", &pid); err == nil {
			seen[pid] = true
		}
	}
	pids := make([]int, 0, len(seen))
	for pid := range seen {
		pids = append(pids, pid)
	}
	return pids
}

// loops counts the loop devices over the home's files, removed ones too.
func (h *home) loops() int {
	n := 0
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(h.dir)) {
			n++
		}
	}
	return n
}

// namespaces counts those that the threads of processes are in.
func namespaces(pids []int) int {
	seen := map[string]bool{}
	for _, pid := range pids {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/*", pid))
		for _, l := range links {
			if ns, err := os.Readlink(l); err == nil {
				seen[ns] = true
			}
		}
	}
	return len(seen)
}

// daemonMountNamespaces are those that the daemon's threads are in.
func (h *home) daemonMountNamespaces() map[string]bool {
	h.t.Helper()
	seen := map[string]bool{}
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/mnt", h.daemonPID()))
	for _, l := range links {
		if ns, err := os.Readlink(l); err == nil {
			seen[ns] = true
		}
	}
	return seen
}
