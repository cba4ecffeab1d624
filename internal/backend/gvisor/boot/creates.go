package boot

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// createTries is how often a file is opened that others make and remove at the same time.
const createTries = 20

// createAmidOthers has programs make files in what the host's programs write to as well. gVisor
// looks a name up, and then opens or makes it: of one that comes or goes in between it says
// EEXIST or ENOENT to an open that would make the file, which Linux never does. SQLite then
// opens its database to be read alone.
func createAmidOthers() {
	wrapCalls(createWith(func(a arch.SyscallArguments) uint32 { return a[1].Uint() }), "open")
	wrapCalls(createWith(func(a arch.SyscallArguments) uint32 { return a[2].Uint() }), "openat")
	wrapCalls(createWith(func(arch.SyscallArguments) uint32 { return linux.O_CREAT }), "creat")
}

// createWith is for a call that has its flags where they says.
func createWith(flags func(arch.SyscallArguments) uint32) func(kernel.SyscallFn) kernel.SyscallFn {
	return func(fn kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (n uintptr, control *kernel.SyscallControl, err error) {
			tries := 1
			if f := flags(args); f&linux.O_CREAT != 0 && f&linux.O_EXCL == 0 {
				tries = createTries
			}
			for range tries {
				n, control, err = fn(t, sysno, args)
				if !linuxerr.Equals(linuxerr.ENOENT, err) && !linuxerr.Equals(linuxerr.EEXIST, err) {
					break
				}
			}
			return n, control, err
		}
	}
}
