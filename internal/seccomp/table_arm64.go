package seccomp

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

var modeCalls = []modeCall{
	{unix.SYS_OPENAT, 3, 2},
	{unix.SYS_FCHMOD, 1, -1},
	{unix.SYS_FCHMODAT, 2, -1},
	{unix.SYS_FCHMODAT2, 2, -1},
	{unix.SYS_MKDIRAT, 2, -1},
	{unix.SYS_MKNODAT, 2, -1},
}
