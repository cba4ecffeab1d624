package seccomp

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// modeCalls take a file's mode.
var modeCalls = []modeCall{
	{unix.SYS_OPENAT, 3, 2},
	{unix.SYS_OPEN, 2, 1},
	{unix.SYS_CREAT, 1, -1},
	{unix.SYS_CHMOD, 1, -1},
	{unix.SYS_FCHMOD, 1, -1},
	{unix.SYS_FCHMODAT, 2, -1},
	{unix.SYS_FCHMODAT2, 2, -1},
	{unix.SYS_MKDIR, 1, -1},
	{unix.SYS_MKDIRAT, 2, -1},
	{unix.SYS_MKNOD, 1, -1},
	{unix.SYS_MKNODAT, 2, -1},
}

// nodeCalls make nodes, with the type in that argument.
var nodeCalls = map[uint32]int{unix.SYS_MKNOD: 1, unix.SYS_MKNODAT: 2}

// ordinaryHere are those of the ordinary calls that other architectures lack.
var ordinaryHere = []uint32{
	unix.SYS_ACCESS, unix.SYS_ALARM, unix.SYS_ARCH_PRCTL, unix.SYS_CHOWN, unix.SYS_DUP2,
	unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD, unix.SYS_FORK, unix.SYS_FUTIMESAT,
	unix.SYS_GETDENTS, unix.SYS_GETPGRP, unix.SYS_INOTIFY_INIT, unix.SYS_LCHOWN, unix.SYS_LINK,
	unix.SYS_LSTAT, unix.SYS_PAUSE, unix.SYS_PIPE, unix.SYS_POLL, unix.SYS_READLINK, unix.SYS_RENAME,
	unix.SYS_RMDIR, unix.SYS_SELECT, unix.SYS_SIGNALFD, unix.SYS_STAT, unix.SYS_SYMLINK, unix.SYS_TIME,
	unix.SYS_UNLINK, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_VFORK,
}

var refusalsHere = []refusal{
	{Machine, refuse, []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_LOOKUP_DCOOKIE}},
	{Modules, refuse, []uint32{unix.SYS_CREATE_MODULE, unix.SYS_QUERY_MODULE, unix.SYS_GET_KERNEL_SYMS}},
	{Legacy, refuse, []uint32{
		unix.SYS_MODIFY_LDT, unix.SYS_SET_THREAD_AREA, unix.SYS_GET_THREAD_AREA, unix.SYS_USELIB,
		unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL,
	}},
}

// gateCallsHere are those of a gate's that other architectures lack.
var gateCallsHere = []uint32{unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT, unix.SYS_POLL}

// readerRefusesHere are those of readerRefuses that other architectures lack.
var readerRefusesHere = []uint32{
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES,
	unix.SYS_FUTIMESAT, unix.SYS_MKNOD, unix.SYS_SYMLINK, unix.SYS_MKDIR, unix.SYS_INOTIFY_INIT, unix.SYS_CREAT,
}
