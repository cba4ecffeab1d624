package gvisor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// attach shows the host directory d at a mount point, its owner appearing as
// the guest's user and the guest's user as its owner. It fails where another
// directory than the accepted one stands at that path by now.
func attach(d planDir, at string, rootless bool) error {
	src, err := openAccepted(d)
	if err != nil {
		return err
	}
	defer src.Close()
	fd := int(src.Fd())
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone mount of %s: %w", d.Source, err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if d.Mode == "ro" || d.Mode == "cow" {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	// Without root the user namespace maps the owner already, and no mount can.
	if !rootless && (d.UID != guestUID || d.GID != guestGID) {
		ns, err := swapNamespace(d.UID, d.GID)
		if err != nil {
			return fmt.Errorf("make user namespace: %w", err)
		}
		defer ns.Close()
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(ns.Fd())
	}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
	if errors.Is(err, unix.EINVAL) && attr.Attr_set&unix.MOUNT_ATTR_IDMAP != 0 {
		return fmt.Errorf("%s: %w", d.Source, errNoIDMap)
	}
	if err != nil {
		return fmt.Errorf("map the owner of %s: %w", d.Source, err)
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// errNoIDMap says that a file system can't show its owners as others.
var errNoIDMap = errors.New("its file system can't map owners")

// openAccepted opens d's directory, if it is still the one that was accepted.
func openAccepted(d planDir) (*os.File, error) {
	f, err := os.OpenFile(d.Source, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, err
	}
	if st.Dev != d.Dev || st.Ino != d.Ino {
		f.Close()
		return nil, fmt.Errorf("%s is not the directory that was named at create", d.Source)
	}
	return f, nil
}

// swapNamespace returns a user namespace in which the owner's ids and the
// guest's are exchanged and all others stay. Exchanged, not just mapped: the
// wall creates files as 0 first and gives them away after, so that 0 must
// have a place.
func swapNamespace(uid, gid uint32) (*os.File, error) {
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	pidfd := -1
	p, err := os.StartProcess("/proc/self/exe", []string{roleUserNS}, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{
			Cloneflags:                 syscall.CLONE_NEWUSER,
			UidMappings:                swapped(uid, guestUID),
			GidMappings:                swapped(gid, guestGID),
			GidMappingsEnableSetgroups: true,
			Ptrace:                     true, // stops at exec: it never runs
			PidFD:                      &pidfd,
			Pdeathsig:                  syscall.SIGKILL,
		},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = p.Kill()
		_, _ = p.Wait()
		if pidfd >= 0 {
			unix.Close(pidfd)
		}
	}()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
}

// swapped maps a to b, b to a, and every other id to itself.
func swapped(a, b uint32) []syscall.SysProcIDMap {
	const all = 1<<32 - 1
	if a == b {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: all}}
	}
	lo, hi := min(a, b), max(a, b)
	m := []syscall.SysProcIDMap{
		{ContainerID: int(lo), HostID: int(hi), Size: 1},
		{ContainerID: int(hi), HostID: int(lo), Size: 1},
	}
	for _, r := range [][2]uint64{{0, uint64(lo)}, {uint64(lo) + 1, uint64(hi)}, {uint64(hi) + 1, all}} {
		if r[1] > r[0] {
			m = append(m, syscall.SysProcIDMap{ContainerID: int(r[0]), HostID: int(r[0]), Size: int(r[1] - r[0])})
		}
	}
	return m
}
