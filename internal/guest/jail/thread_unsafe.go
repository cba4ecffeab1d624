package jail

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// keepID leaves an id as it is.
const keepID = ^uintptr(0)

// setEffective changes the effective ids and the groups of the calling thread
// alone; package syscall's functions would change every thread's.
func setEffective(uid, gid uint32, groups []uint32) error {
	if uid == 0 { // first become able to change the rest
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keepID, 0, keepID); e != 0 {
			return e
		}
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keepID, uintptr(gid), keepID); e != 0 {
		return e
	}
	if uid != 0 {
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keepID, uintptr(uid), keepID); e != 0 {
			return e
		}
	}
	return nil
}

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
