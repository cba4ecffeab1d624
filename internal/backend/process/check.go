package process

import (
	"context"
	"fmt"

	"github.com/carboy-sandbox/carboy/internal/backend/instance"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Check implements sandbox.Backend.
func (b *Backend) Check(_ context.Context, spec sandbox.Spec) ([]sandbox.Enforcement, error) {
	return b.report(spec)
}

func (b *Backend) report(spec sandbox.Spec) ([]sandbox.Enforcement, error) {
	if sandbox.IsRoot(spec.User) {
		return nil, sandbox.Errorf(sandbox.Unsupported, "user root: the process wall runs no command as root, for the host's kernel is its own").
			WithHint("leave out --user root, or use --isolation gvisor")
	}
	list := []sandbox.Enforcement{
		{Promise: "isolation", Enforced: true, Mechanism: "process: namespaces of the host's kernel, a list of allowed system calls" + landlockMechanism()},
		{Promise: "filesystem", Enforced: true, Mechanism: "private root over the image, in a mount namespace of its own; " + instance.WorkspaceMechanism(spec.Workspace)},
		{Promise: "privileges", Enforced: true, Mechanism: "uid 1000 of a user namespace without capabilities; no_new_privs, no set-id files, own pid and mount namespaces"},
	}
	list = append(list, b.CommandReport(spec.Limits)...)
	list = append(list, b.DiskReport()...)
	list = append(list, instance.RootReport(spec)...)
	if !spec.Networked() { // or else the gate reports
		list = append(list, sandbox.Enforcement{Promise: "network", Enforced: true, Mechanism: "off: a network namespace with a loopback alone"})
	}
	return list, instance.ExplicitEnforced(spec.Limits, list)
}

// landlockMechanism says which Landlock the kernel has, if any.
func landlockMechanism() string {
	if abi := landlockABI(); abi > 0 {
		return fmt.Sprintf(", Landlock (ABI %d)", abi)
	}
	return "; no Landlock in this kernel"
}
