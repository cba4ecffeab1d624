package box

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// mountLayers makes what the box writes available.
func (c *composer) mountLayers() error {
	var err error
	if c.raw, err = mountRaw(c.plan.Disk, c.plan.NewDisk); err != nil {
		return err
	}
	c.layers = c.raw
	if c.plan.Base == 0 {
		return nil
	}
	at := filepath.Join(DirMounts, "layers")
	if err := mkdir(at); err != nil {
		return err
	}
	c.layers = at
	if err := c.bindMapped(c.raw, at); err != nil {
		return fmt.Errorf("map the owners of layers: %w", err)
	}
	return nil
}

// mountRaw mounts the disk image, or shows the plain directory, at m/disk.
func mountRaw(image string, isNew bool) (string, error) {
	dir := filepath.Join(DirMounts, "disk")
	if image != "" {
		if _, err := disk.Mount(context.Background(), image, dir, disk.Options{New: isNew}); err != nil {
			return "", err
		}
		return dir, nil
	}
	return dir, bind(dirLayers, dir)
}

// overlay lays a writable layer over what was saved of it and over lowers, the
// lowest first, and shows the whole at target below the mounts. lowers may be any paths: the options see
// only ours.
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
	upper, work := filepath.Join(c.layers, name, "upper"), filepath.Join(c.layers, name, "work")
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", strings.Join(list, ":"), upper, work, overlayOptions)
	if c.plan.Rootless {
		opts += ",userxattr"
	}
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
	// The kernel writes to the upper layer as whoever mounts.
	err = c.asGuest(0, func() error {
		return unix.Mount("overlay", at, "overlay", flags, opts)
	})
	if err != nil {
		return fmt.Errorf("mount overlay on %s: %w", target, err)
	}
	return nil
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
	upper, work := filepath.Join(c.raw, name, "upper"), filepath.Join(c.raw, name, "work")
	if _, err := os.Lstat(work); err == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(lower, &st); err != nil {
		return err
	}
	if err := os.MkdirAll(upper, 0o700); err != nil {
		return err
	}
	if err := os.Chown(upper, c.onDisk(st.Uid), c.onDisk(st.Gid)); err != nil {
		return err
	}
	if err := os.Chmod(upper, os.FileMode(st.Mode&0o777)); err != nil {
		return err
	}
	if name == "root" {
		if err := mountPoints(upper); err != nil {
			return err
		}
	}
	return os.Mkdir(work, 0o700)
}

// onDisk turns an id that a mapped mount shows into the one on disk.
func (c *composer) onDisk(id uint32) int {
	if c.plan.Base == 0 {
		return int(id)
	}
	if id >= c.plan.Base && id < c.plan.Base+Span {
		return int(id - c.plan.Base)
	}
	return 0
}

// mountPoints makes the directories of a new upper layer over which a box
// mounts. Whatever an image has under their names, these are directories.
func mountPoints(upper string) error {
	for _, d := range []struct {
		name string
		mode os.FileMode
		uid  int
	}{
		{"proc", 0o555, 0},
		{"dev", 0o755, 0},
		{"sys", 0o555, 0},
		{"run", 0o755, 0},
		{"run/carboy", 0o755, 0},
		{"tmp", 0o777 | os.ModeSticky, 0},
		{"workspace", 0o755, guestUID},
	} {
		p := filepath.Join(upper, d.name)
		if err := os.Mkdir(p, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := errors.Join(os.Chown(p, d.uid, d.uid), os.Chmod(p, d.mode)); err != nil {
			return err
		}
	}
	return nil
}
