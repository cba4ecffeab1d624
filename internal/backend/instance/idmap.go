package instance

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// attach shows the host directory d at a mount point, its owner appearing as
// the guest's user. It fails where another directory than the accepted one
// stands at that path by now.
func (c *composer) attach(d Dir, at string) error {
	src, err := openAccepted(d)
	if err != nil {
		return err
	}
	defer src.Close()
	ro := d.Mode == modeRO || d.Mode == modeCOW
	if weak.On(weak.ReadOnlyWritable) {
		ro = d.Mode == modeCOW
	}
	if err := c.bindAs(src, at, d.UID, d.GID, ro); err != nil {
		return fmt.Errorf("%s: %w", d.Source, err)
	}
	return nil
}

// bindMapped shows a directory of ours, whose owners are ids of the guest.
func (c *composer) bindMapped(source, at string) error {
	if c.layout.Base == 0 {
		return bind(source, at)
	}
	src, err := os.OpenFile(source, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	return c.bindAs(src, at, guestUID, guestGID, false)
}

// bindAs shows a directory with uid and gid as the guest's user's.
func (c *composer) bindAs(src *os.File, at string, uid, gid uint32, readOnly bool) error {
	tree, err := unix.OpenTree(int(src.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("clone mount: %w", err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if weak.On(weak.SetIDMounts) {
		attr.Attr_set &^= unix.MOUNT_ATTR_NOSUID
	}
	if weak.On(weak.DeviceMounts) {
		attr.Attr_set &^= unix.MOUNT_ATTR_NODEV
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	// Without root the user namespace maps the owner already, and no mount can.
	if !c.layout.Rootless && (c.layout.Base != 0 || uid != guestUID || gid != guestGID) {
		ns, err := c.namespace(uid, gid)
		if err != nil {
			return fmt.Errorf("make user namespace: %w", err)
		}
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(ns.Fd())
	}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr)
	if errors.Is(err, unix.EINVAL) && attr.Attr_set&unix.MOUNT_ATTR_IDMAP != 0 {
		return errNoIDMap
	}
	if err != nil {
		return fmt.Errorf("map owners: %w", err)
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// namespace returns a user namespace that shows uid and gid as the guest's.
func (c *composer) namespace(uid, gid uint32) (*os.File, error) {
	key := [2]uint32{uid, gid}
	if f := c.maps[key]; f != nil {
		return f, nil
	}
	f, err := role.UserNamespace(idMap(c.layout.Base, uid, guestUID), idMap(c.layout.Base, gid, guestGID))
	if err == nil {
		c.maps[key] = f
	}
	return f, err
}

// idMap maps ids on disk to those of the instance on the host.
func idMap(base, owner, guest uint32) []syscall.SysProcIDMap {
	if base == 0 {
		return swapped(owner, guest)
	}
	return shifted(base, owner, guest)
}

// errNoIDMap says that a file system can't show its owners as others.
var errNoIDMap = errors.New("its file system can't map owners")

// openAccepted opens d's directory, if it is still the one that was accepted;
// where it is not, the error is a Conflict.
func openAccepted(d Dir) (*os.File, error) {
	f, err := beneath.OpenSame(d.Source, d.Dev, d.Ino)
	if errors.Is(err, beneath.ErrAnother) {
		if weak.On(weak.ReplacedAccepted) {
			return os.OpenFile(d.Source, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		}
		return nil, notAccepted(d)
	}
	return f, err
}

func notAccepted(d Dir) error {
	return sandbox.Errorf(sandbox.Conflict, "%s is not the directory that was named at create", d.Source).
		WithHint("put that one back, or make another sandbox")
}

// checkAccepted looks at each directory of the host in the daemon, whose errors
// users read; the launcher looks again as it mounts them.
func checkAccepted(dirs ...Dir) error {
	for _, d := range dirs {
		if d.Source == "" || d.Volume != nil {
			continue
		}
		f, err := openAccepted(d)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// swapped maps a to b, b to a, and every other id to itself. Exchanged, not
// just mapped: gVisor creates files as 0 first and gives them away after, so
// that 0 must have a place.
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

// shifted maps ids on disk to an instance's span: owner to its guest user, the guest
// user's id to the owner's place or, where that is outside, to the span's
// last, and every other one of the span to its own.
func shifted(base, owner, guest uint32) []syscall.SysProcIDMap {
	one := func(disk, inside uint32) syscall.SysProcIDMap {
		return syscall.SysProcIDMap{ContainerID: int(disk), HostID: int(base + inside), Size: 1}
	}
	m := []syscall.SysProcIDMap{}
	taken := []uint32{guest}
	if owner != guest {
		place := owner
		if owner >= Span {
			place = Span - 1
		}
		m = append(m, one(owner, guest), one(guest, place))
		taken = append(taken, place)
		slices.Sort(taken)
	} else {
		m = append(m, one(guest, guest))
	}
	from := uint32(0)
	for _, t := range append(taken, Span) {
		if t > from {
			m = append(m, syscall.SysProcIDMap{ContainerID: int(from), HostID: int(base + from), Size: int(t - from)})
		}
		from = t + 1
	}
	return m
}
