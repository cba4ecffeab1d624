package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Commands' ids inside, and the owner of what an instance makes of its own.
const (
	guestUID = 1000
	guestGID = 1000
)

// overlayOptions keep whole copies of files in the upper layer. A directory of a lower layer is
// not renamed, so that an upper layer can be read on its own and be a lower one elsewhere; and
// no mark in a lower layer leads the kernel to another directory.
const overlayOptions = "redirect_dir=nofollow,metacopy=off,index=off"

// viewOptions are those of the view of a user's directory, in which directories are renamed: what
// reads its upper layer follows them. In that directory itself, which is the lowest layer, the
// kernel heeds no marks.
const viewOptions = "redirect_dir=on,metacopy=off,index=off"

// Apart reports whether d is a mount of its own inside: the guest caches none
// of it, for the host, or another instance, may change it at any time.
func (d Dir) Apart() bool { return d.Mode == modeRW || d.Mode == modeRO || d.Mode == modeOwn }

// Share is d's mount point below the instance's mounts: no text of the user's.
func (d Dir) Share() string {
	sum := sha256.Sum256([]byte(d.Target))
	return "share-" + hex.EncodeToString(sum[:8])
}

// Compose builds the instance's file system below its mounts, in the mount
// namespace of the calling thread, whose working directory becomes the instance's.
func Compose(p *Layout) error {
	if err := os.Chdir(p.Dir); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	c := &composer{layout: p, maps: map[[2]uint32]*os.File{}}
	defer c.close()
	if err := c.mountLayers(); err != nil {
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
	return errors.Join(c.groups(), c.shareControl())
}

type composer struct {
	layout *Layout
	raw    *beneath.Dir // upper layers, owners as they are on disk
	layers *beneath.Dir // the same, owners as the instance's ids on the host
	lowers int
	maps   map[[2]uint32]*os.File // user namespaces, by the owner that they show as the guest's user
}

func (c *composer) close() {
	for _, d := range []*beneath.Dir{c.raw, c.layers} {
		if d != nil {
			d.Close()
		}
	}
	for _, f := range c.maps {
		f.Close()
	}
}

// root lays the image's layers and its parts.
func (c *composer) root() error {
	if err := c.overlay(layerRoot, MountRoot, c.layout.Lowers, c.bindMapped); err != nil {
		return err
	}
	for _, part := range c.layout.Parts {
		err := c.overlay(partName(part.Path), MountRoot+part.Path, []string{part.Source}, c.bindPart)
		if err != nil {
			return err
		}
	}
	for _, path := range c.layout.Masks {
		if err := mask(path); err != nil {
			return fmt.Errorf("cover %s: %w", path, err)
		}
	}
	for _, t := range c.layout.Tools {
		if err := c.tool(t); err != nil {
			return fmt.Errorf("show %s: %w", t.Path, err)
		}
	}
	return nil
}

// tool shows a toolchain of the host at its own path.
func (c *composer) tool(t hostimage.Tool) error {
	rel := t.Path[1:]
	err := c.asGuest(func() error {
		if err := c.mkdirInRoot(rel); err != nil {
			return err
		}
		if !strings.HasPrefix(rel, "root/") {
			return nil
		}
		// Commands must get through to it; they can't list what else is there.
		return chmodInRoot("root", 0o711)
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
	if errors.Is(err, errNoIDMap) { // its files are nobody's inside, and read by those who may
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

// workspace shows d at /workspace, and makes ready what is mounted below it.
func (c *composer) workspace(d Dir) error {
	var err error
	switch d.Mode {
	case "":
		return nil
	case modePrivate:
		err = c.private()
	case modeCOW:
		err = c.view(d)
	default:
		return c.sharedWorkspace(d)
	}
	if err != nil {
		return err
	}
	root, err := openRoot()
	if err != nil {
		return err
	}
	defer root.Close()
	at, err := root.OpenDir("workspace")
	if err != nil {
		return err
	}
	defer at.Close()
	return c.holdMountPoints(at)
}

// private shows the instance's own workspace, over what was saved of one.
func (c *composer) private() error {
	saved, err := c.saved(layerOver)
	if err != nil {
		return err
	}
	if len(saved) > 0 {
		return c.overlay(layerOver, MountRoot+"/workspace", nil, nil)
	}
	if err := c.raw.MkdirAll("workspace", 0o755); err != nil {
		return err
	}
	if err := c.raw.Chown("workspace", guestUID, guestGID); err != nil {
		return err
	}
	return c.layerInRoot("workspace", "workspace")
}

// layerInRoot shows a directory of the instance's layers at one of its root.
func (c *composer) layerInRoot(name, rel string) error {
	dir, err := c.layers.OpenDir(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return c.bindInRoot(dir.Path(), rel)
}

// view shows a copy-on-write view of d.
func (c *composer) view(d Dir) error {
	if weak.On(weak.WorkspaceDirect) {
		at := filepath.Join(DirMounts, MountRoot, "workspace")
		return c.attach(Dir{Mode: modeRW, Source: d.Source, Dev: d.Dev, Ino: d.Ino, UID: d.UID, GID: d.GID}, at)
	}
	if isCopy(c.raw) {
		return c.copied(d) // as the first start found
	}
	if c.layout.Rootless {
		// The overlay's own marks would be attributes that the guest can
		// forge: see package workspace.
		return c.copied(d)
	}
	lowers, err := c.viewLayers(d)
	if errors.Is(err, errNoIDMap) {
		return c.copied(d)
	}
	if err != nil {
		return err
	}
	if upper, err := c.raw.Open(upperOfView, unix.O_RDONLY|unix.O_DIRECTORY); err == nil { // or this is the first start
		defer upper.Close()
		if err := readyUpper(upper); err != nil {
			return err
		}
	}
	return c.overlay(layerWorkspace, MountRoot+"/workspace", lowers, bind)
}

// viewLayers shows what lies below a view of d, the lowest layer first.
func (c *composer) viewLayers(d Dir) ([]string, error) {
	low := filepath.Join(DirMounts, "view")
	if err := mkdir(low); err != nil {
		return nil, err
	}
	if err := c.attach(d, low); err != nil {
		return nil, err
	}
	lowers := []string{low}
	scaffold, err := c.scaffoldOf(low)
	if err != nil {
		return nil, err
	}
	if scaffold != "" { // or else what is mounted on would be a change
		lowers = append(lowers, scaffold)
	}
	return lowers, nil
}

// sharedWorkspace shows a tree of the host's, or a volume.
func (c *composer) sharedWorkspace(d Dir) error {
	at := filepath.Join(DirMounts, d.Share())
	if err := c.share(d); err != nil {
		return err
	}
	if d.Mode == modeRO {
		if err := c.overlayMountPoints(at); err != nil {
			return err
		}
	}
	root, err := beneath.OpenDir(at)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := c.holdMountPoints(root); err != nil || !c.layout.Native {
		return err
	}
	return c.bindInRoot(at, "workspace")
}

// asGuest runs f with the instance's root as the owner of files that it makes, and
// root's rights all the same: a mapped mount takes nothing from ids that
// it does not map, root's own among them.
func (c *composer) asGuest(f func() error) error {
	if c.layout.Base == 0 {
		return f()
	}
	return asOwner(int(c.layout.Base), f)
}

// asOwner runs f with an id of the host as the owner of files that it makes.
func asOwner(as int, f func() error) (err error) {
	runtime.LockOSThread() // ids are a thread's
	if err := rights.OfFiles(uint32(as), uint32(as)); err != nil {
		return err // the thread is not given back
	}
	defer func() {
		back := rights.OfFiles(0, 0)
		if err = errors.Join(err, back); back == nil {
			runtime.UnlockOSThread()
		}
	}()
	// The kernel has taken those over files away with the user.
	held, err := rights.Held()
	if err != nil {
		return err
	}
	held.Effective = held.Permitted
	if err := held.Set(); err != nil {
		return err
	}
	return f()
}

// seeded shows what no instance is to see, where a test asks for that.
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

// mask covers a directory of the instance's root with an empty one.
func mask(path string) error {
	at, done, err := pointInRoot(path)
	if err != nil {
		return err
	}
	defer done()
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
