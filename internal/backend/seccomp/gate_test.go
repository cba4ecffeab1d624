package seccomp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
)

// gateChild has the test's binary be a program of its own: the filter of a
// gate is for all threads of a process, and never comes off.
const gateChild = "CARBOY_TEST_GATE"

func TestMain(m *testing.M) {
	switch os.Getenv(gateChild) {
	case "":
		os.Exit(m.Run())
	case "confined":
		before := startThread()
		if err := errors.Join(listen(), seccomp.ConfineGate()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(report(before))
	default:
		before := startThread()
		if err := listen(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(report(before))
	}
}

// startThread has another thread wait, from before the filter, and returns
// what has it make a call.
func startThread() func(func() error) error {
	calls, results := make(chan func() error), make(chan error)
	go func() {
		runtime.LockOSThread()
		for call := range calls {
			results <- call()
		}
	}()
	return func(call func() error) error {
		calls <- call
		return <-results
	}
}

// said is what became of one attempt.
type said struct {
	Errno unix.Errno
	Text  string // of an error; "" where there was none
}

func say(err error) said {
	if err == nil {
		return said{}
	}
	var e unix.Errno
	errors.As(err, &e)
	return said{e, err.Error()}
}

// report makes every attempt and writes what became of each.
func report(before func(func() error) error) int {
	out := make(map[string]said)
	for _, a := range gateAttempts() {
		out[a.name] = say(a.call())
	}
	out["thread-from-before"] = say(before(func() error { return opened("/dev/null") }))
	if os.Getenv(gateChild) == "confined" {
		// The kernel's own probes go by every filter, and end with a signal.
		known := append(seccomp.GateCallsForTest(), unix.SYS_VHANGUP, 335, 336)
		for nr := range uint32(600) {
			if !slices.Contains(known, nr) {
				if e := senseless(nr); e != unix.EPERM {
					out["number-"+strconv.Itoa(int(nr))] = say(e)
				}
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return 1
	}
	return 0
}

// ofItsOwn is for calls that a kernel may lack, or refuse in its own words.
const ofItsOwn = unix.Errno(0xffff)

// gateAttempt is made in a confined process and in a free one.
type gateAttempt struct {
	name string
	want unix.Errno // where it is confined; 0: it succeeds
	free unix.Errno
	call func() error
}

func opened(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return closed(fd, err)
}

func closed(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func sock(family, kind, protocol int) func() error {
	return func() error { return closed(unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)) }
}

func raw(nr uintptr, args ...uintptr) func() error {
	return func() error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
			return e
		}
		return nil
	}
}

func mapped(protection int) func() error {
	return func() error {
		m, err := unix.Mmap(-1, 0, 4096, protection, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err == nil {
			err = unix.Munmap(m)
		}
		return err
	}
}

func gateAttempts() []gateAttempt {
	const none = ^uintptr(0)
	pid := os.Getpid()
	return slices.Concat(gateFiles(pid), []gateAttempt{
		{"run-a-program", unix.EPERM, 0, func() error { return exec.Command("/bin/true").Run() }},
		{"execve", unix.EPERM, unix.ENOENT, func() error { return unix.Exec("/nonexistent", []string{"x"}, nil) }},
		{"execveat", unix.EPERM, unix.EFAULT, raw(unix.SYS_EXECVEAT, none, 0, 0, 0, unix.AT_EMPTY_PATH)},
		{"clone-no-thread", unix.EPERM, unix.EINVAL, raw(unix.SYS_CLONE, unix.CLONE_SIGHAND)},
		{"clone-namespace", unix.EPERM, unix.EINVAL, raw(unix.SYS_CLONE, unix.CLONE_THREAD|unix.CLONE_NEWUSER)},
		{"clone3", unix.ENOSYS, unix.EINVAL, raw(unix.SYS_CLONE3, 0, 0)},
		{"unshare", unix.EPERM, 0, func() error { return unix.Unshare(unix.CLONE_FS) }},
		{"setns", unix.EPERM, unix.EBADF, func() error { return unix.Setns(-1, 0) }},
		{"thread", 0, 0, threads},

		{"signal-another", unix.EPERM, 0, func() error { return unix.Kill(os.Getppid(), 0) }},
		{"signal-itself-by-kill", unix.EPERM, 0, func() error { return unix.Kill(pid, 0) }},
		{"tgkill-another", unix.EPERM, 0, func() error { return unix.Tgkill(os.Getppid(), os.Getppid(), 0) }},
		{"tgkill-itself", 0, 0, func() error { return unix.Tgkill(pid, pid, 0) }},
		{"pidfd", unix.EPERM, 0, func() error { return closed(unix.PidfdOpen(pid, 0)) }},
		{"ptrace", unix.EPERM, unix.ESRCH, raw(unix.SYS_PTRACE, unix.PTRACE_ATTACH, none>>33)},
		{"read-memory", unix.EPERM, 0, raw(unix.SYS_PROCESS_VM_READV, uintptr(pid))},
		{"write-memory", unix.EPERM, 0, raw(unix.SYS_PROCESS_VM_WRITEV, uintptr(pid))},

		{"memory", 0, 0, mapped(unix.PROT_READ | unix.PROT_WRITE)},
		{"memory-executable", unix.EPERM, 0, mapped(unix.PROT_READ | unix.PROT_EXEC)},
		{"memory-made-executable", unix.EPERM, 0, madeExecutable},
		{"memory-file", unix.EPERM, 0, func() error { return closed(unix.MemfdCreate("x", 0)) }},

		{"tcp", 0, 0, sock(unix.AF_INET, unix.SOCK_STREAM, 0)},
		{"tcp6", 0, 0, sock(unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP)},
		{"udp", 0, 0, sock(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP)},
		{"unix", unix.EAFNOSUPPORT, 0, sock(unix.AF_UNIX, unix.SOCK_STREAM, 0)},
		{"unix-pair", unix.EPERM, 0, func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }},
		{"netlink", unix.EAFNOSUPPORT, 0, sock(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)},
		{"packet", unix.EAFNOSUPPORT, 0, sock(unix.AF_PACKET, unix.SOCK_RAW, 0)},
		{"raw", unix.EAFNOSUPPORT, 0, sock(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
		{"over-the-net", 0, 0, overTheNet},
		{"bind", unix.EPERM, 0, onSocket(func(fd int) error { return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}) })},
		{"listen", unix.EPERM, 0, onSocket(func(fd int) error { return unix.Listen(fd, 1) })},

		{"uid", unix.EPERM, 0, func() error { return unix.Setresuid(-1, -1, -1) }},
		{"gid", unix.EPERM, 0, func() error { return unix.Setresgid(-1, -1, -1) }},
		{"capabilities", unix.EPERM, unix.EFAULT, raw(unix.SYS_CAPSET, 0, 0)},
		{"prctl", unix.EPERM, 0, func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }},
		{"limits", unix.EPERM, 0, raw(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE)},
		{"seccomp", unix.EPERM, unix.EINVAL, raw(unix.SYS_SECCOMP, none)},
		{"io-uring", unix.EPERM, ofItsOwn, raw(unix.SYS_IO_URING_SETUP, 1, 0)},
		{"bpf", unix.EPERM, ofItsOwn, raw(unix.SYS_BPF, none)},
		{"keyring", unix.EPERM, ofItsOwn, raw(unix.SYS_KEYCTL, none)},
		{"ioctl", unix.EPERM, unix.EBADF, raw(unix.SYS_IOCTL, none, unix.TIOCSTI)},
		{"userfault", unix.EPERM, ofItsOwn, raw(unix.SYS_USERFAULTFD, none)},
	})
}

// gateFiles are attempts to get at files.
func gateFiles(pid int) []gateAttempt {
	tmp := filepath.Join(os.TempDir(), "carboy-gate-"+strconv.Itoa(pid))
	here := unix.AT_FDCWD
	return []gateAttempt{
		{"open", unix.EPERM, 0, func() error { return opened("/dev/null") }},
		{"open-proc", unix.EPERM, 0, func() error { return opened("/proc/self/mem") }},
		{"open2", unix.EPERM, 0, func() error { return closed(unix.Openat2(here, "/dev/null", &unix.OpenHow{})) }},
		{"open-path", unix.EPERM, 0, func() error { return closed(unix.Open("/", unix.O_PATH, 0)) }},
		{"stat", unix.EPERM, 0, func() error { var st unix.Stat_t; return unix.Stat("/", &st) }},
		{"statx", unix.EPERM, 0, func() error { return unix.Statx(here, "/", 0, 0, new(unix.Statx_t)) }},
		{"access", unix.EPERM, 0, func() error { return unix.Access("/", unix.R_OK) }},
		{"mkdir", unix.EPERM, 0, func() error { return unix.Mkdir(tmp, 0o700) }},
		{"rename", unix.EPERM, 0, func() error { return unix.Rename(tmp, tmp+"2") }},
		{"rmdir", unix.EPERM, 0, func() error { return unix.Rmdir(tmp + "2") }},
		{"link", unix.EPERM, unix.ENOENT, func() error { return unix.Link(tmp, tmp+"2") }},
		{"symlink", unix.EPERM, unix.ENOENT, func() error { return unix.Symlink("x", tmp+"/y") }},
		{"chdir", unix.EPERM, 0, func() error { return unix.Chdir(".") }},
		{"chroot", unix.EPERM, unix.ENOENT, func() error { return unix.Chroot(tmp) }},
		{"mount", unix.EPERM, unix.ENOENT, func() error { return unix.Mount("", tmp, "tmpfs", 0, "") }},
		{"chmod", unix.EPERM, unix.ENOENT, func() error { return unix.Chmod(tmp, 0) }},
		{"directory", unix.EPERM, unix.EBADF, func() error { _, err := unix.Getdents(-1, make([]byte, 64)); return err }},
		{"by-handle", unix.EPERM, unix.EFAULT, raw(unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(0))},
		{"write-what-is-open", 0, 0, func() error { _, err := os.Stderr.Write(nil); return err }},
	}
}

func madeExecutable() error {
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	return errors.Join(unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC), unix.Munmap(m))
}

