package instance

import (
	"fmt"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// report says how each promise of a spec of that owner is kept.
func (b *Backend) report(spec sandbox.Spec, owner string) ([]sandbox.Enforcement, error) {
	isolation, privileges, err := b.wall.Promises(spec, owner)
	if err != nil {
		return nil, err
	}
	list := []sandbox.Enforcement{
		{Promise: "isolation", Enforced: true, Mechanism: isolation},
		{Promise: "filesystem", Enforced: true, Mechanism: privateRoot + workspaceMechanism(spec.Workspace)},
		{Promise: "privileges", Enforced: true, Mechanism: privileges},
	}
	list = slices.Concat(list, b.limitReport(spec.Limits), b.diskReport(), rootReport(spec))
	if !spec.Networked() { // or else the gate reports
		list = append(list, sandbox.Enforcement{Promise: "network", Enforced: true, Mechanism: "off: a network namespace with a loopback alone"})
	}
	return list, explicitEnforced(spec.Limits, list)
}

// privateRoot is how files are kept apart.
const privateRoot = "private root over the image, in a mount namespace of its own; "

// explicitEnforced fails where a limit that was asked for is not kept.
func explicitEnforced(l sandbox.Limits, list []sandbox.Enforcement) error {
	for _, e := range list {
		if !e.Enforced && l.Explicit[e.Promise] {
			return sandbox.Errorf(sandbox.Unsupported, "%s: can't be limited here: %s", e.Promise, e.Reason).
				WithHint("leave the limit out, or see what mends it: carboy doctor")
		}
	}
	return nil
}

// checkLink fails where an instance was promised a network and has no link for it,
// or has a link that it was not promised.
func checkLink(sb *sandbox.Sandbox) error {
	if sb.Spec.Networked() == (sb.Link != nil) {
		return nil
	}
	return sandbox.Errorf(sandbox.Unsupported, "network %s: there is no gate for it", sb.Spec.Network).
		WithHint("leave the network off")
}

// diskReport says how disk and inodes are limited.
func (b *Backend) diskReport() []sandbox.Enforcement {
	const how = "the sandbox's own ext4 image, for /workspace and the root's changes"
	list := []sandbox.Enforcement{
		{Promise: "disk", Enforced: true, Mechanism: how},
		{Promise: "inodes", Enforced: true, Mechanism: how},
	}
	if b.diskErr == nil {
		return list
	}
	for i := range list {
		list[i] = sandbox.Enforcement{Promise: list[i].Promise, Reason: b.diskErr.Error()}
	}
	return list
}

// workspaceMechanism says in words what /workspace is.
func workspaceMechanism(w sandbox.Workspace) string {
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

// rootReport says how a root that is to be read-only is held.
func rootReport(spec sandbox.Spec) []sandbox.Enforcement {
	if !spec.ReadOnlyRoot {
		return nil
	}
	return []sandbox.Enforcement{{
		Promise: "root", Enforced: true, Mechanism: "read-only mounts, as its kernel tells once they are made; " +
			"/workspace, the mounts, /tmp, /var/tmp, /dev/shm and the user's home are mounts of their own",
	}}
}

// limitReport says how limits are kept: of commands that have a group of their
// own by that, else by the instance's.
func (b *Backend) limitReport(l sandbox.Limits) []sandbox.Enforcement {
	if b.wall.OwnCommands {
		all := commandLimits(l)
		all.CPUs = l.CPUs
		return b.cgroups.Report(all)
	}
	list := slices.DeleteFunc(b.cgroups.Report(b.wall.Limits(l)), func(e sandbox.Enforcement) bool {
		return e.Promise == "pids" // the host's is a backstop; the guest's counts
	})
	return append(list, sandbox.Enforcement{
		Promise: "pids", Enforced: true, Mechanism: fmt.Sprintf("guest cgroup v2 pids.max %d", l.PIDs),
	})
}

// commandLimits are those that hold for an instance's commands by themselves.
func commandLimits(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory, PIDs: l.PIDs}
}
