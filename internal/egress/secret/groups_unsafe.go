package secret

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setThreadGroups sets the groups of the calling thread alone; the functions
// of package syscall would set every thread's.
func setThreadGroups(groups []uint32) error {
	first := unsafe.Pointer(unsafe.SliceData(groups))
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	return nil
}
