package seccomp_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
)

// TestFiles: what works on files works on files, and does nothing else.
func TestFiles(t *testing.T) {
	const allow, refuse = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	table := seccomp.FilesForTest(7)
	for _, tt := range []struct {
		name string
		nr   uint32
		args [6]uint64
		want uint32
	}{
		{"open", unix.SYS_OPENAT, [6]uint64{}, allow},
		{"open-below", unix.SYS_OPENAT2, [6]uint64{}, allow},
		{"make", unix.SYS_OPENAT, [6]uint64{2: unix.O_CREAT, 3: 0o600}, allow},
		{"make-set-id", unix.SYS_OPENAT, [6]uint64{2: unix.O_CREAT, 3: 0o4600}, refuse},
		{"change-mode", unix.SYS_FCHMOD, [6]uint64{1: 0o777}, allow},
		{"change-mode-set-id", unix.SYS_FCHMOD, [6]uint64{1: 0o2777}, refuse},
		{"make-directory", unix.SYS_MKDIRAT, [6]uint64{2: 0o700}, allow},
		{"remove", unix.SYS_UNLINKAT, [6]uint64{}, allow},
		{"rename", unix.SYS_RENAMEAT2, [6]uint64{}, allow},
		{"owner", unix.SYS_FCHOWN, [6]uint64{}, allow},
		{"node", unix.SYS_MKNODAT, [6]uint64{2: unix.S_IFCHR | 0o600}, refuse},
		{"link-to", unix.SYS_SYMLINKAT, [6]uint64{}, refuse},
		{"execute", unix.SYS_EXECVE, [6]uint64{}, refuse},
		{"socket", unix.SYS_SOCKET, [6]uint64{unix.AF_INET, unix.SOCK_STREAM}, refuse},
		{"connect", unix.SYS_CONNECT, [6]uint64{}, refuse},
		{"accept", unix.SYS_ACCEPT4, [6]uint64{}, refuse},
		{"mount", unix.SYS_MOUNT, [6]uint64{}, refuse},
		{"leave", unix.SYS_CHROOT, [6]uint64{}, refuse},
		{"namespace", unix.SYS_SETNS, [6]uint64{}, refuse},
		{"process", unix.SYS_CLONE, [6]uint64{17}, refuse},
		{"thread", unix.SYS_CLONE, [6]uint64{unix.CLONE_THREAD | unix.CLONE_VM}, allow},
		{"signal", unix.SYS_KILL, [6]uint64{1}, refuse},
		{"trace", unix.SYS_PTRACE, [6]uint64{}, refuse},
		{"handle", unix.SYS_OPEN_BY_HANDLE_AT, [6]uint64{}, refuse},
		{"identity", unix.SYS_SETRESUID, [6]uint64{}, refuse},
		{"capabilities", unix.SYS_CAPSET, [6]uint64{}, refuse},
		{"executable-memory", unix.SYS_MMAP, [6]uint64{2: unix.PROT_EXEC}, refuse},
	} {
		if got := seccomp.EvalGateForTest(table, tt.nr, tt.args); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}
