// Package rights gives the calling thread the rights of somebody else, and reads
// back whether the kernel did as it said: nothing may run with more rights by
// mistake. Package syscall's functions change every thread of a process; these
// change one, which its goroutine must be locked to.
//
// It refuses ids that mean no change, and keeps no record of what a thread had
// before: who wants that back sets it.
package rights

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Keep, as an id, would leave one as it is.
const keep = ^uint32(0)

// Identity is a user with its groups.
type Identity struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
}

// OverFiles makes id the one whose rights over files the thread has, and whose the
// files are that it makes. With a uid other than 0 the kernel takes the
// capabilities over files from it, and gives them back with uid 0.
func (id Identity) OverFiles() error {
	if err := setGroups(id.Groups); err != nil {
		return err
	}
	return OfFiles(id.UID, id.GID)
}

// OfFiles is OverFiles with the groups left as they are.
func OfFiles(uid, gid uint32) error {
	for _, to := range []struct {
		call uintptr
		id   uint32
		what string
	}{{unix.SYS_SETFSGID, gid, "group"}, {unix.SYS_SETFSUID, uid, "user"}} {
		if to.id == keep {
			return fmt.Errorf("%s %d of files: it means no change", to.what, to.id)
		}
		_, _, _ = unix.RawSyscall(to.call, uintptr(to.id), 0, 0)
		// Both answer with the id before, so only a second call, with an id that
		// can't be set, tells whether the first worked.
		if now, _, _ := unix.RawSyscall(to.call, uintptr(keep), 0, 0); uint32(now) != to.id {
			return fmt.Errorf("%s %d of files: it is %d: %w", to.what, to.id, uint32(now), unix.EPERM)
		}
	}
	return nil
}

// Effective gives the thread id's effective ids and groups. The real and saved ids
// stay root's, so that root can be had back by Identity{}.
func (id Identity) Effective() error {
	if id.UID == keep || id.GID == keep {
		return fmt.Errorf("user %d and group %d: one means no change", id.UID, id.GID)
	}
	if id.UID == 0 { // first become able to change the rest
		if err := setIDs(unix.SYS_SETRESUID, keep, 0, keep); err != nil {
			return err
		}
	}
	if err := setGroups(id.Groups); err != nil {
		return err
	}
	if err := setIDs(unix.SYS_SETRESGID, keep, id.GID, keep); err != nil {
		return err
	}
	return setIDs(unix.SYS_SETRESUID, keep, id.UID, keep)
}

// Group sets all three of the thread's group ids.
func Group(gid uint32) error {
	if gid == keep {
		return fmt.Errorf("group %d: it means no change", gid)
	}
	return setIDs(unix.SYS_SETRESGID, gid, gid, gid)
}

// Real sets the thread's real user and group, whose limits and signals count for it.
func Real(uid, gid uint32) error {
	if uid == keep || gid == keep {
		return fmt.Errorf("real user %d and group %d: one means no change", uid, gid)
	}
	if err := setIDs(unix.SYS_SETRESGID, gid, keep, keep); err != nil {
		return err
	}
	return setIDs(unix.SYS_SETRESUID, uid, keep, keep)
}

// setIDs sets real, effective and saved ids; those that are keep are left.
func setIDs(call uintptr, ids ...uint32) error {
	what, read := "user", uintptr(unix.SYS_GETRESUID)
	if call == unix.SYS_SETRESGID {
		what, read = "group", unix.SYS_GETRESGID
	}
	if _, _, e := unix.RawSyscall(call, number(ids[0]), number(ids[1]), number(ids[2])); e != 0 {
		return fmt.Errorf("set %s ids: %w", what, e)
	}
	return same(read, what, ids...)
}

