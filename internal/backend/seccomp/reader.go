package seccomp

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// readerRefuses are ordinary calls that a program has no use for which reads files, writes
// one, and tells what it found. The rights of files, their owners, attributes and times are
// among them: what keeps the reader from opening files says nothing of these.
var readerRefuses = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG,
	unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL, unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMDT, unix.SYS_SHMCTL,
	unix.SYS_PTRACE, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_PROCESS_MRELEASE,
	unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER,
	unix.SYS_TRUNCATE, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
	unix.SYS_MKNODAT, unix.SYS_SYMLINKAT, unix.SYS_MKDIRAT,
	unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH,
}

// ConfineReader sets no_new_privs and lets the calling thread, and the program that it
// executes next, make the calls that Confine allows, but for those of readerRefuses: it has
// no network and no other socket, starts no process, signals and inspects none but itself,
// and changes nothing of a file but what is in it, which it can't cut as it opens it: for
// that the right to read is enough, to kernels and to Landlock before its version 3. The caller stays on its thread.
func ConfineReader() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return install(assemble(readerTable(uint32(os.Getpid())), unknown, kill, unknown), 0)
}

// readersRefuse are calls by which a program would leave the group in which it ends with
// the one that started it.
var readersRefuse = []uint32{unix.SYS_SETSID, unix.SYS_SETPGID}

// ConfineReaders is ConfineReader for a program that starts others, which are as confined:
// it makes processes, and none of them leaves its group, by which all of them are ended.
func ConfineReaders() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return install(assemble(readersTable(), unknown, kill, unknown), 0)
}

// readersTable is what ConfineReaders enforces.
func readersTable() map[uint32]verdict {
	t := readerTable(0)
	t[unix.SYS_CLONE] = table(Options{})[unix.SYS_CLONE] // but for namespaces
	for _, nr := range readersRefuse {
		t[nr] = verdict{action: refuse}
	}
	return t
}

// readerTable is what ConfineReader enforces for a process of that ID.
func readerTable(pid uint32) map[uint32]verdict {
	t := table(Options{})
	for _, nr := range readerRefuses {
		t[nr] = verdict{action: refuse}
	}
	for _, nr := range readerRefusesHere {
		t[nr] = verdict{action: refuse}
	}
	for _, c := range modeCalls {
		if c.flags >= 0 { // an open; openat2, whose flags a filter can't read, there is not
			v := t[c.nr]
			cut := check{[]condition{hasAny(c.flags, unix.O_TRUNC)}, refuse}
			t[c.nr] = verdict{checks: append([]check{cut}, v.checks...), action: v.action}
		}
	}
	const thread = unix.CLONE_THREAD | unix.CLONE_VM
	t[unix.SYS_CLONE] = verdict{checks: []check{{[]condition{masked(0, thread, thread)}, retAllow}}, action: refuse}
	t[unix.SYS_TGKILL] = verdict{checks: []check{{[]condition{is(0, pid)}, retAllow}}, action: refuse}
	t[unix.SYS_PRLIMIT64] = verdict{checks: []check{{[]condition{is(0, 0)}, retAllow}, {[]condition{is(0, pid)}, retAllow}}, action: refuse}
	return t
}
