package process

import (
	"golang.org/x/sys/unix"
)

// landlockABI asks the kernel for the version of Landlock that it has; 0:
// none.
func landlockABI() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}
