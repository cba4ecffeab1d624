package box

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/hostimage"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Commands' ids inside, and the owner of what a box makes of its own.
const (
	guestUID = 1000
	guestGID = 1000
)

// overlayOptions keep whole copies in the upper layer, so that it can be read
// on its own.
const overlayOptions = "redirect_dir=nofollow,metacopy=off,index=off"

// Shared reports whether d is the host's own tree, which the host may change
// at any time: the guest must not cache it.
func (d Dir) Shared() bool { return d.Mode == "rw" || d.Mode == "ro" }

// Share is d's mount point below the box's mounts: no text of the user's.
func (d Dir) Share() string {
	sum := sha256.Sum256([]byte(d.Target))
	return "share-" + hex.EncodeToString(sum[:8])
}

// Compose builds the box's file system below its mounts, in the mount
// namespace of the calling thread, whose working directory becomes the box's.
func Compose(p *Plan) error {
	if err := os.Chdir(p.Dir); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	c := &composer{plan: p, maps: map[[2]uint32]*os.File{}}
	defer c.close()
	if err := c.mountLayers(p.Disk); err != nil {
		return err
	}
	if err := c.root(); err != nil {
		return err
	}
	if err := c.workspace(p.Workspace); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	for _, d := range p.Mounts {
		if err := c.share(d); err != nil {
			return fmt.Errorf("mount %s: %w", d.Target, err)
		}
		if err := c.mountPoint(d); err != nil {
			return fmt.Errorf("mount %s: %w", d.Target, err)
		}
	}
	if err := c.seeded(); err != nil {
		return err
	}
	if p.Native {
		return c.control()
	}
	return bindControl(p.Agent)
}

type composer struct {
	plan   *Plan
	raw    string // directory of upper layers, owners as they are on disk
	layers string // the same, owners as the box's ids on the host
	lowers int
	maps   map[[2]uint32]*os.File // user namespaces, by the owner that they show as the guest's user
}

func (c *composer) close() {
	for _, f := range c.maps {
		f.Close()
	}
}

