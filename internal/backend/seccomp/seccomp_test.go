package seccomp_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
)

// filtered runs f on a thread of its own that carries the filter and dies.
func filtered(t testing.TB, f func()) {
	t.Helper()
	on(t, func() error { return seccomp.Refuse(seccomp.Options{}) }, f)
}

// on runs f after install on a thread of its own.
func on(t testing.TB, install func() error, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = install()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestRefuse(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(file, unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	path := func(name string) string { return filepath.Join(dir, name) }
	made := func(fd int, err error) error {
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	tests := []struct {
		name string
		want error
		call func() error
	}{
		{"chmod-setuid", unix.EPERM, func() error { return unix.Chmod(file, 0o4755) }},
		{"chmod-setgid", unix.EPERM, func() error { return unix.Chmod(file, 0o2755) }},
		{"chmod-plain", nil, func() error { return unix.Chmod(file, 0o755) }},
		{"chmod-sticky", nil, func() error { return unix.Chmod(file, 0o1755) }},
		{"fchmod", unix.EPERM, func() error { return unix.Fchmod(fd, 0o6755) }},
		{"fchmodat", unix.EPERM, func() error { return unix.Fchmodat(unix.AT_FDCWD, file, 0o4755, 0) }},
		{"fchmodat2", unix.EPERM, func() error {
			return unix.Fchmodat(unix.AT_FDCWD, file, 0o4755, unix.AT_SYMLINK_NOFOLLOW)
		}},
		{"openat-create", unix.EPERM, func() error { return made(unix.Open(path("a"), unix.O_CREAT|unix.O_WRONLY, 0o4755)) }},
		{"openat-create-plain", nil, func() error { return made(unix.Open(path("b"), unix.O_CREAT|unix.O_WRONLY, 0o755)) }},
		{"openat-existing", nil, func() error { return made(unix.Open(file, unix.O_RDONLY, 0o4755)) }},
		{"openat-directory", nil, func() error { return made(unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0o4755)) }},
		{"tmpfile", unix.EPERM, func() error { return made(unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR, 0o4755)) }},
		{"mkdirat", unix.EPERM, func() error { return unix.Mkdirat(unix.AT_FDCWD, path("d"), 0o2755) }},
		{"mkdirat-plain", nil, func() error { return unix.Mkdirat(unix.AT_FDCWD, path("e"), 0o755) }},
		{"openat2", unix.ENOSYS, func() error {
			return made(unix.Openat2(unix.AT_FDCWD, path("o"), &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o4755}))
		}},
		{"mknodat", unix.EPERM, func() error { return unix.Mknod(path("n"), unix.S_IFREG|0o4755, 0) }},
		{"whiteout", unix.EPERM, func() error { return unix.Mknod(path("w"), unix.S_IFCHR|0o644, 0) }},
		{"fifo", nil, func() error { return unix.Mknod(path("p"), unix.S_IFIFO|0o644, 0) }},
		{"mount-namespace", nil, func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
		{"clone3", unix.EINVAL, func() error { return number(unix.SYS_CLONE3, 0) }},
		{"mount", unix.EPERM, func() error { return unix.Mount("none", dir, "tmpfs", 0, "") }},
		{"bind", unix.EPERM, func() error { return unix.Mount(dir, dir, "", unix.MS_BIND, "") }},
		{"umount", unix.EPERM, func() error { return unix.Unmount(dir, unix.MNT_DETACH) }},
		{"pivot-root", unix.EPERM, func() error { return unix.PivotRoot(dir, dir) }},
		{"move-mount", unix.EPERM, func() error { return unix.MoveMount(fd, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH) }},
		{"open-tree", unix.EPERM, func() error { return made(unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE)) }},
		{"fsopen", unix.EPERM, func() error { return made(unix.Fsopen("tmpfs", 0)) }},
		{"io-uring", unix.ENOSYS, func() error { return number(unix.SYS_IO_URING_SETUP, 1) }},
		{"trace-calls", unix.EPERM, func() error { return number(unix.SYS_PTRACE, unix.PTRACE_SYSCALL) }},
		{"emulate-calls", unix.EPERM, func() error { return number(unix.SYS_PTRACE, unix.PTRACE_SYSEMU) }},
		{"trace-by-filter", unix.EPERM, func() error {
			_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SETOPTIONS, 1, 0, 1<<7|1, 0, 0)
			return errno
		}},
		{"seize-for-a-filter", unix.EPERM, func() error {
			_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 1<<7, 0, 0)
			return errno
		}},
		{"trace-steps", unix.ESRCH, func() error { return number(unix.SYS_PTRACE, unix.PTRACE_SINGLESTEP) }},
		{"chroot", unix.ENOTDIR, func() error { return unix.Chroot(file) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got error
			filtered(t, func() { got = tt.call() })
			if !errors.Is(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// number makes a call by its number, which is to fail.
func number(nr, arg uintptr) error {
	_, _, errno := unix.RawSyscall6(nr, arg, 0, 0, 0, 0, 0)
	return errno
}

// With a group open what it refuses works: the test above tests that group.
// Marks can be taken, and not be shed.
func TestRefuseOptions(t *testing.T) {
	open := seccomp.Options{Open: []seccomp.Group{seccomp.Mounts}}
	var got error
	on(t, func() error { return seccomp.Refuse(open) }, func() {
		if got = unix.Unshare(unix.CLONE_NEWNS); got == nil {
			got = unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
	})
	if got != nil {
		t.Error(got)
	}
	marked := seccomp.Options{Marks: true}
	on(t, func() error { return seccomp.Refuse(marked) }, func() {
		self, err := unix.Open("/proc/thread-self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			defer unix.Close(self)
			err = unix.Setns(self, unix.CLONE_NEWUTS)
		}
		got = err
		for name, err := range map[string]error{
			"unshare": unix.Unshare(unix.CLONE_NEWUTS),
			"clone":   number(unix.SYS_CLONE, unix.CLONE_NEWUTS|uintptr(unix.SIGCHLD)),
		} {
			if !errors.Is(err, unix.EPERM) {
				t.Errorf("%s of another mark: %v", name, err)
			}
		}
		if err := number(unix.SYS_CLONE3, 0); !errors.Is(err, unix.ENOSYS) {
			t.Errorf("clone3 where there are marks: %v", err)
		}
	})
	if got != nil {
		t.Error("a mark:", got)
	}
}

// Without the filter the same call succeeds: the test above tests it.
func TestWithoutFilter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(file, 0o4755); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, file+"2", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o4755})
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	if st, err := os.Stat(file + "2"); err != nil || st.Mode()&os.ModeSetuid == 0 {
		t.Errorf("openat2 made %v, %v; want a set-id file", st.Mode(), err)
	}
}
