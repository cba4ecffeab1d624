package main

import "golang.org/x/sys/unix"

// ownCalls are this processor's own.
var ownCalls = []call{
	{"iopl", unix.SYS_IOPL, nil},
	{"ioperm", unix.SYS_IOPERM, nil},
	{"modify_ldt", unix.SYS_MODIFY_LDT, []uintptr{1}},
	{"uselib", unix.SYS_USELIB, nil},
	{"ustat", unix.SYS_USTAT, nil},
	{"_sysctl", unix.SYS__SYSCTL, nil},
	{"create_module", unix.SYS_CREATE_MODULE, nil},
}

// foreignCalls makes calls in the two other manners that the processor has:
// a list of numbers means something else there.
func foreignCalls(t *trial) {
	const (
		x32    = 0x40000000
		getpid = 20 // i386's
	)
	verdicts, err := judge([]call{{"getpid of x32", x32 | unix.SYS_GETPID, nil}})
	if err != nil {
		t.note("x32: %v", err)
	} else if verdicts[0].passed {
		t.find("a call of x32 gets through to the kernel")
	}
	// Last: what refuses it may kill, which is a refusal too.
	if pid := int32(interrupt(getpid, 0, 0, 0)); pid > 0 {
		t.find("a call of i386 is answered: %d", pid)
	} else {
		t.note("i386: %v", unix.Errno(-pid))
	}
}

// interrupt makes a system call by int 0x80.
func interrupt(nr, a, b, c uint32) uint32
