package profile

import (
	"cmp"
	"maps"
	"slices"

	"github.com/carboy-sandbox/carboy/api/sessions"
)

// Conflicts returns all that a request wants otherwise than its session is, of
// the eleven fields in which they must agree: network, image, host_path,
// host_path_mode, mount_path, persistent, cpus, memory_mb, pids_limit,
// read_only_rootfs, workspace_quota_mb. What a command alone has (its directory,
// environment, time) is not among them, nor are further mounts: see SameMounts.
// Both sides are compared as they are: whoever calls has resolved aliases.
func Conflicts(is sessions.SessionInfo, asked sessions.Spec) (differ []sessions.Difference) {
	for _, f := range []struct {
		name      string
		is, asked any
	}{
		{"network", is.Network, asked.Network},
		{"image", is.Image, asked.Image},
		{"host_path", is.HostPath, asked.HostPath},
		{"host_path_mode", is.HostPathMode, asked.HostPathMode},
		{"mount_path", is.MountPath, asked.MountPath},
		{"persistent", is.Persistent, asked.Persistent},
		{"cpus", is.CPUs, asked.CPUs},
		{"memory_mb", is.MemoryMB, asked.MemoryMB},
		{"pids_limit", is.PIDsLimit, asked.PIDsLimit},
		{"read_only_rootfs", is.ReadOnlyRootFS, asked.ReadOnlyRootFS},
		{"workspace_quota_mb", is.WorkspaceQuotaMB, asked.WorkspaceQuotaMB},
	} {
		if f.is != f.asked {
			differ = append(differ, sessions.Difference{Field: f.name, Is: f.is, Asked: f.asked})
		}
	}
	return differ
}

// SameMounts reports whether two lists of further mounts come to the same,
// whatever their order. Those of mode none are no mounts.
func SameMounts(a, b []sessions.Mount) bool {
	return slices.Equal(mountSet(a), mountSet(b))
}

func mountSet(list []sessions.Mount) []sessions.Mount {
	set := map[sessions.Mount]bool{}
	for _, m := range list {
		if m.Mode != sessions.MountNone {
			set[m] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b sessions.Mount) int {
		return cmp.Or(cmp.Compare(a.HostPath, b.HostPath), cmp.Compare(a.MountPath, b.MountPath), cmp.Compare(a.Mode, b.Mode))
	})
}
