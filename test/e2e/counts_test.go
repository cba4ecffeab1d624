package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// counts is what a home holds of the machine, by kind.
func (h *home) counts() map[string]int {
	h.t.Helper()
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.daemonPID()))
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/carboy/*/*")
	nets, _ := os.ReadDir("/sys/class/net")
	namespaces := map[string]bool{}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/*")
	for _, l := range links {
		if ns, err := os.Readlink(l); err == nil {
			namespaces[ns] = true
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	files := 0
	_ = filepath.WalkDir(h.dir, func(p string, _ os.DirEntry, err error) error {
		if err == nil && !strings.Contains(p, "carboy.db") {
			files++
		}
		return nil
	})
	return map[string]int{
		"processes":          len(h.processes()),
		"mounts":             strings.Count(string(mounts), "\n"),
		"cgroups":            len(groups),
		"interfaces":         len(nets),
		"namespaces":         len(namespaces),
		"loop devices":       len(loops),
		"files":              files,
		"daemon descriptors": len(fds),
	}
}
