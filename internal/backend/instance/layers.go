package instance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// mountLayers makes what the instance writes available.
func (c *composer) mountLayers() error {
	var err error
	if c.raw, err = mountRaw(c.layout); err != nil {
		return err
	}
	return c.mapLayers()
}

// mapLayers shows the layers with owners as the instance has them.
func (c *composer) mapLayers() error {
	at := atDisk
	if c.layout.Base != 0 {
		at = filepath.Join(DirMounts, "layers")
		if err := mkdir(at); err != nil {
			return err
		}
		if err := c.bindMapped(atDisk, at); err != nil {
			return fmt.Errorf("map the owners of layers: %w", err)
		}
	}
	var err error
	c.layers, err = beneath.OpenDir(at)
	return err
}

// atDisk is where an instance's disk is mounted.
const atDisk = DirMounts + "/disk"

// mountRaw mounts the disk image, or shows the plain directory, and opens it.
func mountRaw(lay *Layout) (*beneath.Dir, error) {
	var err error
	if lay.Disk != "" {
		_, err = disk.Mount(context.Background(), lay.Disk, atDisk, disk.Options{New: lay.NewDisk, Holder: lay.Holder, Label: lay.ID})
	} else {
		err = bind(dirLayers, atDisk)
	}
	if err != nil {
		return nil, err
	}
	return beneath.OpenDir(atDisk)
}

// overlay lays a writable layer over what was saved of it and over lowers, the lowest
// first, and shows the whole at target below the mounts. lowers may be any paths: the
// options see only ours.
func (c *composer) overlay(name, target string, lowers []string, mountLower func(source, at string) error) error {
	saved, err := c.saved(name)
	if err != nil {
		return err
	}
	var list []string
	for _, source := range slices.Backward(saved) {
		if list, err = c.lower(list, source, c.bindMapped); err != nil {
			return fmt.Errorf("a snapshot's layer: %w", err)
		}
	}
	for _, source := range slices.Backward(lowers) {
		if list, err = c.lower(list, source, mountLower); err != nil {
			return err
		}
	}
	if err := c.layerDirs(name, list[0]); err != nil {
		return err
	}
	upper, err := c.layers.OpenDir(name + "/upper")
	if err != nil {
		return err
	}
	defer upper.Close()
	work, err := c.layers.OpenDir(name + "/work")
	if err != nil {
		return err
	}
	defer work.Close()
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", strings.Join(list, ":"), upper.Path(), work.Path(), c.options(name))
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
	if weak.On(weak.SetIDMounts) {
		flags &^= unix.MS_NOSUID
	}
	if weak.On(weak.DeviceMounts) {
		flags &^= unix.MS_NODEV
	}
	at := filepath.Join(DirMounts, target)
	if rel, ok := strings.CutPrefix(target, MountRoot+"/"); ok {
		point, done, err := pointInRoot(rel)
		if err != nil {
			return err
		}
		defer done()
		at = point
	}
	// The kernel writes to the upper layer as the mounting process.
	err = c.asGuest(func() error {
		return unix.Mount("overlay", at, "overlay", flags, opts)
	})
	if err != nil {
		return fmt.Errorf("mount overlay on %s: %w", target, err)
	}
	return nil
}

// options are the mount options of the overlay of a name, but for its layers.
func (c *composer) options(name string) string {
	switch {
	case c.layout.Rootless: // with marks that the guest can set, the kernel renames nothing
		return overlayOptions + ",userxattr"
	case name == layerWorkspace:
		return viewOptions
	}
	return overlayOptions
}

// lower shows a lower layer at a mount point of its own, and adds that to list.
func (c *composer) lower(list []string, source string, show func(source, at string) error) ([]string, error) {
	low := filepath.Join(DirMounts, fmt.Sprintf("l%d", c.lowers))
	c.lowers++
	if err := mkdir(low); err != nil {
		return nil, err
	}
	return append(list, low), show(source, low)
}

// layerDirs makes an upper layer whose root looks like the lower's, once. The
// work directory comes last: it says that the layer is whole.
func (c *composer) layerDirs(name, lower string) error {
	if _, err := c.raw.Stat(name + "/work"); !errors.Is(err, unix.ENOENT) {
		return err
	}
	below, err := beneath.OpenDir(lower)
	if err != nil {
		return err
	}
	defer below.Close()
	st, err := below.Stat(".")
	if err != nil {
		return err
	}
	if err := c.raw.MkdirAll(name+"/upper", 0o700); err != nil {
		return err
	}
	upper, err := c.raw.OpenDir(name + "/upper")
	if err != nil {
		return err
	}
	defer upper.Close()
	if err := errors.Join(upper.Chown(".", c.onDisk(st.Uid), c.onDisk(st.Gid)), upper.Chmod(".", st.Mode&0o777)); err != nil {
		return err
	}
	if name == layerRoot {
		if err := mountPoints(upper); err != nil {
			return err
		}
	}
	return c.raw.Mkdir(name+"/work", 0o700)
}

// onDisk turns an id that a mapped mount shows into the one on disk.
func (c *composer) onDisk(id uint32) int {
	if c.layout.Base == 0 {
		return int(id)
	}
	if id >= c.layout.Base && id < c.layout.Base+Span {
		return int(id - c.layout.Base)
	}
	return 0
}

// mountPoints makes the directories of a new upper layer over which an instance
// mounts. Whatever an image has under their names, these are directories.
func mountPoints(upper *beneath.Dir) error {
	for _, d := range []struct {
		name string
		mode uint32
		uid  int
	}{
		{"proc", 0o555, 0},
		{"dev", 0o755, 0},
		{"sys", 0o555, 0},
		{"run", 0o755, 0},
		{"tmp", 0o777 | unix.S_ISVTX, 0},
		{"workspace", 0o755, guestUID},
	} {
		if err := upper.MkdirAll(d.name, 0o700); err != nil {
			return err
		}
		if err := errors.Join(upper.Chown(d.name, d.uid, d.uid), upper.Chmod(d.name, d.mode)); err != nil {
			return err
		}
	}
	return nil
}
