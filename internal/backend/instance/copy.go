package instance

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// Names below the workspace's layer where it is a copy.
const (
	copyTree     = "copy"
	copyManifest = "manifest"
)

// isCopy reports whether the workspace of an instance's disk is a whole copy.
func isCopy(disk *beneath.Dir) bool {
	_, err := disk.Stat(layerWorkspace + "/" + copyManifest)
	return err == nil
}

// copied shows d at /workspace as a copy of its own, made on the first start:
// for file systems whose owners can't be mapped.
func (c *composer) copied(d Dir) error {
	if !isCopy(c.raw) {
		if err := populate(d, c.raw, c.readAs(d), c.layout.Copied); err != nil {
			return errors.Join(fmt.Errorf("copy %s: %w", d.Source, err), c.raw.Remove(context.Background(), layerWorkspace))
		}
	}
	c.layout.Instead = "/workspace is a copy: the file system of the host's tree can't map its owner"
	return c.layerInRoot(layerWorkspace+"/"+copyTree, "workspace")
}

// readAs is with whose rights d is copied.
func (c *composer) readAs(d Dir) *workspace.Identity {
	return workspace.OwnerOf(c.layout.Rootless, workspace.Identity{UID: guestUID, GID: guestGID}, workspace.Identity{UID: d.UID, GID: d.GID})
}

// populate copies the host's directory.
func populate(d Dir, disk *beneath.Dir, as *workspace.Identity, progress func(sandbox.Copied)) error {
	if err := disk.Remove(context.Background(), layerWorkspace); err != nil {
		return err
	}
	if err := disk.MkdirAll(layerWorkspace+"/"+copyTree, 0o755); err != nil {
		return err
	}
	src, err := openAccepted(d)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := disk.Open(layerWorkspace+"/"+copyTree, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer dst.Close()
	at, err := disk.OpenDir(layerWorkspace)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := dst.Chown(guestUID, guestGID); err != nil {
		return err
	}
	opts := workspace.PopulateOptions{UID: guestUID, GID: guestGID, ReadAs: as, Progress: progress}
	_, err = workspace.PopulateWith(context.Background(), src, dst, at, copyManifest, opts)
	return err
}
