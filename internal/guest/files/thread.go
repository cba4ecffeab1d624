package files

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/rights"
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
// further change, and the kernel checks files against the effective one.
func enterThread(o WorkerOptions, a account.Account) error {
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
	if err := rights.Group(a.GID); err != nil {
		return err
	}
	if err := (rights.Identity{UID: a.UID, GID: a.GID, Groups: a.Groups}).Effective(); err != nil {
		return err
	}
	held, err := rights.Held()
	switch {
	case err != nil:
		return err
	case a.UID == 0:
		held.Permitted &= rootCaps
		return rights.Capabilities{Effective: held.Permitted, Permitted: held.Permitted}.Set()
	case held.Effective != 0: // the kernel takes them with the id
		return fmt.Errorf("user %d has capabilities %x", a.UID, held.Effective)
	}
	return nil
}