// same reads the real, effective and saved ids of the thread, which are to be ids but
// for those that are keep.
func same(read uintptr, what string, ids ...uint32) error {
	var now [3]uint32
	_, _, e := unix.RawSyscall(read, uintptr(unsafe.Pointer(&now[0])), uintptr(unsafe.Pointer(&now[1])), uintptr(unsafe.Pointer(&now[2])))
	if e != 0 {
		return fmt.Errorf("read %s ids: %w", what, e)
	}
	for i, id := range ids {
		if id != keep && id != now[i] {
			return fmt.Errorf("%s ids are %d after %d was set: %w", what, now, id, unix.EPERM)
		}
	}
	return nil
}

// number is an id as the kernel's calls have it: keep is -1.
func number(id uint32) uintptr {
	if id == keep {
		return ^uintptr(0)
	}
	return uintptr(id)
}

// setGroups sets the thread's supplementary groups.
func setGroups(groups []uint32) error {
	_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
	if e != 0 {
		return fmt.Errorf("set groups: %w", e)
	}
	return sameGroups(groups)
}

// sameGroups reads the thread's groups, which are to be these.
func sameGroups(groups []uint32) error {
	now := make([]uint32, len(groups)+1) // one that is too many shows
	n, _, e := unix.RawSyscall(unix.SYS_GETGROUPS, uintptr(len(now)), uintptr(unsafe.Pointer(&now[0])), 0)
	if e != 0 {
		return fmt.Errorf("read groups: %w", e)
	}
	if now = now[:n]; !slices.Equal(slices.Sorted(slices.Values(now)), slices.Sorted(slices.Values(groups))) {
		return fmt.Errorf("groups are %d after %d were set: %w", now, groups, unix.EPERM)
	}
	return nil
}

// Become makes the whole process uid and gid for good, without further groups.
func Become(uid, gid int) error {
	err := syscall.Setgroups(nil)
	if err := errors.Join(err, syscall.Setresgid(gid, gid, gid), syscall.Setresuid(uid, uid, uid)); err != nil {
		return fmt.Errorf("become user %d, group %d: %w", uid, gid, err)
	}
	// What these set they set for every thread, or end the process.
	if err := sameGroups(nil); err != nil {
		return err
	}
	if err := same(unix.SYS_GETRESGID, "group", uint32(gid), uint32(gid), uint32(gid)); err != nil {
		return err
	}
	return same(unix.SYS_GETRESUID, "user", uint32(uid), uint32(uid), uint32(uid))
}

// Capabilities are sets of a thread's, by their numbers' bits.
type Capabilities struct{ Effective, Permitted, Inheritable uint64 }

// Held returns the thread's.
func Held() (c Capabilities, err error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&hdr, &d[0]); err != nil {
		return c, fmt.Errorf("read capabilities: %w", err)
	}
	both := func(low, high uint32) uint64 { return uint64(high)<<32 | uint64(low) }
	return Capabilities{
		both(d[0].Effective, d[1].Effective), both(d[0].Permitted, d[1].Permitted), both(d[0].Inheritable, d[1].Inheritable),
	}, nil
}

// Set makes c the thread's.
func (c Capabilities) Set() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	d := c.data()
	if err := unix.Capset(&hdr, &d[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return c.held()
}

// SetAll makes c every thread's. It is for a process without cgo.
func (c Capabilities) SetAll() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	d := c.data()
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&d[0])), 0)
	if e != 0 {
		return fmt.Errorf("set capabilities: %w", e)
	}
	return c.held()
}

func (c Capabilities) data() (d [2]unix.CapUserData) {
	for i := range d {
		shift := 32 * i
		d[i] = unix.CapUserData{
			Effective: uint32(c.Effective >> shift), Permitted: uint32(c.Permitted >> shift), Inheritable: uint32(c.Inheritable >> shift),
		}
	}
	return d
}

// held fails where the thread has others.
func (c Capabilities) held() error {
	now, err := Held()
	if err == nil && now != c {
		err = fmt.Errorf("capabilities are %x after %x were set: %w", now, c, unix.EPERM)
	}
	return err
}
