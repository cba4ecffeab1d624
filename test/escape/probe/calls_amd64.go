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

// The processor has two other manners of calls, in which a list of numbers
// means something else. What refuses them may kill, which is a refusal too.

// x32Calls asks for the manner of 32-bit addresses.
func x32Calls(t *trial) {
	const x32 = 0x40000000
	verdicts, err := judge([]call{{"getpid", x32 | unix.SYS_GETPID, nil}})
	switch {
	case err != nil:
		t.note("%v", err)
	case verdicts[0].passed:
		t.find("a call of x32 gets through to the kernel")
	default:
		t.note("x32: %v", verdicts[0].err)
	}
}

// i386Calls makes a call by interrupt.
func i386Calls(t *trial) {
	const getpid = 20
	if pid := int32(interrupt(getpid, 0, 0, 0)); pid > 0 {
		t.find("a call of i386 is answered: %d", pid)
	} else {
		t.note("i386: %v", unix.Errno(-pid))
	}
}

// interrupt makes a system call by int 0x80.
func interrupt(nr, a, b, c uint32) uint32
