package session

import (
	"fmt"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// otherwise says in what a sandbox is not as was wanted: in a limit, or in
// what is held of its promises.
func otherwise(want sandbox.Spec, is *sandbox.Sandbox) (notices []string) {
	w, l := want.Limits, is.Spec.Limits
	if w.CPUs > 0 && w.CPUs != l.CPUs {
		notices = append(notices, fmt.Sprintf("cpus is %v and not %v: the sandbox could not have more", l.CPUs, w.CPUs))
	}
	for _, of := range []struct {
		name           string
		want, is, unit int64
	}{
		{"memory_mb", w.Memory, l.Memory, 1 << 20},
		{"pids_limit", w.PIDs, l.PIDs, 1},
		{"workspace_quota_mb", w.Disk, l.Disk, 1 << 20},
		{"workspace_inodes", w.Inodes, l.Inodes, 1},
	} {
		if of.want > 0 && of.want != of.is {
			notices = append(notices, fmt.Sprintf("%s is %d and not %d: so the sandbox has it", of.name, of.is/of.unit, of.want/of.unit))
		}
	}
	for _, e := range is.Enforced {
		if !e.Enforced {
			notices = append(notices, fmt.Sprintf("%.40s is not held to here: %.300s", e.Promise, e.Reason))
		}
	}
	return notices
}
