package seccomp_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
)

// confined runs f on a thread that carries the list.
func confined(t testing.TB, o seccomp.Options, f func()) {
	t.Helper()
	on(t, func() error { return seccomp.Confine(o) }, f)
}

// senseless makes a call with arguments that no call accepts.
func senseless(nr uint32) unix.Errno {
	const all = ^uintptr(0)
	_, _, e := unix.RawSyscall6(uintptr(nr), all, all, all, all, all, all)
	return e
}

// What is refused whatever its arguments are, is refused by the filter: the
// kernel alone would have said something else.
func TestRefusedCalls(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, whom the kernel itself refuses little")
	}
	for _, g := range seccomp.GroupsForTest() {
		for _, nr := range seccomp.Refused(g) {
			if nr == unix.SYS_VHANGUP {
				continue // has no arguments that could be wrong
			}
			t.Run(fmt.Sprintf("%s-%d", g, nr), func(t *testing.T) {
				var got, free, opened unix.Errno
				confined(t, seccomp.Options{}, func() { got = senseless(nr) })
				on(t, func() error { return nil }, func() { free = senseless(nr) })
				confined(t, seccomp.Options{Open: []seccomp.Group{g}}, func() { opened = senseless(nr) })
				if got != unix.EPERM && got != unix.ENOSYS {
					t.Errorf("refused with %v", got)
				}
				if opened != free {
					t.Errorf("its group open: %v; without a filter %v", opened, free)
				}
				if got == free {
					t.Skipf("this kernel says %v by itself", free)
				}
			})
		}
	}
}

// Calls whose arguments matter.
func TestArguments(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	n := 0
	mknod := func(mode uint32) error {
		n++
		return unix.Mknod(filepath.Join(dir, fmt.Sprint(n)), mode|0o600, int(unix.Mkdev(1, 3)))
	}
	socket := func(family, kind, protocol int) error {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	call := func(nr uintptr, a ...uintptr) error {
		_, _, e := unix.RawSyscall(nr, a[0], a[1], 0)
		if e == 0 {
			return nil
		}
		return e
	}
	const none = ^uintptr(0)
	fcntl := func(command uintptr) func() error {
		return func() error { return call(unix.SYS_FCNTL, none, command) }
	}
	type row struct {
		name       string
		want, free error
		call       func() error
	}
	tests := []row{
		{"unix", nil, nil, func() error { return socket(unix.AF_UNIX, unix.SOCK_STREAM, 0) }},
		{"tcp", nil, nil, func() error { return socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP) }},
		{"udp6", nil, nil, func() error { return socket(unix.AF_INET6, unix.SOCK_DGRAM, 0) }},
		{"route", nil, nil, func() error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE) }},
		{"netfilter", unix.EPROTONOSUPPORT, nil, func() error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER) }},
		{"packet", unix.EAFNOSUPPORT, nil, func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) }},
		{"packet-by-its-old-name", unix.EPERM, nil, func() error { return socket(unix.AF_INET, unix.SOCK_PACKET, 0) }},
		{"raw", unix.EPROTONOSUPPORT, nil, func() error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW) }},
		{"unix-pair", nil, nil, func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }},
		{"type-into-a-terminal", unix.EPERM, unix.EBADF, func() error { return call(unix.SYS_IOCTL, none, unix.TIOCSTI) }},
		{"type-with-high-bits", unix.EPERM, unix.EBADF, func() error { return call(unix.SYS_IOCTL, none, 7<<32|unix.TIOCSTI) }},
		{"line-discipline", unix.EPERM, unix.EBADF, func() error { return call(unix.SYS_IOCTL, none, unix.TIOCSETD) }},
		{"console", unix.EPERM, unix.EBADF, func() error { return call(unix.SYS_IOCTL, none, unix.TIOCLINUX) }},
		{"size-of-a-terminal", unix.EBADF, unix.EBADF, func() error { return call(unix.SYS_IOCTL, none, unix.TIOCGWINSZ) }},
		{"lease", unix.EINVAL, unix.EBADF, fcntl(unix.F_SETLEASE)},
		{"lease-with-high-bits", unix.EINVAL, unix.EBADF, fcntl(7<<32 | unix.F_SETLEASE)},
		{"notify", unix.EINVAL, unix.EBADF, fcntl(unix.F_NOTIFY)},
		{"delegation", unix.EINVAL, unix.EBADF, fcntl(1040)},
		{"fcntl-of-later", unix.EINVAL, unix.EBADF, fcntl(1041)},
		{"lease-asked", unix.EBADF, unix.EBADF, fcntl(unix.F_GETLEASE)},
		{"duplicate", unix.EBADF, unix.EBADF, fcntl(unix.F_DUPFD_CLOEXEC)},
		{"flags", unix.EBADF, unix.EBADF, fcntl(unix.F_SETFL)},
		{"lock", unix.EBADF, unix.EBADF, fcntl(unix.F_SETLKW)},
		{"lock-of-a-file", unix.EBADF, unix.EBADF, fcntl(unix.F_OFD_SETLK)},
		{"owner", unix.EBADF, unix.EBADF, fcntl(unix.F_SETOWN_EX)},
		{"pipe", unix.EBADF, unix.EBADF, fcntl(unix.F_SETPIPE_SZ)},
		{"pipe-asked", unix.EBADF, unix.EBADF, fcntl(unix.F_GETPIPE_SZ)},
		{"seal", unix.EBADF, unix.EBADF, fcntl(unix.F_ADD_SEALS)},
		{"hint", unix.EBADF, unix.EBADF, fcntl(unix.F_SET_FILE_RW_HINT)},
		{"personality-asked", nil, nil, func() error { return call(unix.SYS_PERSONALITY, 0xffffffff, 0) }},
		{"personality-same-addresses", nil, nil, func() error { return call(unix.SYS_PERSONALITY, 0x40000, 0) }},
		{"personality-executable", unix.EPERM, nil, func() error { return call(unix.SYS_PERSONALITY, 0x400000, 0) }},
		{"node-char", unix.EPERM, nil, func() error { return mknod(unix.S_IFCHR) }},
		{"node-block", unix.EPERM, nil, func() error { return mknod(unix.S_IFBLK) }},
		{"node-fifo", nil, nil, func() error { return mknod(unix.S_IFIFO) }},
		{"node-file", nil, nil, func() error { return mknod(unix.S_IFREG) }},
		{"thread", unix.EINVAL, unix.EINVAL, func() error { return call(unix.SYS_CLONE, unix.CLONE_THREAD, 0) }},
		{"number-of-no-call", unix.ENOSYS, unix.ENOSYS, func() error { return call(1000, 0, 0) }},
	}
	// A thread of no shared memory is EINVAL whatever else it asks for: no
	// process comes of this.
	for name, flag := range map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP,
	} {
		tests = append(tests, row{"clone-" + name, unix.EPERM, unix.EINVAL, func() error { return call(unix.SYS_CLONE, unix.CLONE_THREAD|flag, 0) }})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got, free error
			confined(t, seccomp.Options{}, func() { got = tt.call() })
			on(t, func() error { return nil }, func() { free = tt.call() })
			if !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if !errors.Is(free, tt.free) {
				t.Errorf("without the filter: %v, want %v", free, tt.free)
			}
		})
	}
}

