package instance

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// protect makes paths below a shared tree, parents first, mounts of their own,
// so that none can be renamed away, and read-only where asked. What git would
// obey if it were there is made before: what is not there can't be held, and
// nothing is made in what is read-only. What is so for itself alone comes last:
// a mount has the flags of the one from which it is made.
func (c *composer) protect(root *beneath.Dir, list []workspace.Protect) error {
	for _, step := range []func(workspace.Protect) error{
		func(pr workspace.Protect) error { return c.makeMissing(root, pr) },
		func(pr workspace.Protect) error { return pin(root, pr) },
		func(pr workspace.Protect) error { return sealShallow(root, pr) },
	} {
		for _, pr := range list {
			if err := step(pr); err != nil {
				return fmt.Errorf("protect %s: %w", pr.Path, err)
			}
		}
	}
	return nil
}

func (c *composer) makeMissing(root *beneath.Dir, pr workspace.Protect) error {
	if !pr.Missing {
		return nil
	}
	if err := c.makeBeneath(root, pr); !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

func sealShallow(root *beneath.Dir, pr workspace.Protect) error {
	if !pr.Shallow {
		return nil
	}
	return seal(root, pr.Path, 0)
}

func pin(root *beneath.Dir, pr workspace.Protect) error {
	f, err := root.Open(pr.Path, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := bind(beneath.Path(f), beneath.Path(f)); err != nil {
		return err
	}
	if !pr.ReadOnly || pr.Shallow {
		return nil
	}
	return seal(root, pr.Path, unix.AT_RECURSIVE)
}

// seal makes the mount at a path below root read-only: one that was made since
// a descriptor of the path was opened is not what that names.
func seal(root *beneath.Dir, rel string, flags uint) error {
	if weak.On(weak.GitUnprotected) {
		return nil
	}
	top, err := root.Open(rel, unix.O_PATH)
	if err != nil {
		return err
	}
	defer top.Close()
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return unix.MountSetattr(int(top.Fd()), "", unix.AT_EMPTY_PATH|flags, &attr)
}

// makeBeneath makes an empty directory, or a file with its content, as the
// guest's user: that one the tree's owner appears as here.
func (c *composer) makeBeneath(root *beneath.Dir, pr workspace.Protect) error {
	return asOwner(int(c.layout.Base+guestUID), func() error { return makeFile(root, pr) })
}

func makeFile(dir *beneath.Dir, pr workspace.Protect) error {
	if pr.Dir {
		return dir.Mkdir(pr.Path, 0o755)
	}
	f, err := dir.Create(pr.Path, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(pr.Content)
	return errors.Join(err, f.Close())
}
