package files

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// rootCaps are what a thread that acts as root keeps: rights over files, as a
// container engine gives them, and nothing over the kernel.
const rootCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID

const workerUmask = 0o022

// goThread runs fn in a goroutine that has a thread to itself, which dies with
// it. It is never the process's first thread: that one can't end, and what it
// is in is what /proc says of the whole process.
func goThread(fn func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			fn()
			return
		}
		// While this goroutine holds the first thread, the next gets another.
		placed := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(placed)
			fn()
		}()
		<-placed
		runtime.UnlockOSThread()
	}()
}

// enterThread gives the calling thread a's rights, in the mount namespace that
// o names. The real and saved user id stay root's: a thread needs them to make no
// further change, and the kernel checks files against the effective one. The
// raw calls change this thread alone, where package syscall would change all.
func enterThread(o WorkerOptions, a account.Account) error {
	if a.UID == ^uint32(0) || a.GID == ^uint32(0) {
		return fmt.Errorf("user id %d and group id %d: one means no change", a.UID, a.GID)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare file system state: %w", err)
	}
	if o.MountNS != nil {
		if err := unix.Setns(int(o.MountNS.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter mount namespace: %w", err)
		}
	}
	if o.Confine != nil {
		if err := o.Confine(); err != nil {
			return err
		}
	}
	unix.Umask(workerUmask)
	return setRights(a)
}

func setRights(a account.Account) error {
	groups := append([]uint32{}, a.Groups...)
	var list unsafe.Pointer
	if len(groups) > 0 {
		list = unsafe.Pointer(&groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(list), 0); e != 0 {
		return fmt.Errorf("set groups: %w", e)
	}
	g := uintptr(a.GID)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, g, g, g); e != 0 {
		return fmt.Errorf("set group id %d: %w", a.GID, e)
	}
	if a.UID == 0 {
		return dropCaps()
	}
	const keep = ^uintptr(0)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(a.UID), keep); e != 0 {
		return fmt.Errorf("set user id %d: %w", a.UID, e)
	}
	return checkRights(a)
}

// dropCaps leaves the calling thread those of rootCaps that it has.
func dropCaps() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	caps := data[0].Permitted & rootCaps
	data = [2]unix.CapUserData{{Effective: caps, Permitted: caps}}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// checkRights makes sure that the kernel did as it said: nothing here may
// ever run as root by mistake.
func checkRights(a account.Account) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	if unix.Geteuid() != int(a.UID) || unix.Getegid() != int(a.GID) || data[0].Effective|data[1].Effective != 0 {
		return fmt.Errorf("user id %d did not take effect", a.UID)
	}
	return nil
}
