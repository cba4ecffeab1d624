package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// belowWorkspace returns where in the workspace a mount lies, if it does.
func (d Dir) belowWorkspace() (rel string, ok bool) {
	return strings.CutPrefix(d.Target, sandbox.WorkspacePath+"/")
}

// mountPoints lists the directories of the workspace on which mounts lie and those
// that lead to them, relative to it, parents first.
func (lay *Layout) mountPoints() []string {
	var list []string
	for _, d := range lay.Mounts {
		rel, ok := d.belowWorkspace()
		for ; ok && rel != "."; rel = path.Dir(rel) {
			list = append(list, rel)
		}
	}
	slices.Sort(list) // a path stands before what it begins
	return slices.Compact(list)
}

// holdMountPoints makes the mount points below root, the workspace, and makes a mount of
// each: then no command can rename one away, or put another thing in its place.
func (c *composer) holdMountPoints(root *beneath.Dir) error {
	for _, rel := range c.layout.mountPoints() {
		if err := c.holdMountPoint(root, workspace.Protect{Path: rel, Dir: true}); err != nil {
			return inTheWay(root, rel, sandbox.WorkspacePath, err)
		}
	}
	return nil
}

// inTheWay is why no mount point can be made at rel below root, which commands see as
// shown: where a file or a link lies there or on the way, the error is one for users.
func inTheWay(root *beneath.Dir, rel, shown string, err error) error {
	for end := 0; end < len(rel); {
		if i := strings.IndexByte(rel[end+1:], '/'); i >= 0 {
			end += 1 + i
		} else {
			end = len(rel)
		}
		fi, serr := root.Lstat(rel[:end])
		if serr != nil {
			break
		}
		if fi.IsDir() {
			continue
		}
		what := "a file"
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			what = "a symbolic link"
		case !fi.Mode().IsRegular():
			what = "no directory"
		}
		e := sandbox.Errorf(sandbox.Invalid, "mount %s: %s is %s inside, and a mount needs a directory", path.Join(shown, rel), path.Join(shown, rel[:end]), what).
			WithHint("choose a place that is free or a directory, such as /mnt/cache")
		e.Err = err
		return e
	}
	return fmt.Errorf("mount point %s: %w", path.Join(shown, rel), err)
}

func (c *composer) holdMountPoint(root *beneath.Dir, pr workspace.Protect) error {
	if err := c.makeBeneath(root, pr); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	if _, err := statBeneath(root, pr.Path); err != nil {
		return err
	}
	if weak.On(weak.PointUnpinned) {
		return nil
	}
	return pin(root, pr)
}

// statBeneath looks at a directory below root to which no link leads.
func statBeneath(root *beneath.Dir, rel string) (st unix.Stat_t, err error) {
	if st, err = root.Stat(rel); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	return st, err
}

// scaffoldOf is scaffold for the directory at a mount point of ours.
func (c *composer) scaffoldOf(at string) (string, error) {
	root, err := beneath.OpenDir(at)
	if err != nil {
		return "", err
	}
	defer root.Close()
	return c.scaffold(root)
}

// scaffold returns a tree of the points that root lacks, and of those around
// them, which look as they do there: to be laid over root where that is not to
// be written to. It is "" where root lacks none.
func (c *composer) scaffold(root *beneath.Dir) (string, error) {
	points := c.layout.mountPoints()
	if !slices.ContainsFunc(points, func(rel string) bool {
		_, err := statBeneath(root, rel)
		return errors.Is(err, unix.ENOENT)
	}) {
		return "", nil
	}
	at := filepath.Join(DirMounts, "points")
	if err := mkdir(at); err != nil {
		return "", err
	}
	if err := unix.Mount("none", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4m,mode=0755"); err != nil {
		return "", err
	}
	tree, err := beneath.OpenDir(at)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	for _, rel := range append([]string{"."}, points...) {
		if err := c.scaffoldDir(root, tree, rel); err != nil {
			return "", inTheWay(root, rel, sandbox.WorkspacePath, err)
		}
	}
	return at, nil
}

// scaffoldDir makes one directory of a scaffold: as it is below root, or the
// guest's user's.
func (c *composer) scaffoldDir(root, tree *beneath.Dir, rel string) error {
	st, err := statBeneath(root, rel)
	if errors.Is(err, unix.ENOENT) {
		err = nil
		st.Mode, st.Uid, st.Gid = 0o755, c.layout.Base+guestUID, c.layout.Base+guestGID
	}
	if err != nil {
		return err
	}
	if err := tree.MkdirAll(rel, 0o755); err != nil {
		return err
	}
	return errors.Join(tree.Chown(rel, int(st.Uid), int(st.Gid)), tree.Chmod(rel, st.Mode&0o1777))
}

// overlayMountPoints lays the mount points that a read-only workspace lacks over it, where
// it is mounted: nothing is written to the tree itself.
func (c *composer) overlayMountPoints(at string) error {
	scaffold, err := c.scaffoldOf(at)
	if scaffold == "" || err != nil {
		return err
	}
	opts := fmt.Sprintf("lowerdir=%s:%s,%s", scaffold, at, overlayOptions)
	if c.layout.Rootless {
		opts += ",userxattr"
	}
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
	if err := unix.Mount("overlay", at, "overlay", flags, opts); err != nil {
		return fmt.Errorf("it is read-only, lacks %s, and nothing can be laid over it (%w): make that directory, or choose cow",
			strings.Join(c.layout.mountPoints(), ", "), err)
	}
	c.layout.Instead = "/workspace is the tree, read-only, under an overlay that has the mount points which the tree lacks: " +
		"what is added to the tree later is seen unless it was looked for before"
	return nil
}

// own shows a directory of the instance's own disk, which belongs to its root or its user.
func (c *composer) own(d Dir, at string) error {
	dir, err := c.ownDir(d)
	if err != nil {
		return err
	}
	defer dir.Close()
	return bind(dir.Path(), at)
}

func (c *composer) ownDir(d Dir) (*beneath.Dir, error) {
	rel := dirOwn + "/" + d.Share()
	err := c.raw.MkdirAll(rel, 0o755)
	if err == nil && d.UID != 0 {
		err = c.raw.Chown(rel, int(d.UID), int(d.GID))
	}
	if err != nil {
		return nil, err
	}
	return c.layers.OpenDir(rel)
}
