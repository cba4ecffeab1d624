package jail

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// refuseEscapes installs, in the calling thread and what it starts, a filter
// that stands beside the one against set-id bits. io_uring could set them
// unseen, so it is said not to exist. Where marks are used, no command may
// leave its mark: it makes no UTS namespace, and clone3, whose arguments a
// filter can't see, is said not to exist, upon which C libraries use clone.
func refuseEscapes(marked bool) error {
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number
	}
	if !weak.On(weak.IOUringAllowed) {
		prog = append(prog, refuse(unix.SYS_IO_URING_SETUP, unix.ENOSYS)...)
	}
	if marked {
		prog = append(prog, refuse(unix.SYS_CLONE3, unix.ENOSYS)...)
		prog = append(prog, refuseFlag(unix.SYS_CLONE, unix.CLONE_NEWUTS)...)
		prog = append(prog, refuseFlag(unix.SYS_UNSHARE, unix.CLONE_NEWUTS)...)
	}
	prog = append(prog, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})

	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("install filter: %w", errno)
	}
	return nil
}

func refuse(nr uint32, errno unix.Errno) []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
	}
}

// refuseFlag refuses a call whose first argument has flag set. Having loaded
// that argument, it decides about every call of that number.
func refuseFlag(nr, flag uint32) []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: flag, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
}