// threads has the runtime start some.
func threads() error {
	done := make(chan error)
	for range 4 {
		go func() {
			runtime.LockOSThread() // which ends with it
			done <- raw(unix.SYS_GETTID)()
		}()
	}
	var errs []error
	for range 4 {
		errs = append(errs, <-done)
	}
	return errors.Join(errs...)
}

func onSocket(call func(fd int) error) func() error {
	return func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(call(fd), unix.Close(fd))
		}
		return err
	}
}

// listener is from before the filter, as a gate's is.
var listener net.Listener

func listen() (err error) {
	listener, err = net.Listen("tcp", "127.0.0.1:0")
	return err
}

// overTheNet serves a connection, and sends a datagram.
func overTheNet() error {
	l := listener
	defer l.Close()
	echoed := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			_, err = io.Copy(c, c)
		}
		echoed <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	want := bytes.Repeat([]byte("x"), 1<<20)
	go func() {
		_, _ = c.Write(want)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%d bytes came back", len(got))
	}
	if err := errors.Join(err, <-echoed); err != nil {
		return err
	}
	u, err := net.Dial("udp6", "[::1]:9")
	if err != nil {
		return err
	}
	defer u.Close()
	_, err = u.Write([]byte("x"))
	return err
}

// gateRun makes the attempts in a process of their own.
func gateRun(t *testing.T, how string) map[string]said {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), gateChild+"="+how)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", how, err, out, stderr.String())
	}
	got := make(map[string]said)
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return got
}

