package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// callProbes ask, call by call, whether the wall's list of system calls lets
// it through to the host's kernel. No call is made in earnest: see judge.
var callProbes = func() (list []probe) {
	for _, g := range callGroups {
		list = append(list, probe{name: g.name, native: true, run: func(t *trial) { askGroup(t, g.calls) }})
	}
	return list
}()

// call is a system call with arguments that matter to a list.
type call struct {
	name string
	nr   uintptr
	args []uintptr
}

type callGroup struct {
	name  string
	calls []call
}

const (
	newUser = unix.CLONE_NEWUSER
	sigChld = uintptr(unix.SIGCHLD)
)

var callGroups = []callGroup{
	{"calls-mount", []call{
		{"mount", unix.SYS_MOUNT, nil},
		{"umount2", unix.SYS_UMOUNT2, nil},
		{"pivot_root", unix.SYS_PIVOT_ROOT, nil},
		{"chroot", unix.SYS_CHROOT, nil},
		{"open_tree", unix.SYS_OPEN_TREE, nil},
		{"move_mount", unix.SYS_MOVE_MOUNT, nil},
		{"fsopen", unix.SYS_FSOPEN, nil},
		{"fsconfig", unix.SYS_FSCONFIG, nil},
		{"fsmount", unix.SYS_FSMOUNT, nil},
		{"fspick", unix.SYS_FSPICK, nil},
		{"mount_setattr", unix.SYS_MOUNT_SETATTR, nil},
	}},
	{"calls-namespace", []call{
		{"unshare of users", unix.SYS_UNSHARE, []uintptr{newUser}},
		{"unshare of mounts", unix.SYS_UNSHARE, []uintptr{unix.CLONE_NEWNS}},
		{"unshare of the network", unix.SYS_UNSHARE, []uintptr{unix.CLONE_NEWNET}},
		{"setns", unix.SYS_SETNS, nil},
		{"clone with a user namespace", unix.SYS_CLONE, []uintptr{newUser | sigChld}},
		{"clone with a mount namespace", unix.SYS_CLONE, []uintptr{unix.CLONE_NEWNS | sigChld}},
		{"clone with a pid namespace", unix.SYS_CLONE, []uintptr{unix.CLONE_NEWPID | sigChld}},
		{"clone3", unix.SYS_CLONE3, nil},
	}},
	{"calls-keyring", []call{
		{"add_key", unix.SYS_ADD_KEY, nil},
		{"request_key", unix.SYS_REQUEST_KEY, nil},
		{"keyctl", unix.SYS_KEYCTL, nil},
	}},
	{"calls-trace", []call{
		{"process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, nil},
		{"kcmp", unix.SYS_KCMP, nil},
		{"pidfd_getfd", unix.SYS_PIDFD_GETFD, nil},
	}},
	{"calls-userfault", []call{{"userfaultfd", unix.SYS_USERFAULTFD, nil}}},
	{"calls-bpf", []call{{"bpf", unix.SYS_BPF, nil}}},
	{"calls-perf", []call{{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, nil}}},
	{"calls-ring", []call{
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, nil},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, nil},
		{"io_uring_register", unix.SYS_IO_URING_REGISTER, nil},
	}},
	{"calls-async", []call{
		{"io_setup", unix.SYS_IO_SETUP, nil},
		{"io_submit", unix.SYS_IO_SUBMIT, nil},
		{"io_pgetevents", unix.SYS_IO_PGETEVENTS, nil},
	}},
	{"calls-module", []call{
		{"init_module", unix.SYS_INIT_MODULE, nil},
		{"finit_module", unix.SYS_FINIT_MODULE, nil},
		{"delete_module", unix.SYS_DELETE_MODULE, nil},
		{"kexec_load", unix.SYS_KEXEC_LOAD, nil},
		{"kexec_file_load", unix.SYS_KEXEC_FILE_LOAD, nil},
		{"reboot", unix.SYS_REBOOT, nil},
		{"swapon", unix.SYS_SWAPON, nil},
		{"swapoff", unix.SYS_SWAPOFF, nil},
	}},
	{"calls-clock", []call{
		{"settimeofday", unix.SYS_SETTIMEOFDAY, nil},
		{"clock_settime", unix.SYS_CLOCK_SETTIME, nil},
		{"sethostname", unix.SYS_SETHOSTNAME, nil},
		{"setdomainname", unix.SYS_SETDOMAINNAME, nil},
	}},
	{"calls-other", append([]call{
		{"acct", unix.SYS_ACCT, nil},
		{"quotactl", unix.SYS_QUOTACTL, nil},
		{"syslog", unix.SYS_SYSLOG, nil},
		{"fanotify_init", unix.SYS_FANOTIFY_INIT, nil},
		{"open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, nil},
		{"vhangup", unix.SYS_VHANGUP, nil},
		{"nfsservctl", unix.SYS_NFSSERVCTL, nil},
		{"lookup_dcookie", unix.SYS_LOOKUP_DCOOKIE, nil},
		{"a packet socket", unix.SYS_SOCKET, []uintptr{unix.AF_PACKET, unix.SOCK_RAW, 0x300}},
		{"a vsock socket", unix.SYS_SOCKET, []uintptr{unix.AF_VSOCK, unix.SOCK_STREAM, 0}},
		{"a number that is no call's", 900, nil},
	}, ownCalls...)},
}

// askGroup reports the calls that a list lets through.
func askGroup(t *trial, calls []call) {
	if noUserNamespaces() {
		// Its flags are out of a list's sight, and it may be left to the kernel,
		// which lets nobody make the namespaces: make-namespaces tries that.
		calls = slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return c.nr == unix.SYS_CLONE3 })
	}
	verdicts, err := judge(calls)
	if err != nil {
		// Without an oracle the answers themselves have to do, to calls whose
		// arguments no kernel takes: who refuses the call itself says so.
		t.note("%v: judged by the calls' errors", err)
		verdicts = judgeByErrors(calls)
	}
	var refused []string
	for i, v := range verdicts {
		if v.passed {
			t.find("%s gets through to the kernel", calls[i].name)
		} else {
			refused = append(refused, fmt.Sprintf("%s: %v", calls[i].name, v.err))
		}
	}
	t.note("%s", strings.Join(refused, ", "))
}

// noUserNamespaces reports whether the kernel lets nobody here make one.
func noUserNamespaces() bool {
	text, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	return err == nil && strings.TrimSpace(string(text)) == "0"
}

// verdict is what became of a call.
type verdict struct {
	passed bool
	err    error
}

// judgeByErrors makes the calls with addresses and numbers that are never
// valid. EPERM and ENOSYS are a list's answers, and also a kernel's to those
// without rights: this judge says "refused" more often than is true.
func judgeByErrors(calls []call) []verdict {
	out := make([]verdict, len(calls))
	for i, c := range calls {
		args := c.args
		if args == nil {
			bad := ^uintptr(0)
			args = []uintptr{bad, bad, bad, bad, bad, bad}
		}
		_, err := raw(c.nr, args...)
		out[i] = verdict{!errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS), err}
	}
	return out
}
