package jail

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// nextZombie returns the pid of a child that has ended, without reaping it;
// 0 if there is none.
func nextZombie() (int, error) {
	// Of siginfo_t, waitid sets si_signo, si_errno, si_code, then, aligned,
	// si_pid.
	var info [128 / 8]uint64
	_, _, e := unix.Syscall6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	if e == unix.ECHILD {
		return 0, nil
	}
	if e != 0 {
		return 0, e
	}
	const pidOffset = 16
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), pidOffset))), nil
}