// A gate can do its work, and nothing else; without the filter, all of it
// would have gone.
func TestConfineGate(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, whom the kernel itself refuses little")
	}
	confined, free := gateRun(t, "confined"), gateRun(t, "free")
	for _, a := range append(gateAttempts(), gateAttempt{name: "thread-from-before", want: unix.EPERM}) {
		t.Run(a.name, func(t *testing.T) {
			c, f := confined[a.name], free[a.name]
			if c.Errno != a.want || (c.Text == "") != (a.want == 0) {
				t.Errorf("confined: %d %s; want %v", c.Errno, c.Text, a.want)
			}
			if a.free == ofItsOwn {
				a.free = max(f.Errno, 1)
			}
			if f.Errno != a.free || (f.Text == "") != (a.free == 0) {
				t.Errorf("free: %d %s; want %v", f.Errno, f.Text, a.free)
			}
			delete(confined, a.name)
		})
	}
	delete(confined, "number-"+strconv.Itoa(unix.SYS_CLONE3))
	for name, got := range confined {
		t.Errorf("%s: %s, want it refused", name, got.Text)
	}
}

// The program says of every number what the table says.
func TestGateProgramIsTheTable(t *testing.T) {
	const pid = 4711
	program, table := seccomp.GateForTest(pid)
	for nr := range uint32(1024) {
		for _, a := range append(samples(), [6]uint64{pid, 1, 2}, [6]uint64{2, 1, 6}, [6]uint64{10, 0x80802, 17}, [6]uint64{0x50f00}) {
			got, _, err := machine(program, seccomp.AuditArchForTest, nr, a)
			if want := seccomp.EvalGateForTest(table, nr, a); got != want || err != nil {
				t.Fatalf("number %d, arguments %x: %#x, %v; want %#x", nr, a, got, err, want)
			}
		}
	}
	for name, arch := range map[string]uint32{"i386": unix.AUDIT_ARCH_I386, "arm": unix.AUDIT_ARCH_ARM} {
		if got, _, err := machine(program, arch, unix.SYS_READ, [6]uint64{}); got != unix.SECCOMP_RET_KILL_PROCESS || err != nil {
			t.Errorf("%s: %#x, %v; want the process killed", name, got, err)
		}
	}
	if got, _, err := machine(program, seccomp.AuditArchForTest, 0x40000000, [6]uint64{}); got == unix.SECCOMP_RET_ALLOW || err != nil {
		t.Errorf("x32: %#x, %v; want it refused", got, err)
	}
}
