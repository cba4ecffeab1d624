package hostdir

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// as runs f with id's rights over files, on a thread of its own that ends
// with it. Where this process is not root, f runs with its rights: those of
// the only user whom it serves, or fewer than anybody else asked for.
func as(id *Identity, f func() error) error {
	if id == nil || os.Geteuid() != 0 || id.UID == 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		// Never unlocked: a thread with another identity is not used again.
		runtime.LockOSThread()
		err := become(id)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// become gives the calling thread id's rights over files. Setting a file
// system uid other than 0 also takes the capabilities that override modes.
func become(id *Identity) error {
	if err := setThreadGroups(id.Groups); err != nil {
		return fmt.Errorf("take the caller's groups: %w", err)
	}
	if err := setfs(unix.SYS_SETFSGID, id.GID); err != nil {
		return fmt.Errorf("take the caller's group: %w", err)
	}
	if err := setfs(unix.SYS_SETFSUID, id.UID); err != nil {
		return fmt.Errorf("take the caller's identity: %w", err)
	}
	return nil
}

// setfs sets a file system id. The call reports only what the id was before,
// so a second one, with an id that can't be, tells whether it worked.
func setfs(call uintptr, id uint32) error {
	_, _, _ = unix.RawSyscall(call, uintptr(id), 0, 0)
	now, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0)
	if uint32(now) != id {
		return unix.EPERM
	}
	return nil
}
