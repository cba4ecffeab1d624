package seccomp

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// modeCalls take a file's mode.
var modeCalls = []modeCall{
	{unix.SYS_OPENAT, 3, 2},
	{unix.SYS_FCHMOD, 1, -1},
	{unix.SYS_FCHMODAT, 2, -1},
	{unix.SYS_FCHMODAT2, 2, -1},
	{unix.SYS_MKDIRAT, 2, -1},
	{unix.SYS_MKNODAT, 2, -1},
}

// nodeCalls make nodes, with the type in that argument.
var nodeCalls = map[uint32]int{unix.SYS_MKNODAT: 2}

var ordinaryHere []uint32

var refusalsHere = []refusal{
	{Machine, refuse, []uint32{unix.SYS_LOOKUP_DCOOKIE}},
}

var gateCallsHere []uint32

var readerRefusesHere []uint32
