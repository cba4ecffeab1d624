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
