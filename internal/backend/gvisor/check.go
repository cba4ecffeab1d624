package gvisor

import (
	"context"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Check implements sandbox.Backend. It answers for a caller of this process's
// own user.
func (b *Backend) Check(_ context.Context, spec sandbox.Spec) ([]sandbox.Enforcement, error) {
	return b.report(spec, ourOwner())
}

func (b *Backend) report(spec sandbox.Spec, owner string) ([]sandbox.Enforcement, error) {
	if spec.Network != sandbox.DefaultNetwork {
		return nil, sandbox.Errorf(sandbox.Unsupported, "network %q: this wall has none but %q", spec.Network, sandbox.DefaultNetwork)
	}
	if spec.User == "root" && !rootAllowed(spec, owner) {
		return nil, sandbox.Errorf(sandbox.Unsupported, "user root: not over a directory of the host that the sandbox can write, or that another user named").
			WithHint("leave out :rw, or --user root")
	}
	list := []sandbox.Enforcement{
		{Promise: "isolation", Enforced: true, Mechanism: "gvisor: a kernel in user space (systrap), as nobody in a user namespace, behind seccomp"},
		{Promise: "filesystem", Enforced: true, Mechanism: "private root over the host image, in a mount namespace of its own; " + workspaceMechanism(spec.Workspace)},
		{Promise: "network", Enforced: true, Mechanism: "off: a network namespace with a loopback alone"},
		{Promise: "privileges", Enforced: true, Mechanism: privilegeMechanism(rootAllowed(spec, owner))},
	}
	for _, e := range b.cgroups.Report(limits(spec.Limits)) {
		if e.Promise != "pids" { // the host's is a backstop; the guest's counts
			list = append(list, e)
		}
	}
	list = append(list, sandbox.Enforcement{
		Promise: "pids", Enforced: true, Mechanism: fmt.Sprintf("guest cgroup v2 pids.max %d", spec.Limits.PIDs),
	})
	list = append(list, b.diskReport()...)
	return list, explicitEnforced(spec.Limits, list)
}

// explicitEnforced fails where a limit that was asked for is not kept.
func explicitEnforced(l sandbox.Limits, list []sandbox.Enforcement) error {
	for _, e := range list {
		if !e.Enforced && l.Explicit[e.Promise] {
			return sandbox.Errorf(sandbox.Unsupported, "%s: can't be limited here: %s", e.Promise, e.Reason).
				WithHint("leave the limit out, or mend the machine")
		}
	}
	return nil
}

func (b *Backend) diskReport() []sandbox.Enforcement {
	const how = "the box's own ext4 image, for /workspace and the root's changes"
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

func workspaceMechanism(w sandbox.Workspace) string {
	switch w.Mode {
	case sandbox.WorkspaceCOW:
		return "/workspace is an overlay: the host's tree is its read-only, id-mapped lower layer"
	case sandbox.WorkspaceReadOnly:
		return "/workspace is the host's tree, read-only and id-mapped"
	case sandbox.WorkspaceWritable:
		return "/workspace is the host's tree, id-mapped, its git hooks and configuration read-only"
	}
	return "/workspace is private"
}

func privilegeMechanism(root bool) string {
	users := []string{"uid 1000 without capabilities"}
	if root {
		users = append(users, "guest root with a container's capabilities where a command asks for it")
	}
	return strings.Join(users, ", ") + "; no_new_privs, no set-id files, own pid and mount namespaces"
}
