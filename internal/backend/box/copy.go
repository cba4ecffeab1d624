package box

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// Names below the workspace's layer where it is a copy.
const (
	copyTree     = "copy"
	copyManifest = "manifest"
)

// copied shows d at a mount point as a copy of its own, made on the first
// start: for file systems whose owners can't be mapped.
func (c *composer) copied(d Dir, at string) error {
	dir := filepath.Join(c.raw, "workspace")
	manifest := filepath.Join(dir, copyManifest)
	if !exists(manifest) {
		if err := populate(d, dir); err != nil {
			return errors.Join(fmt.Errorf("copy %s: %w", d.Source, err), os.RemoveAll(dir))
		}
	}
	c.plan.Instead = "/workspace is a copy: the file system of the host's tree can't map its owner"
	return bind(filepath.Join(c.layers, "workspace", copyTree), at)
}

// populate copies the host's directory. The manifest gets its name last: it
// says that the copy is whole.
func populate(d Dir, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, copyTree), 0o755); err != nil {
		return err
	}
	src, err := openAccepted(d)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Open(filepath.Join(dir, copyTree))
	if err != nil {
		return err
	}
	defer dst.Close()
	f, err := os.OpenFile(filepath.Join(dir, copyManifest+".new"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<16)
	opts := workspace.PopulateOptions{UID: guestUID, GID: guestGID, Manifest: w}
	if d.UID != 0 {
		opts.ReadAs = &workspace.Identity{UID: d.UID, GID: d.GID}
	}
	_, err = workspace.Populate(context.Background(), src, dst, opts)
	if err := errors.Join(err, w.Flush(), f.Sync(), f.Close(), dst.Chown(guestUID, guestGID)); err != nil {
		return err
	}
	return os.Rename(filepath.Join(dir, copyManifest+".new"), filepath.Join(dir, copyManifest))
}
