package hostdir

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// getPeerGroups reads SO_PEERGROUPS into groups, which is not empty. It
// returns how many there are; where there is no room for them it fails with
// ERANGE.
func getPeerGroups(fd int, groups []uint32) (int, error) {
	size := uint32(len(groups) * 4)
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return int(size / 4), e
	}
	return int(size / 4), nil
}
