package boot

import (
	"slices"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// positioned are the calls that read or write at a position: of all, it is the fourth
// argument, below zero where there is none.
var positioned = []string{"pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2"}

// refusePositions has these calls fail as Linux has them fail where a file has no
// positions: by ESPIPE. gVisor says EINVAL of a terminal, and what tries pwritev first,
// as Zig's library does, then draws nothing.
func refusePositions() {
	wrapCalls(withoutPosition, positioned...)
}

// wrapCalls puts what wrapper makes of the sentry's functions for the named calls in their
// place.
func wrapCalls(wrapper func(kernel.SyscallFn) kernel.SyscallFn, names ...string) {
	for _, table := range kernel.SyscallTables() {
		for number, call := range table.Table {
			if slices.Contains(names, call.Name) {
				call.Fn = wrapper(call.Fn)
				table.Table[number] = call
			}
		}
		table.Init() // what is looked up is a copy
	}
}

func withoutPosition(fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		n, control, err := fn(t, sysno, args)
		if err == nil || args[3].Int64() < 0 || !linuxerr.Equals(linuxerr.EINVAL, err) {
			return n, control, err
		}
		file := t.GetFile(args[0].Int())
		if file == nil {
			return n, control, err
		}
		defer file.DecRef(t)
		if _, serr := file.Seek(t, 0, linux.SEEK_CUR); linuxerr.Equals(linuxerr.ESPIPE, serr) {
			err = linuxerr.ESPIPE
		}
		return n, control, err
	}
}
