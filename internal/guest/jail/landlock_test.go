package jail_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

func open(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o644)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func ioctl(name string, request uintptr) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, _, e := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), request, 0)
	if e == 0 {
		return nil
	}
	return e
}

func TestLandlock(t *testing.T) {
	hide := hidden(t)
	secret := filepath.Join(hide, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := playground(t)
	for _, sub := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("unix", "@jail-test-outside")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	connect := func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrUnix{Name: "@jail-test-outside"})
	}
	move := func() error {
		from := filepath.Join(dir, "a", "f")
		if err := open(from, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC); err != nil {
			return err
		}
		return unix.Rename(from, filepath.Join(dir, "b", "f"))
	}
	const nothing = 0x7f7f // a request that no device knows
	tests := []struct {
		name      string
		since     int
		in, outOf error
		call      func() error
	}{
		{"hidden-file", 2, unix.EACCES, nil, func() error { return open(secret, unix.O_RDONLY) }},
		{"hidden-by-another-way", 2, unix.EACCES, nil, func() error { return open("/proc/self/root"+secret, unix.O_RDONLY) }},
		{"new-in-hidden", 2, unix.EACCES, nil, func() error { return open(filepath.Join(hide, "new"), unix.O_CREAT|unix.O_WRONLY) }},
		{"beside-hidden", 2, nil, nil, func() error { return open("/run", unix.O_RDONLY|unix.O_DIRECTORY) }},
		{"read", 2, nil, nil, func() error { return open("/etc/passwd", unix.O_RDONLY) }},
		{"rename-into-another-directory", 2, nil, nil, move},
		{"mount", 2, unix.EPERM, unix.ENOENT, func() error { return unix.Mount("/no/such", "/mnt", "", unix.MS_BIND, "") }},
		{"new-in-root", 2, unix.EACCES, nil, func() error { defer os.Remove("/jail-test"); return open("/jail-test", unix.O_CREAT|unix.O_WRONLY) }},
		{"device-node", 2, unix.EACCES, nil, func() error {
			p := filepath.Join(dir, "null")
			defer os.Remove(p)
			return unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
		}},
		{"new-in-sys", 2, unix.EACCES, unix.EACCES, func() error { return open("/sys/kernel/jail-test", unix.O_CREAT|unix.O_WRONLY) }},
		{"write-sys", 2, unix.EACCES, nil, func() error { return open("/sys/kernel/profiling", unix.O_WRONLY) }},
		{"write-proc", 2, nil, nil, func() error { return open("/proc/thread-self/comm", unix.O_WRONLY|unix.O_TRUNC) }},
		{"device", 5, unix.EACCES, unix.ENOTTY, func() error { return ioctl("/dev/kmsg", nothing) }},
		{"quiet-device", 5, unix.ENOTTY, unix.ENOTTY, func() error { return ioctl("/dev/null", nothing) }},
		{"terminal", 5, unix.ENOTTY, unix.ENOTTY, func() error { return ioctl("/dev/ptmx", nothing) }},
		{"abstract-socket", 6, unix.EPERM, nil, connect},
		{"signal-outside", 6, unix.EPERM, nil, func() error { return unix.Kill(os.Getppid(), 0) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var in, outOf, err error
			abi := 0
			onThread(func() { outOf = tt.call() })
			onThread(func() {
				if abi, err = jail.LandlockForTest([]string{hide}, false); err == nil && abi >= tt.since {
					in = tt.call()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if abi < tt.since {
				t.Skipf("this kernel's Landlock has version %d, the right came with %d", abi, tt.since)
			}
			if !errors.Is(in, tt.in) {
				t.Errorf("in the domain: %v, want %v", in, tt.in)
			}
			if !errors.Is(outOf, tt.outOf) {
				if errors.Is(outOf, unix.ENOENT) || errors.Is(outOf, unix.EROFS) {
					t.Skip("this machine has it not:", outOf)
				}
				t.Errorf("outside: %v, want %v", outOf, tt.outOf)
			}
		})
	}
}
