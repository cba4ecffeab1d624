package seccomp

import (
	"fmt"
	"maps"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// fileCalls are what a gate does not need, and a program does that works on the
// files below a directory that it has open.
var fileCalls = []uint32{
	unix.SYS_COPY_FILE_RANGE, unix.SYS_FADVISE64, unix.SYS_FALLOCATE, unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
	unix.SYS_FDATASYNC, unix.SYS_FSTATFS, unix.SYS_FSYNC, unix.SYS_GETDENTS64, unix.SYS_LINKAT, unix.SYS_MKDIRAT,
	unix.SYS_NEWFSTATAT, unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_READLINKAT, unix.SYS_RENAMEAT2, unix.SYS_SENDFILE,
	unix.SYS_STATX, unix.SYS_UNLINKAT,
}

// ConfineFiles sets no_new_privs and lets every thread of this process make
// only the calls of a gate, but for all that make a socket or connect one, and
// those of fileCalls: it opens, makes, links and removes files and directories,
// and executes nothing, starts no process, signals and inspects none, mounts
// nothing, makes no device and gives no file a set-id bit. What is not among
// them gets EPERM, and a call in the manner of another architecture ends the
// process.
func ConfineFiles() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return install(assemble(fileTable(uint32(os.Getpid())), refuse, kill, refuse), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// fileTable is what ConfineFiles enforces for a process of that ID.
func fileTable(pid uint32) map[uint32]verdict {
	t := maps.Clone(gateTable(pid))
	for _, nr := range []uint32{unix.SYS_ACCEPT4, unix.SYS_CONNECT, unix.SYS_SOCKET} {
		delete(t, nr)
	}
	for _, nr := range fileCalls {
		t[nr] = verdict{action: retAllow}
	}
	for _, c := range modeCalls {
		if v, ok := t[c.nr]; ok {
			v.checks = append(v.checks, c.check())
			t[c.nr] = v
		}
	}
	return t
}
