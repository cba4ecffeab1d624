package instance

import (
	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// ExplicitEnforced fails where a limit that was asked for is not kept.
func ExplicitEnforced(l sandbox.Limits, list []sandbox.Enforcement) error {
	for _, e := range list {
		if !e.Enforced && l.Explicit[e.Promise] {
			return sandbox.Errorf(sandbox.Unsupported, "%s: can't be limited here: %s", e.Promise, e.Reason).
				WithHint("leave the limit out, or mend the machine")
		}
	}
	return nil
}

// CheckLink fails where an instance was promised a network and has no link for it,
// or has a link that it was not promised.
func CheckLink(sb *sandbox.Sandbox) error {
	if sb.Spec.Networked() == (sb.Link != nil) {
		return nil
	}
	return sandbox.Errorf(sandbox.Unsupported, "network %s: there is no gate for it", sb.Spec.Network).
		WithHint("leave the network off")
}

// DiskReport says how disk and inodes are limited.
func (h *Host) DiskReport() []sandbox.Enforcement {
	const how = "the instance's own ext4 image, for /workspace and the root's changes"
	list := []sandbox.Enforcement{
		{Promise: "disk", Enforced: true, Mechanism: how},
		{Promise: "inodes", Enforced: true, Mechanism: how},
	}
	if h.diskErr == nil {
		return list
	}
	for i := range list {
		list[i] = sandbox.Enforcement{Promise: list[i].Promise, Reason: h.diskErr.Error()}
	}
	return list
}

// WorkspaceMechanism says in words what /workspace is.
func WorkspaceMechanism(w sandbox.Workspace) string {
	switch w.Mode {
	case sandbox.WorkspaceCOW:
		return "/workspace is an overlay: the host's tree is its read-only, id-mapped lower layer"
	case sandbox.WorkspaceReadOnly:
		return "/workspace is the host's tree, read-only and id-mapped"
	case sandbox.WorkspaceWritable:
		return "/workspace is the host's tree, id-mapped, its git hooks and configuration read-only"
	}
	if w.Mode == sandbox.WorkspaceVolume && w.ReadOnly {
		return "/workspace is a volume, read-only"
	}
	if w.Mode == sandbox.WorkspaceVolume {
		return "/workspace is a volume, within its own bounds"
	}
	return "/workspace is private"
}

// RootReport says how a root that is to be read-only is held.
func RootReport(spec sandbox.Spec) []sandbox.Enforcement {
	if !spec.ReadOnlyRoot {
		return nil
	}
	return []sandbox.Enforcement{{
		Promise: "root", Enforced: true, Mechanism: "read-only mounts, as its kernel tells once they are made; " +
			"/workspace, the mounts, /tmp, /var/tmp, /dev/shm and the user's home are mounts of their own",
	}}
}

// LimitReport says how the host's cgroups keep l.
func (h *Host) LimitReport(l sandbox.Limits) []sandbox.Enforcement {
	return h.cgroups.Report(h.opts.Limits(l))
}

// commandLimits are those that hold for an instance's commands by themselves.
func commandLimits(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory, PIDs: l.PIDs}
}

// CommandReport says how limits are kept where commands have a group of their
// own.
func (h *Host) CommandReport(l sandbox.Limits) []sandbox.Enforcement {
	all := commandLimits(l)
	all.CPUs = l.CPUs
	return h.cgroups.Report(all)
}
