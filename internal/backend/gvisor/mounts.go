package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk"
)

// Commands' ids inside, and the owner of what a box makes of its own.
const (
	guestUID = 1000
	guestGID = 1000
)

// overlayOptions keep whole copies in the upper layer, so that it can be read
// on its own.
const overlayOptions = "redirect_dir=nofollow,metacopy=off,index=off"

// shared reports whether d is the host's own tree, which the host may change
// at any time: the guest must not cache it.
func (d planDir) shared() bool { return d.Mode == "rw" || d.Mode == "ro" }

// shareName is d's mount point below the box's mounts: no text of the user's.
func shareName(d planDir) string {
	sum := sha256.Sum256([]byte(d.Target))
	return "share-" + hex.EncodeToString(sum[:8])
}

// composeRoot builds the box's file system below its mounts, in the mount
// namespace of this process. The working directory is the box's.
func composeRoot(p *plan) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	layers, err := mountLayers(p.Disk)
	if err != nil {
		return err
	}
	c := &composer{layers: layers, rootless: p.Rootless}
	if err := c.overlay("root", p.Root, "root"); err != nil {
		return err
	}
	for _, part := range p.Parts {
		if err := c.overlay("part"+flatName(part.Path), part.Source, "root"+part.Path); err != nil {
			return err
		}
	}
	for _, path := range p.Masks {
		if err := mask(filepath.Join(dirMounts, "root", path)); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	if err := c.workspace(p.Workspace); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	for _, d := range p.Mounts {
		if err := c.share(d); err != nil {
			return fmt.Errorf("mount %s: %w", d.Target, err)
		}
		if err := c.mountPoint(d.Target); err != nil {
			return fmt.Errorf("mount %s: %w", d.Target, err)
		}
	}
	return bindControl(p.Agent)
}

// mountLayers makes what the box writes available at m/disk.
func mountLayers(image string) (string, error) {
	dir := filepath.Join(dirMounts, "disk")
	if image != "" {
		if _, err := disk.Mount(context.Background(), image, dir, disk.Options{}); err != nil {
			return "", err
		}
		return dir, nil
	}
	return dir, bind(dirLayers, dir)
}

type composer struct {
	layers   string // directory of upper layers
	rootless bool
	lowers   int
}

// overlay lays a writable layer over lower and shows the whole at target
// below the mounts. lower may be any path: the options see only ours.
func (c *composer) overlay(name, lower, target string) error {
	return c.overlayMounted(name, target, func(at string) error { return bind(lower, at) })
}

func (c *composer) overlayMounted(name, target string, mountLower func(at string) error) error {
	low := filepath.Join(dirMounts, fmt.Sprintf("lower%d", c.lowers))
	c.lowers++
	if err := mkdir(low); err != nil {
		return err
	}
	if err := mountLower(low); err != nil {
		return err
	}
	upper, work := filepath.Join(c.layers, name, "upper"), filepath.Join(c.layers, name, "work")
	if err := layerDirs(low, upper, work); err != nil {
		return err
	}
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,%s", low, upper, work, overlayOptions)
	if c.rootless {
		opts += ",userxattr"
	}
	at := filepath.Join(dirMounts, target)
	if err := unix.Mount("overlay", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, opts); err != nil {
		return fmt.Errorf("mount overlay on %s: %w", target, err)
	}
	return nil
}

// layerDirs makes an upper layer whose root looks like the lower's, once.
func layerDirs(lower, upper, work string) error {
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
	if err := os.Chown(upper, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := os.Chmod(upper, os.FileMode(st.Mode&0o777)); err != nil {
		return err
	}
	return os.Mkdir(work, 0o700)
}

// workspace shows d at /workspace.
func (c *composer) workspace(d planDir) error {
	at := filepath.Join(dirMounts, "root", "workspace")
	switch d.Mode {
	case "":
		return nil
	case "private":
		dir := filepath.Join(c.layers, "workspace")
		if err := mkdir(dir); err != nil {
			return err
		}
		if err := os.Chown(dir, guestUID, guestGID); err != nil {
			return err
		}
		return bind(dir, at)
	case "cow":
		if exists(filepath.Join(c.layers, "workspace", copyManifest)) {
			return c.copied(d, at) // as the first start found
		}
		if c.rootless {
			// The overlay's own marks would be attributes that the guest can
			// forge: see package workspace.
			return c.copied(d, at)
		}
		err := c.overlayMounted("workspace", "root/workspace", func(low string) error { return attach(d, low, c.rootless) })
		if errors.Is(err, errNoIDMap) {
			return c.copied(d, at)
		}
		return err
	default:
		return c.share(d)
	}
}

// share shows the host's own tree at a mount point of its own.
func (c *composer) share(d planDir) error {
	at := filepath.Join(dirMounts, shareName(d))
	if err := mkdir(at); err != nil {
		return err
	}
	if err := attach(d, at, c.rootless); err != nil {
		return err
	}
	for _, pr := range d.Protect {
		if err := protect(at, pr); err != nil {
			return err
		}
	}
	return nil
}

// mountPoint makes a directory for a further mount in the box's root. The
// root is what the guest wrote, symlinks and all: stay beneath it.
func (c *composer) mountPoint(target string) error {
	root, err := os.OpenRoot(filepath.Join(dirMounts, "root"))
	if err != nil {
		return err
	}
	defer root.Close()
	rel, err := filepath.Rel("/", target)
	if err != nil {
		return err
	}
	return root.MkdirAll(rel, 0o755)
}

// bindControl shows the control directory, and the agent's binary in it.
func bindControl(agent string) error {
	at := filepath.Join(dirMounts, "ctl")
	if err := mkdir(at); err != nil {
		return err
	}
	if err := bind(dirControl, at); err != nil {
		return err
	}
	file := filepath.Join(at, fileAgent)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o500)
	if err != nil {
		return err
	}
	f.Close()
	if err := bind(agent, file); err != nil {
		return err
	}
	return remountReadOnly(file)
}

// mask covers a directory with an empty one.
func mask(at string) error {
	return unix.Mount("none", at, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=0755")
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", filepath.Base(target), err)
	}
	return nil
}

func remountReadOnly(target string) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &attr)
}

func mkdir(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// flatName turns "/var/lib/dpkg" into "-var-lib-dpkg".
func flatName(path string) string {
	b := []byte(path)
	for i := range b {
		if b[i] == '/' {
			b[i] = '-'
		}
	}
	return string(b)
}
