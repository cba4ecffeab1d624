package boot

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// annotationMounts is in the spec of an instance whose commands may make mount namespaces: in tests, which
// must see what keepMounts is worth.
const annotationMounts = "carboy.mounts"

// keepMounts has commands make no mount namespace: in a copy of the mounts what the agent makes read-only
// later would stay writable. They could mount nothing there anyhow. Commands are the tasks that can't gain
// rights, as every one of the jail's and what it starts; the agent is not among them. A filter of system
// calls can't do it: clone3 has its flags in memory, and the jail needs clone3 itself.
func keepMounts(args []string) {
	if spec, err := donatedSpec(args); err == nil && spec.Annotations[annotationMounts] != "" {
		return
	}
	wrapCalls(refuseMountNamespace, "unshare", "clone")
	wrapCalls(func(fn kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			if !t.GetNoNewPrivs() {
				return fn(t, sysno, args)
			}
			return cloneWithoutMounts(t, args)
		}
	}, "clone3")
}

// refuseMountNamespace wraps a call whose flags are its first argument.
func refuseMountNamespace(fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if t.GetNoNewPrivs() && args[0].Uint64()&linux.CLONE_NEWNS != 0 {
			return 0, nil, linuxerr.EPERM
		}
		return fn(t, sysno, args)
	}
}

// cloneWithoutMounts is clone3 of a command. What it is asked for is read once: another thread may change it meanwhile.
func cloneWithoutMounts(t *kernel.Task, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
	size := args[1].SizeT()
	if size < linux.CLONE_ARGS_SIZE_VER0 || size > linux.CLONE_ARGS_SIZE_VER2 {
		return 0, nil, linuxerr.EINVAL
	}
	var asked linux.CloneArgs
	if at := args[0].Pointer(); at != 0 {
		if _, err := asked.CopyInN(t, at, int(size)); err != nil {
			return 0, nil, err
		}
	}
	sibling := asked.Flags&(linux.CLONE_THREAD|linux.CLONE_PARENT) != 0
	switch {
	case asked.Flags&linux.CLONE_DETACHED != 0, sibling && asked.ExitSignal != 0:
		return 0, nil, linuxerr.EINVAL
	case asked.Flags&linux.CLONE_NEWNS != 0:
		return 0, nil, linuxerr.EPERM
	}
	tid, control, err := t.Clone(&asked)
	if err != nil {
		return 0, nil, err
	}
	return uintptr(tid), control, nil
}