// mountLayers makes what the box writes available.
func (c *composer) mountLayers(image string) error {
	var err error
	if c.raw, err = mountRaw(image); err != nil {
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
func mountRaw(image string) (string, error) {
	dir := filepath.Join(DirMounts, "disk")
	if image != "" {
		if _, err := disk.Mount(context.Background(), image, dir, disk.Options{}); err != nil {
			return "", err
		}
		return dir, nil
	}
	return dir, bind(dirLayers, dir)
}

// root lays the image's layers and its parts.
func (c *composer) root() error {
	if err := c.overlay("root", MountRoot, c.plan.Lowers, c.bindMapped); err != nil {
		return err
	}
	for _, part := range c.plan.Parts {
		err := c.overlay("part"+flatName(part.Path), MountRoot+part.Path, []string{part.Source}, c.bindPart)
		if err != nil {
			return err
		}
	}
	for _, path := range c.plan.Masks {
		if err := mask(filepath.Join(DirMounts, MountRoot, path)); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	for _, t := range c.plan.Tools {
		if err := c.tool(t); err != nil {
			return fmt.Errorf("show %s: %w", t.Path, err)
		}
	}
	return nil
}

// tool shows a toolchain of the host at its own path.
func (c *composer) tool(t hostimage.Tool) error {
	rel := t.Path[1:]
	err := c.asGuest(0, func() error {
		if err := c.mkdirInRoot(rel); err != nil {
			return err
		}
		if !strings.HasPrefix(rel, "root/") {
			return nil
		}
		// Commands must get through to it; they can't list what else is there.
		return os.Chmod(filepath.Join(DirMounts, MountRoot, "root"), 0o711)
	})
	if err != nil {
		return err
	}
	at := filepath.Join(DirMounts, fmt.Sprintf("t%d", c.lowers))
	c.lowers++
	if err := mkdir(at); err != nil {
		return err
	}
	src, err := openAccepted(Dir{Source: t.Path, Dev: t.Dev, Ino: t.Ino})
	if err != nil {
		return err
	}
	defer src.Close()
	err = c.bindAs(src, at, guestUID, guestGID, true)
	if errors.Is(err, errNoIDMap) { // its files are nobody's inside, and read by whoever may
		if err = bind(fmt.Sprintf("/proc/self/fd/%d", src.Fd()), at); err == nil {
			err = remountReadOnly(at)
		}
	}
	if err != nil {
		return err
	}
	return c.bindInRoot(at, rel)
}

// bindPart is bindMapped for a directory whose file system may not be able to
// map owners: its files then belong to nobody inside, and are read all the
// same.
func (c *composer) bindPart(source, at string) error {
	err := c.bindMapped(source, at)
	if errors.Is(err, errNoIDMap) {
		return bind(source, at)
	}
	return err
}

// overlay lays a writable layer over lowers, the lowest first, and shows the
// whole at target below the mounts. lowers may be any paths: the options see
// only ours.
func (c *composer) overlay(name, target string, lowers []string, mountLower func(source, at string) error) error {
	var list []string
	for _, source := range slices.Backward(lowers) {
		low := filepath.Join(DirMounts, fmt.Sprintf("l%d", c.lowers))
		c.lowers++
		if err := mkdir(low); err != nil {
			return err
		}
		if err := mountLower(source, low); err != nil {
			return err
		}
		list = append(list, low)
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
	// The kernel writes to the upper layer as whoever mounts.
	err := c.asGuest(0, func() error {
		return unix.Mount("overlay", filepath.Join(DirMounts, target), "overlay", flags, opts)
	})
	if err != nil {
		return fmt.Errorf("mount overlay on %s: %w", target, err)
	}
	return nil
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

// workspace shows d at /workspace.
func (c *composer) workspace(d Dir) error {
	at := filepath.Join(DirMounts, MountRoot, "workspace")
	switch d.Mode {
	case "":
		return nil
	case "private":
		dir := filepath.Join(c.raw, "workspace")
		if err := mkdir(dir); err != nil {
			return err
		}
		if err := os.Chown(dir, guestUID, guestGID); err != nil {
			return err
		}
		return bind(filepath.Join(c.layers, "workspace"), at)
	case "cow":
		if weak.On(weak.WorkspaceDirect) {
			return c.attach(Dir{Mode: "rw", Source: d.Source, Dev: d.Dev, Ino: d.Ino, UID: d.UID, GID: d.GID}, at)
		}
		if exists(filepath.Join(c.raw, "workspace", copyManifest)) {
			return c.copied(d, at) // as the first start found
		}
		if c.plan.Rootless {
			// The overlay's own marks would be attributes that the guest can
			// forge: see package workspace.
			return c.copied(d, at)
		}
		err := c.overlay("workspace", MountRoot+"/workspace", []string{d.Source},
			func(_, low string) error { return c.attach(d, low) })
		if errors.Is(err, errNoIDMap) {
			return c.copied(d, at)
		}
		return err
	}
	if err := c.share(d); err != nil || !c.plan.Native {
		return err
	}
	return c.bindInRoot(filepath.Join(DirMounts, d.Share()), "workspace")
}

// share shows the host's own tree at a mount point of its own.
func (c *composer) share(d Dir) error {
	at := filepath.Join(DirMounts, d.Share())
	if err := mkdir(at); err != nil {
		return err
	}
	if err := c.attach(d, at); err != nil {
		return err
	}
	if weak.On(weak.GitUnpinned) {
		return nil
	}
	for _, pr := range d.Protect {
		if err := c.protect(at, pr); err != nil {
			return err
		}
	}
	return nil
}

// mountPoint makes a directory for a further mount in the box's root, and on
// the host's own kernel shows d there. The root is what the guest wrote,
// symlinks and all: stay beneath it.
func (c *composer) mountPoint(d Dir) error {
	rel, err := filepath.Rel("/", d.Target)
	if err != nil {
		return err
	}
	err = c.asGuest(0, func() error { return c.mkdirInRoot(rel) })
	if err != nil || !c.plan.Native {
		return err
	}
	return c.bindInRoot(filepath.Join(DirMounts, d.Share()), rel)
}

func (c *composer) mkdirInRoot(rel string) error {
	root, err := os.OpenRoot(filepath.Join(DirMounts, MountRoot))
	if err != nil {
		return err
	}
	defer root.Close()
	return root.MkdirAll(rel, 0o755)
}

// bindInRoot shows source at a directory of the box's root.
func (c *composer) bindInRoot(source, rel string) error {
	fd, err := openBeneath(filepath.Join(DirMounts, MountRoot), rel)
	if err != nil {
		return fmt.Errorf("open mount point: %w", err)
	}
	defer unix.Close(fd)
	return unix.Mount(source, fmt.Sprintf("/proc/self/fd/%d", fd), "", unix.MS_BIND|unix.MS_REC, "")
}

// asGuest runs f with an id of the box as the owner of files that it makes,
// and root's rights all the same: a mapped mount takes nothing from ids that
// it does not map, root's own among them.
func (c *composer) asGuest(id uint32, f func() error) error {
	if c.plan.Base == 0 {
		return f()
	}
	defer unix.Setfsuid(0)
	defer unix.Setfsgid(0)
	as := int(c.plan.Base + id)
	if err := errors.Join(unix.Setfsgid(as), unix.Setfsuid(as), allCapabilities()); err != nil {
		return err
	}
	return f()
}

// allCapabilities makes effective what the calling thread is permitted: the
// kernel takes those over files away with the file system's user id.
func allCapabilities() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	data[0].Effective, data[1].Effective = data[0].Permitted, data[1].Permitted
	return unix.Capset(&hdr, &data[0])
}

// control shows the control directory in the box's root, owned by the box's
// root, with what the guest agent needs of control groups in it.
func (c *composer) control() error {
	at := filepath.Join(DirMounts, MountControl)
	if err := mkdir(at); err != nil {
		return err
	}
	if err := c.bindMapped(DirControl, at); err != nil {
		return fmt.Errorf("show the control directory: %w", err)
	}
	for _, sh := range c.plan.Shown {
		if err := showInControl(at, sh); err != nil {
			return fmt.Errorf("show %s: %w", sh.Source, err)
		}
	}
	return c.bindInRoot(at, GuestControl[1:])
}

// showInControl binds a file or a directory of the host below the control
// directory's mount.
func showInControl(at string, sh Shown) error {
	st, err := os.Stat(sh.Source)
	if err != nil {
		return err
	}
	point := filepath.Join(DirControl, sh.Name) // the same directory, its owners not mapped
	if st.IsDir() {
		err = mkdir(point)
	} else {
		err = os.WriteFile(point, nil, 0o600)
	}
	if err != nil {
		return err
	}
	return bind(sh.Source, filepath.Join(at, sh.Name))
}

// seeded shows what no box is to see, where a test asks for that.
func (c *composer) seeded() error {
	at := filepath.Join(DirMounts, MountRoot, "mnt")
	if weak.On(weak.HostRootShown) {
		return bind("/", at)
	}
	if weak.On(weak.RunShown) {
		return bind("/run", at)
	}
	return nil
}

// bindControl shows the control directory, and the agent's binary in it.
func bindControl(agent string) error {
	at := filepath.Join(DirMounts, MountControl)
	if err := mkdir(at); err != nil {
		return err
	}
	if err := bind(DirControl, at); err != nil {
		return err
	}
	file := filepath.Join(at, FileAgent)
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
