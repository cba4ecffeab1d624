package boot

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	slinux "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// createRounds bounds how often an open that makes a file is tried anew. Beside eight programs that
// make and remove one name without a pause, 58 times were the most that one of 20,000 opens took.
// A link to a directory that is not there takes them all: it can't be told from a file that has gone.
const createRounds = 200

// createAmidOthers has an open that makes a file where there is none succeed while others make
// and remove that file. Of a file on the host gVisor looks the name up, asks the gofer to make
// it, and looks it up once more if it is there by then. It says ENOENT where it has gone again, and
// ELOOP where it is a symbolic link now. Linux holds the directory meanwhile.
func createAmidOthers() {
	wrapCalls(withFlagsAt(1), "open")
	wrapCalls(withFlagsAt(2), "openat")
	wrapCalls(asOpen, "creat")
}

// asOpen is creat as open(2) describes it.
func asOpen(kernel.SyscallFn) kernel.SyscallFn {
	open := withFlagsAt(1)(slinux.Open)
	flags := arch.SyscallArgument{Value: linux.O_WRONLY | linux.O_CREAT | linux.O_TRUNC}
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		return open(t, sysno, arch.SyscallArguments{args[0], flags, args[1]})
	}
}

// withFlagsAt wraps an open whose flags are its argument of this index. Where it has missed a file, it is
// tried with O_EXCL. That makes the file, or says why it can't be: ENOENT for want of the directory, which is
// the answer, or EEXIST, and then the file has come, and the open as it was asked for finds it.
func withFlagsAt(index int) func(kernel.SyscallFn) kernel.SyscallFn {
	return func(fn kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			n, control, err := fn(t, sysno, args)
			exclusive := args
			exclusive[index].Value |= linux.O_EXCL
			for round := 0; round < createRounds && missed(args[index].Uint(), err); round++ {
				n, control, err = fn(t, sysno, exclusive)
				if !linuxerr.Equals(linuxerr.EEXIST, err) {
					break
				}
				n, control, err = fn(t, sysno, args)
			}
			return n, control, err
		}
	}
}

// missed reports whether an open with these flags may have failed by what others did meanwhile.
func missed(flags uint32, err error) bool {
	if err == nil || flags&(linux.O_CREAT|linux.O_EXCL) != linux.O_CREAT {
		return false
	}
	return linuxerr.Equals(linuxerr.ENOENT, err) || linuxerr.Equals(linuxerr.ELOOP, err) && flags&linux.O_NOFOLLOW == 0
}
