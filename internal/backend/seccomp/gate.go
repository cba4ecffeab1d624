package seccomp

import (
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// gateCalls are what a program needs that speaks over the network, reads and
// writes files that it has open already, and is written in Go.
var gateCalls = []uint32{
	unix.SYS_ACCEPT4, unix.SYS_BRK, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOSE,
	unix.SYS_CONNECT, unix.SYS_DUP3, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT,
	unix.SYS_EVENTFD2, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_FTRUNCATE,
	unix.SYS_FUTEX, unix.SYS_GETPEERNAME, unix.SYS_GETPID, unix.SYS_GETRANDOM, unix.SYS_GETSOCKNAME,
	unix.SYS_GETSOCKOPT, unix.SYS_GETTID, unix.SYS_GETTIMEOFDAY, unix.SYS_LSEEK, unix.SYS_MADVISE,
	unix.SYS_MINCORE, unix.SYS_MUNMAP, unix.SYS_NANOSLEEP, unix.SYS_PIPE2, unix.SYS_PPOLL, unix.SYS_PREAD64,
	unix.SYS_PWRITE64, unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMMSG, unix.SYS_RECVMSG,
	unix.SYS_RESTART_SYSCALL, unix.SYS_RSEQ, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_YIELD, unix.SYS_SENDMMSG, unix.SYS_SENDMSG, unix.SYS_SENDTO,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_SETITIMER, unix.SYS_SETSOCKOPT, unix.SYS_SHUTDOWN, unix.SYS_SIGALTSTACK,
	unix.SYS_SPLICE, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_DELETE, unix.SYS_TIMER_SETTIME, unix.SYS_UNAME,
	unix.SYS_WRITE, unix.SYS_WRITEV,
}

// ConfineGate sets no_new_privs and lets every thread of this process make only the
// calls of gateCalls: it opens no file, executes nothing, starts no process, signals and
// inspects none, makes no memory executable, and listens on nothing but what it has: in
// the host's network namespace it could be taken for a service of the host's. What is
// not among them gets EPERM, and a call in the manner of another architecture ends the
// process.
func ConfineGate() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return install(assemble(gateTable(uint32(os.Getpid())), refuse, kill, refuse), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// gateTable is what ConfineGate enforces for a process of that ID.
func gateTable(pid uint32) map[uint32]verdict {
	t := make(map[uint32]verdict, 128)
	for _, nr := range slices.Concat(gateCalls, gateCallsHere) {
		t[nr] = verdict{action: retAllow}
	}
	t[unix.SYS_CLONE] = verdict{
		checks: []check{{[]condition{masked(0, unix.CLONE_THREAD|unix.CLONE_VM, unix.CLONE_THREAD|unix.CLONE_VM)}, retAllow}},
		action: refuse,
	}
	t[unix.SYS_CLONE3] = verdict{action: unknown}
	for _, nr := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		t[nr] = verdict{checks: []check{{[]condition{hasAny(2, unix.PROT_EXEC)}, refuse}}, action: retAllow}
	}
	t[unix.SYS_TGKILL] = verdict{checks: []check{{[]condition{is(0, pid)}, retAllow}}, action: refuse}
	t[unix.SYS_SOCKET] = verdict{checks: gateSockets(), action: errno(unix.EAFNOSUPPORT)}
	return t
}

// gateSockets allow TCP and UDP.
func gateSockets() (checks []check) {
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		for _, kind := range []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
			for _, protocol := range []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				checks = append(checks, check{[]condition{is(0, family), masked(1, 0xf, kind), is(2, protocol)}, retAllow})
			}
		}
	}
	return checks
}
