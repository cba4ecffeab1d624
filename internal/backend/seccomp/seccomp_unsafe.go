// Package seccomp holds our system call filters.
//
// RefuseSetIDEverywhere is for the processes on the host that act for a guest:
// no file gets a set-user-id or set-group-id bit. It allows everything else:
// those processes have stricter filters of their own.
//
// Refuse is for commands on a kernel of the guest's own. They get no set-id
// bits either, and mount nothing, be they root of a user namespace of theirs:
// what a sandbox's file system is made of is the wall's affair.
//
// Confine is for commands that run on the host's kernel: a list of
// what is allowed. Calls that are known to be of no use to ordinary programs
// get EPERM, numbers that the list does not know ENOSYS, so that libraries
// fall back to older ones; a call in the manner of another architecture ends
// the process.
package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data (seccomp(2)).
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

const (
	setIDBits  = unix.S_ISUID | unix.S_ISGID
	retAllow   = unix.SECCOMP_RET_ALLOW
	x32Bit     = 0x40000000
	openCreate = unix.O_CREAT | (unix.O_TMPFILE &^ unix.O_DIRECTORY)
)

// modeCall is a system call that takes a file's mode. Where flags is not
// negative, the mode counts only if that argument says that a file is made.
type modeCall struct {
	nr    uint32
	mode  int
	flags int
}

// RefuseSetIDEverywhere sets no_new_privs and installs the filter in every
// thread of the process. It is for processes that run our own code alone, and
// leaves them openat2.
func RefuseSetIDEverywhere() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return install(program(), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// Confine installs the list of allowed calls in the calling thread, and with it
// in all that the thread starts, for good. The caller stays on its thread, which
// has no_new_privs or CAP_SYS_ADMIN.
func Confine(o Options) error { return install(o.program(), 0) }

func (o Options) program() []unix.SockFilter {
	foreign, x32 := uint32(kill), unknown
	if o.Foreign {
		foreign, x32 = retAllow, retAllow
	}
	return assemble(table(o), unknown, foreign, x32)
}

func install(prog []unix.SockFilter, flags uintptr) error {
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	r, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("install filter: %w", errno)
	}
	if r != 0 {
		return fmt.Errorf("install filter: thread %d does not follow", r)
	}
	return nil
}

// program has one jump per call on the number, so that other calls pass after
// a handful of comparisons.
func program() []unix.SockFilter {
	p := []unix.SockFilter{
		load(offArch),
		jump(unix.BPF_JEQ, auditArch, 1, 0),
		ret(refuse),
		load(offNr),
		jump(unix.BPF_JGE, x32Bit, 0, 1),
		ret(refuse),
	}
	for _, c := range modeCalls {
		p = append(p, c.program()...)
	}
	return append(p, ret(retAllow))
}

func (c modeCall) program() []unix.SockFilter {
	var body []unix.SockFilter
	if c.flags >= 0 {
		body = append(body,
			load(offArgs+8*uint32(c.flags)),
			jump(unix.BPF_JSET, openCreate, 1, 0),
			ret(retAllow))
	}
	body = append(body,
		load(offArgs+8*uint32(c.mode)),
		jump(unix.BPF_JSET, setIDBits, 0, 1),
		ret(refuse),
		ret(retAllow))
	return append([]unix.SockFilter{jump(unix.BPF_JEQ, c.nr, 0, uint8(len(body)))}, body...)
}

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k, Jt: yes, Jf: no}
}

func ret(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
}
