package hostlock

import (
	"golang.org/x/sys/unix"
	fslock "gvisor.dev/gvisor/pkg/sentry/fsimpl/lock"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// lockWhole tries to take a lock of a file as a whole, as flock does: inside, and then on
// the host. As on Linux, one that fails to become another is lost.
func (n *inode) lockWhole(t *kernel.Task, file *vfs.FileDescription, typ fslock.LockType) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.wholes.open {
		var err error
		if n.wholes, err = duplicate(file, false); err != nil {
			return err
		}
	}
	err := file.LockBSD(t, int32(t.TGIDInRoot()), typ, false)
	if err == nil {
		if err = n.wholes.flock(typ); err == nil {
			n.watchWholes()
			return nil
		}
		n.wholesWatch.expect()
		_ = file.UnlockBSD(t)
	}
	n.trimWhole()
	if n.wholesWatch.on == nil {
		n.wholes.close()
	}
	return err
}

// unlockWhole releases the lock of the file as a whole that file has.
func (n *inode) unlockWhole(t *kernel.Task, file *vfs.FileDescription) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wholesWatch.expect()
	err := file.UnlockBSD(t)
	n.trimWhole()
	n.announce()
	return err
}

// trimWhole lets the host's lock go where none is held inside.
func (n *inode) trimWhole() {
	if n.wholes.open && !n.wholeHeld() {
		n.wholes.unflock()
	}
}

// wholeHeld reports whether anybody inside has a lock of the file as a whole: there is no
// other way to ask than to try.
func (n *inode) wholeHeld() bool {
	if n.locks.LockBSD(background(), aProcess, 0, fslock.WriteLock, false) != nil {
		return true
	}
	n.wholesWatch.expect()
	n.locks.UnlockBSD(aProcess)
	return false
}

func (d *descriptor) flock(typ fslock.LockType) error {
	how := unix.LOCK_SH
	if typ == fslock.WriteLock {
		how = unix.LOCK_EX
	}
	err := refusal(func() error { return unix.Flock(d.fd, how|unix.LOCK_NB) })
	d.locked = err == nil // one that fails to become another is lost
	return err
}

func (d *descriptor) unflock() {
	d.locked = false
	_ = refusal(func() error { return unix.Flock(d.fd, unix.LOCK_UN) })
}
