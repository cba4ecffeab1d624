package box

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// protect makes a path below a shared tree a mount of its own, so that it
// can't be renamed away, and read-only where asked. What git would obey if it
// were there is made first: what is not there can't be held.
func (c *composer) protect(root string, pr workspace.Protect) error {
	if pr.Missing {
		if err := c.makeBeneath(root, pr); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("protect %s: %w", pr.Path, err)
		}
	}
	if err := pin(root, pr); err != nil {
		return fmt.Errorf("protect %s: %w", pr.Path, err)
	}
	return nil
}

func pin(root string, pr workspace.Protect) error {
	fd, err := openBeneath(root, pr.Path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	self := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := bind(self, self); err != nil {
		return err
	}
	if !pr.ReadOnly || weak.On(weak.GitUnprotected) {
		return nil
	}
	// The descriptor still names what lies below the new mount: open it anew.
	top, err := openBeneath(root, pr.Path)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return unix.MountSetattr(top, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
}

// makeBeneath makes an empty directory, or a file with its content, that
// belongs to the tree's owner: as that one the guest's user appears here.
func (c *composer) makeBeneath(root string, pr workspace.Protect) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer dir.Close()
	if c.plan.Base != 0 {
		return c.asGuest(guestUID, func() error { return makeFile(dir, pr) })
	}
	if err := makeFile(dir, pr); err != nil {
		return err
	}
	return dir.Lchown(pr.Path, guestUID, guestGID)
}

func makeFile(dir *os.Root, pr workspace.Protect) error {
	if pr.Dir {
		return dir.Mkdir(pr.Path, 0o755)
	}
	f, err := dir.OpenFile(pr.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(pr.Content)
	return errors.Join(err, f.Close())
}

// openBeneath opens a path below root that leads through no link.
func openBeneath(root, path string) (int, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return unix.Openat2(dir, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}
