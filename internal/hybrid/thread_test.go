package hybrid_test

import (
	"runtime"

	"golang.org/x/sys/unix"
)

func lockThread() { runtime.LockOSThread() }

// asUser gives this thread alone, which is locked, another user.
func asUser(uid int) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid))
	if errno != 0 {
		return errno
	}
	return nil
}
