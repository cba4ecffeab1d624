package workspace

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
)

// Identity is whose rights to files a piece of work has.
type Identity struct {
	UID, GID uint32
	Groups   []uint32
}

// OwnerOf is with whose rights a directory of the host is read: its owner's, who is the guests' user in a user namespace without root;
// nil: root's.
func OwnerOf(rootless bool, guest, owner Identity) *Identity {
	switch {
	case rootless:
		return &guest
	case owner.UID != 0:
		return &owner
	}
	return nil
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

// assume switches this thread's file system ids and groups.
func (id *Identity) assume() error {
	return rights.Identity{UID: id.UID, GID: id.GID, Groups: id.Groups}.OverFiles()
}