// What is open for marks, and for tests.
func TestOptions(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	uts := func() error {
		fd, err := unix.Open("/proc/thread-self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Setns(fd, unix.CLONE_NEWUTS)
	}
	tests := []struct {
		name string
		o    seccomp.Options
		call func() error
		want error
	}{
		{"no-marks", seccomp.Options{}, uts, unix.EPERM},
		{"marks", seccomp.Options{Marks: true}, uts, nil},
		{"marks-any", seccomp.Options{Marks: true}, func() error { return unix.Setns(-1, 0) }, unix.EPERM},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got error
			confined(t, tt.o, func() { got = tt.call() })
			if !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// What a call pays.
func BenchmarkCall(b *testing.B) {
	free := func() error { return nil }
	list := func() error { return seccomp.Confine(seccomp.Options{}) }
	getpid := func() { _, _, _ = unix.RawSyscall(unix.SYS_GETPID, 0, 0, 0) }
	ioctl := func() { _, _, _ = unix.RawSyscall(unix.SYS_IOCTL, ^uintptr(0), unix.TIOCGWINSZ, 0) }
	for _, bb := range []struct {
		name    string
		install func() error
		call    func()
	}{
		{"getpid-free", free, getpid},
		{"getpid-refuse", func() error { return seccomp.Refuse(seccomp.Options{}) }, getpid},
		{"getpid-list", list, getpid},
		{"ioctl-free", free, ioctl},
		{"ioctl-list", list, ioctl},
	} {
		b.Run(bb.name, func(b *testing.B) {
			on(b, bb.install, func() {
				for b.Loop() {
					bb.call()
				}
			})
		})
	}
}

func BenchmarkConfine(b *testing.B) {
	for b.Loop() {
		done := make(chan error)
		go func() {
			runtime.LockOSThread()
			_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
			done <- seccomp.Confine(seccomp.Options{})
		}()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}
