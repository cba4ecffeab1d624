package gvisor

import (
	"context"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Check implements sandbox.Backend. It answers for a caller of this process's
// own user.
func (b *Backend) Check(_ context.Context, spec sandbox.Spec) ([]sandbox.Enforcement, error) {
	return b.report(spec, instance.OurOwner())
}

func (b *Backend) report(spec sandbox.Spec, owner string) ([]sandbox.Enforcement, error) {
	if sandbox.IsRoot(spec.User) && !instance.RootAllowed(spec, owner) {
		return nil, sandbox.Errorf(sandbox.Unsupported, "user root: not over a directory of the host that the sandbox can write, or that another user named").
			WithHint("leave out :rw, or --user root")
	}
	list := []sandbox.Enforcement{
		{Promise: "isolation", Enforced: true, Mechanism: "gvisor: a kernel in user space (systrap), as a user without rights in a user namespace, behind seccomp"},
		{Promise: "filesystem", Enforced: true, Mechanism: "private root over the host image, in a mount namespace of its own; " + instance.WorkspaceMechanism(spec.Workspace)},
		{Promise: "privileges", Enforced: true, Mechanism: privilegeMechanism(instance.RootAllowed(spec, owner))},
	}
	for _, e := range b.LimitReport(spec.Limits) {
		if e.Promise != "pids" { // the host's is a backstop; the guest's counts
			list = append(list, e)
		}
	}
	list = append(list, sandbox.Enforcement{
		Promise: "pids", Enforced: true, Mechanism: fmt.Sprintf("guest cgroup v2 pids.max %d", spec.Limits.PIDs),
	})
	list = append(list, b.DiskReport()...)
	list = append(list, instance.RootReport(spec)...)
	if !spec.Networked() { // or else the gate reports
		list = append(list, sandbox.Enforcement{Promise: "network", Enforced: true, Mechanism: "off: a network namespace with a loopback alone"})
	}
	return list, instance.ExplicitEnforced(spec.Limits, list)
}

func privilegeMechanism(root bool) string {
	users := []string{"uid 1000 without capabilities"}
	if root {
		users = append(users, "guest root with a container's capabilities where a command asks for it")
	}
	return strings.Join(users, ", ") + "; no_new_privs, no set-id files, own pid and mount namespaces"
}
