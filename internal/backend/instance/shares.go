package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// share shows d, which is apart, at a mount point of its own.
func (c *composer) share(d Dir) error {
	at := filepath.Join(DirMounts, d.Share())
	if err := mkdir(at); err != nil {
		return err
	}
	switch {
	case d.Volume != nil:
		return c.volume(d, at)
	case d.Mode == modeOwn:
		return c.own(d, at)
	}
	if err := c.attach(d, at); err != nil {
		return err
	}
	if weak.On(weak.GitUnpinned) {
		return nil
	}
	root, err := beneath.OpenDir(at)
	if err != nil {
		return err
	}
	defer root.Close()
	return c.protect(root, d.Protect)
}

// volume shows a volume at a mount point. Its own file system is mounted once
// more, in this mount namespace; its files have the guest's ids on disk.
func (c *composer) volume(d Dir, at string) error {
	raw := at + "-disk"
	if err := mkdir(raw); err != nil {
		return err
	}
	data, err := d.Volume.Mount(context.Background(), raw)
	if err != nil {
		return err
	}
	src, err := os.OpenFile(data, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	defer src.Close()
	return c.bindAs(src, at, guestUID, guestGID, d.Mode == modeRO && !weak.On(weak.ReadOnlyWritable))
}

// mountPoint makes a directory for a further mount in the instance's root, and on
// the host's own kernel shows d there. The root is what the guest wrote,
// symlinks and all: stay beneath it.
func (c *composer) mountPoint(d Dir) error {
	rel, err := filepath.Rel("/", d.Target)
	if err != nil {
		return err
	}
	if _, below := d.belowWorkspace(); !below { // or else it is there: see holdMountPoints
		err = c.makeMountPoint(rel)
	}
	if err == nil && c.layout.Native && d.Mode == modeRW && strings.HasPrefix(rel, userHome+"/") {
		c.makeSocketDirs()
	}
	if err != nil || !c.layout.Native {
		return err
	}
	return c.bindInRoot(filepath.Join(DirMounts, d.Share()), rel)
}

// userHome is where the guest's user is at home.
const userHome = "home/user"

// makeMountPoint makes a directory in the instance's root, and those that lead to it:
// in the user's home they are the user's, to whom what lies beside it matters.
func (c *composer) makeMountPoint(rel string) error {
	if !strings.HasPrefix(rel, userHome+"/") {
		return c.asGuest(func() error { return c.mkdirInRoot(rel) })
	}
	return asOwner(int(c.layout.Base+guestUID), func() error { return c.mkdirInRoot(rel) })
}

// socketDirs are where programs make sockets in a home. Where something shared lies in a
// home, only what is there at the start can hold sockets: see package jail.
var socketDirs = []string{".cache", ".config", ".gnupg", ".local", ".ssh"}

// makeSocketDirs makes what is missing of socketDirs in the user's home. Where a thing of
// another kind stands, or there is no room, those programs do without.
func (c *composer) makeSocketDirs() {
	_ = asOwner(int(c.layout.Base+guestUID), func() error {
		root, err := openRoot()
		if err != nil {
			return err
		}
		defer root.Close()
		for _, name := range socketDirs {
			err = errors.Join(err, root.MkdirAll(userHome+"/"+name, 0o700))
		}
		return err
	})
}

// openRoot opens the instance's root, as guests have left it.
func openRoot() (*beneath.Dir, error) { return beneath.OpenDir(DirMounts + "/" + MountRoot) }

func (c *composer) mkdirInRoot(rel string) error {
	root, err := openRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(rel, 0o755); err != nil {
		return inTheWay(root, rel, "/", err)
	}
	return nil
}

func chmodInRoot(rel string, mode uint32) error {
	root, err := openRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Chmod(rel, mode)
}

// bindInRoot shows source at a directory of the instance's root.
func (c *composer) bindInRoot(source, rel string) error {
	at, done, err := pointInRoot(rel)
	if err != nil {
		return err
	}
	defer done()
	return unix.Mount(source, at, "", unix.MS_BIND|unix.MS_REC, "")
}

// pointInRoot opens a place in the instance's root to mount something on: the root
// is what guests wrote, and a link in it may lead anywhere.
func pointInRoot(path string) (at string, done func(), err error) {
	root, err := openRoot()
	if err != nil {
		return "", nil, err
	}
	defer root.Close()
	f, err := root.Open(strings.TrimPrefix(path, "/"), unix.O_PATH)
	if err != nil {
		return "", nil, fmt.Errorf("open the mount point %s: %w", path, err)
	}
	return beneath.Path(f), func() { f.Close() }, nil
}

// groups gathers what the agent needs of control groups beside the instance's root: in a
// file system of its own, which nothing outlives, owned by the instance's root. Who enters
// the instance takes it along. A mount that the root came with could not be undone inside.
func (c *composer) groups() error {
	if len(c.layout.Shown) == 0 {
		return nil
	}
	at := filepath.Join(DirMounts, MountGroups)
	err := c.asGuest(func() error { return c.mkdirInRoot(GuestControl[1:]) })
	if err == nil { // who enters goes by here, with the instance's ids; nobody else gets as far
		err = os.Chmod(DirMounts, 0o711)
	}
	if err = errors.Join(err, mkdir(at)); err != nil {
		return err
	}
	opts := fmt.Sprintf("size=64k,nr_inodes=64,mode=0700,uid=%d,gid=%d", c.layout.Base, c.layout.Base)
	if err := unix.Mount("none", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, opts); err != nil {
		return err
	}
	for _, sh := range c.layout.Shown {
		if err := sh.show(at); err != nil {
			return fmt.Errorf("show %s: %w", sh.Source, err)
		}
	}
	return nil
}

// show binds a file or a directory of the host below at.
func (sh shownGroup) show(at string) error {
	st, err := os.Stat(sh.Source)
	if err != nil {
		return err
	}
	point := filepath.Join(at, sh.Name)
	if st.IsDir() {
		err = mkdir(point)
	} else {
		err = os.WriteFile(point, nil, 0o600)
	}
	if err != nil {
		return err
	}
	return bind(sh.Source, point)
}
