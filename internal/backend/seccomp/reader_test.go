package seccomp_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
)

// TestReader: what reads files and writes one does nothing else.
func TestReader(t *testing.T) {
	const allow, refuse = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	const unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	table := seccomp.ReaderForTest(7)
	for _, tt := range []struct {
		name string
		nr   uint32
		args [6]uint64
		want uint32
	}{
		{"open", unix.SYS_OPENAT, [6]uint64{}, allow},
		{"make", unix.SYS_OPENAT, [6]uint64{2: unix.O_CREAT, 3: 0o600}, allow},
		{"make-set-id", unix.SYS_OPENAT, [6]uint64{2: unix.O_CREAT, 3: 0o4600}, refuse},
		{"open-and-cut", unix.SYS_OPENAT, [6]uint64{2: unix.O_RDONLY | unix.O_TRUNC}, refuse},
		{"make-and-cut", unix.SYS_OPENAT, [6]uint64{2: unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC, 3: 0o600}, refuse},
		{"open-unseen", unix.SYS_OPENAT2, [6]uint64{}, unknown},
		{"become-git", unix.SYS_EXECVE, [6]uint64{}, allow},
		{"library", unix.SYS_MMAP, [6]uint64{2: unix.PROT_EXEC}, allow},
		{"thread", unix.SYS_CLONE, [6]uint64{unix.CLONE_THREAD | unix.CLONE_VM}, allow},
		{"thread-unseen", unix.SYS_CLONE3, [6]uint64{}, unknown},
		{"process", unix.SYS_CLONE, [6]uint64{17}, refuse},
		{"socket", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM}, refuse},
		{"socket-unix", unix.SYS_SOCKET, [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, refuse},
		{"connect", unix.SYS_CONNECT, [6]uint64{}, refuse},
		{"signal", unix.SYS_KILL, [6]uint64{1}, refuse},
		{"signal-own", unix.SYS_TGKILL, [6]uint64{7, 8, 6}, allow},
		{"signal-other", unix.SYS_TGKILL, [6]uint64{8, 8, 6}, refuse},
		{"trace", unix.SYS_PTRACE, [6]uint64{}, refuse},
		{"own-limit", unix.SYS_PRLIMIT64, [6]uint64{}, allow},
		{"limit-of-other", unix.SYS_PRLIMIT64, [6]uint64{1}, refuse},
		{"mode", unix.SYS_FCHMODAT, [6]uint64{2: 0o600}, refuse},
		{"owner", unix.SYS_FCHOWNAT, [6]uint64{}, refuse},
		{"time", unix.SYS_UTIMENSAT, [6]uint64{}, refuse},
		{"cut", unix.SYS_TRUNCATE, [6]uint64{}, refuse},
		{"attribute", unix.SYS_SETXATTR, [6]uint64{}, refuse},
		{"link-to", unix.SYS_SYMLINKAT, [6]uint64{}, refuse},
		{"mount", unix.SYS_MOUNT, [6]uint64{}, refuse},
		{"namespace", unix.SYS_UNSHARE, [6]uint64{unix.CLONE_NEWUSER}, refuse},
		{"handle", unix.SYS_OPEN_BY_HANDLE_AT, [6]uint64{}, refuse},
		{"keys", unix.SYS_KEYCTL, [6]uint64{}, refuse},
	} {
		if got := seccomp.EvalForTest(table, tt.nr, tt.args); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}

// TestReaders: what starts its own helpers has that right besides, and none of them
// leaves the group.
func TestReaders(t *testing.T) {
	const allow, refuse = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	table := seccomp.ReadersForTest()
	for _, tt := range []struct {
		name string
		nr   uint32
		args [6]uint64
		want uint32
	}{
		{"process", unix.SYS_CLONE, [6]uint64{17}, allow},
		{"execute", unix.SYS_EXECVE, [6]uint64{}, allow},
		{"wait", unix.SYS_WAIT4, [6]uint64{}, allow},
		{"namespace", unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWUSER}, refuse},
		{"leave-the-session", unix.SYS_SETSID, [6]uint64{}, refuse},
		{"leave-the-group", unix.SYS_SETPGID, [6]uint64{}, refuse},
		{"socket", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM}, refuse},
		{"signal", unix.SYS_KILL, [6]uint64{1}, refuse},
		{"trace", unix.SYS_PTRACE, [6]uint64{}, refuse},
		{"open-and-cut", unix.SYS_OPENAT, [6]uint64{2: unix.O_RDONLY | unix.O_TRUNC}, refuse},
	} {
		if got := seccomp.EvalForTest(table, tt.nr, tt.args); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}
