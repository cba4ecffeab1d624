package request

import (
	"cmp"
	"maps"
	"slices"

	"github.com/carboy-sandbox/carboy/api/sessions"
)

// Differences returns all that a request wants otherwise than its session is, of
// the eleven fields in which they must agree. This is the rule of conflicts: who
// wants one of these otherwise is refused while the session is awake. What a
// command alone has is not among them, nor are further mounts: see SameMounts.
// Both sides are compared as they are: the caller has resolved aliases.
func Differences(is, asked Session) (differ []sessions.Difference) {
	for _, f := range []struct {
		name      string
		is, asked any
	}{
		{"network", is.Network, asked.Network},
		{"image", is.Image, asked.Image},
		{"host_path", is.Workspace.HostPath, asked.Workspace.HostPath},
		{"host_path_mode", is.Workspace.Mode, asked.Workspace.Mode},
		{"mount_path", is.Workspace.Target, asked.Workspace.Target},
		{"persistent", is.Persistent, asked.Persistent},
		{"cpus", is.CPUs, asked.CPUs},
		{"memory_mb", is.Memory >> 20, asked.Memory >> 20},
		{"pids_limit", is.PIDs, asked.PIDs},
		{"read_only_rootfs", is.ReadOnlyRoot, asked.ReadOnlyRoot},
		{"workspace_quota_mb", is.Workspace.Size >> 20, asked.Workspace.Size >> 20},
	} {
		if f.is != f.asked {
			differ = append(differ, sessions.Difference{Field: f.name, Is: f.is, Asked: f.asked})
		}
	}
	return differ
}

// SameMounts reports whether two lists of further mounts come to the same,
// whatever their order. Those of mode none are no mounts.
func SameMounts(a, b []Mount) bool {
	return slices.Equal(mountSet(a), mountSet(b))
}

func mountSet(list []Mount) []Mount {
	set := map[Mount]bool{}
	for _, m := range list {
		if m.Mode != NotMounted {
			set[m] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b Mount) int {
		return cmp.Or(cmp.Compare(a.HostPath, b.HostPath), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Mode, b.Mode))
	})
}
