package workspace

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Identity is whose rights to files a piece of work has.
type Identity struct {
	UID, GID uint32
	Groups   []uint32
}

// actor runs calls with the rights of an Identity, on one thread.
type actor struct {
	as, self *Identity // nil: nothing to switch
}

// runAs runs work on a thread that can act as id. The thread ends with it: one
// with changed credentials never goes back to the runtime.
func runAs(id *Identity, work func(*actor) error) error {
	if id == nil {
		return work(&actor{})
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("read own groups: %w", err)
	}
	self := &Identity{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	for _, g := range groups {
		self.Groups = append(self.Groups, uint32(g))
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock
		done <- work(&actor{as: id, self: self})
	}()
	return <-done
}

// do runs call with the actor's rights to files.
func (a *actor) do(call func() error) error {
	if a.as == nil {
		return call()
	}
	if err := a.as.assume(); err != nil {
		return err
	}
	err := call()
	if back := a.self.assume(); back != nil {
		return back
	}
	return err
}

// assume switches this thread's file system ids and groups. With a uid other
// than 0 the kernel also takes from it the capabilities over files.
func (id *Identity) assume() error {
	var groups unsafe.Pointer
	if len(id.Groups) > 0 {
		groups = unsafe.Pointer(&id.Groups[0])
	}
	// The raw calls change this thread alone; those of package syscall would
	// change them all.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(id.Groups)), uintptr(groups), 0); errno != 0 {
		return fmt.Errorf("set groups: %w", errno)
	}
	for _, set := range []struct {
		call uintptr
		id   uint32
	}{{unix.SYS_SETFSGID, id.GID}, {unix.SYS_SETFSUID, id.UID}} {
		_, _, _ = unix.RawSyscall(set.call, uintptr(set.id), 0, 0)
		// Both answer with the id before, so only a second call, with an id
		// that can't be set, tells whether the first worked.
		if now, _, _ := unix.RawSyscall(set.call, ^uintptr(0), 0, 0); uint32(now) != set.id {
			return fmt.Errorf("assume uid %d, gid %d: %w", id.UID, id.GID, unix.EPERM)
		}
	}
	return nil
}
