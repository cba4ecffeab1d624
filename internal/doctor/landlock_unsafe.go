package doctor

import (
	"errors"
	"io"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockABI asks the kernel for the version of Landlock that it has.
func landlockABI() (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, step("ask for Landlock's version", errno)
	}
	return int(n), nil
}

// probeLandlock opens a file, gives up that right, and tries once more.
func probeLandlock(io.Reader, []string) error {
	const file = "/proc/self/status"
	if f, err := os.Open(file); err != nil {
		return step("read a file before there is a rule", err)
	} else {
		f.Close()
	}
	attr := uint64(unix.LANDLOCK_ACCESS_FS_READ_FILE)
	// The first version knew of the first field alone.
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	runtime.KeepAlive(&attr)
	if errno != 0 {
		return step("make a Landlock domain", errno)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step("set no_new_privs", err)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return step("enter a Landlock domain", errno)
	}
	f, err := os.Open(file)
	if err == nil {
		f.Close()
	}
	if !errors.Is(err, unix.EACCES) {
		return step("have a file refused by Landlock", errors.Join(err, errNotRefused))
	}
	return nil
}
