package instance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// changesOrder is what the daemon hands to the process that reads an instance's
// layers.
type changesOrder struct {
	Dir      string `json:"dir"`
	Disk     string `json:"disk"`
	Holder   string `json:"holder"` // as Layout has it
	Rootless bool   `json:"rootless"`
	// Base is what the workspace is a view of: a directory of a user, which may have what only others
	// may read.
	Base Dir `json:"base"`
	// Points are the directories of the workspace that others are mounted on, and those that lead to them.
	Points  []string               `json:"points"`
	Mark    string                 `json:"mark"` // the run of the instance that has the view mounted; "": none
	Options sandbox.ChangesOptions `json:"options"`
}

// Changes implements sandbox.Backend. The layers are read by a process with a
// mount namespace of its own: a running instance's disk is mounted there a second
// time, from the same device.
func (b *Backend) Changes(ctx context.Context, sb *sandbox.Sandbox, opts sandbox.ChangesOptions, w io.Writer) error {
	dir, err := b.dir(sb.ID)
	if err != nil {
		return err
	}
	p := changesOrder{
		Dir: dir, Rootless: b.Rootless(), Options: opts,
		Base: hostDir(sb.Spec.Workspace.Source, modeCOW, sandbox.WorkspacePath),
	}
	if p.Disk, p.Holder, err = b.diskOf(ctx, dir); err != nil {
		return err
	}
	p.Points = (&Layout{Mounts: targetsOf(sb.Spec.Mounts)}).mountPoints()
	if bx, err := readRecord(dir); err == nil && bx.alive() {
		p.Mark = bx.mark()
		if !b.wall.OwnCommands {
			if err := b.agent(sb.ID).Sync(ctx); err != nil {
				b.opts.Log.Warn("guest did not write back before its changes were read", "id", sb.ID, "err", err)
			}
		}
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := b.roles.Run(ctx, roleChanges, bytes.NewReader(raw), w); err != nil {
		return fmt.Errorf("read the changes of the workspace: %w", err)
	}
	return nil
}

// changesMain reads a changesOrder and writes the changes.
func changesMain(in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	var p changesOrder
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if err := role.BecomeReader(p.Rootless); err != nil {
		return err
	}
	layers, err := openLayers(p.Dir, p.Disk, p.Holder)
	if err != nil {
		return err
	}
	defer layers.Close()
	opts := workspace.Options{ChangesOptions: p.Options}
	if st, err := os.Stat(fileSince); err == nil {
		opts.Since = st.ModTime()
	}
	if isCopy(layers) {
		opts.Since = time.Time{} // a copy knows when it was begun
		return copyChanges(layers, out, opts)
	}
	upper, err := layers.Open(upperOfView, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, os.ErrNotExist) {
		return errors.New("the workspace is not a copy-on-write view")
	}
	if err != nil {
		return err
	}
	defer upper.Close()
	opts.Mark = p.Mark
	src := workspace.OverlayUpper(upper, p.below(), readerOf(p.Base.UID != 0))
	return workspace.WriteChanges(context.Background(), out, src, opts)
}

// targetsOf is where mounts are, and nothing of what they show.
func targetsOf(mounts []sandbox.Mount) []Dir {
	var dirs []Dir
	for _, m := range mounts {
		dirs = append(dirs, Dir{Target: m.Target})
	}
	return dirs
}

// below is the directory that a view is of, where what was renamed in the view still lies.
func (p *changesOrder) below() *workspace.Below {
	low := &workspace.Below{Open: func() (*os.File, error) { return openAccepted(p.Base) }, Points: p.Points}
	if !p.Rootless {
		low.As = readAs(p.Base.UID, p.Base.GID)
	}
	return low
}

// readerOf is who may read what is in a view's upper layer: the owner of the directory that the view
// is of, who is the guest's user there. others says that this is not root, who may read everything.
func readerOf(others bool) *rights.Reader {
	if !others {
		return nil
	}
	return &rights.Reader{UID: guestUID, GID: guestGID}
}

func copyChanges(layers *beneath.Dir, out io.Writer, opts workspace.Options) error {
	tree, err := layers.Open(layerWorkspace+"/"+copyTree, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer tree.Close()
	manifest, err := layers.OpenRegular(layerWorkspace + "/" + copyManifest)
	if err != nil {
		return err
	}
	defer manifest.Close()
	src, err := workspace.Copy(tree, manifest)
	if err != nil {
		return err
	}
	return workspace.WriteChanges(context.Background(), out, src, opts)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// The names by which this binary is executed again.
const (
	roleChanges = "carboy-box-changes"
	roleSave    = "carboy-box-save"
)

// Roles are those that walls have in common.
func Roles() role.Table {
	return role.Table{
		roleChanges: func() error { return changesMain(os.Stdin, os.Stdout) },
		roleSave:    func() error { return saveMain(os.Stdin, os.Stdout) },
		roleWhole:   func() error { return wholeMain(os.Stdin, os.Stdout) },
		roleDisks:   disksMain,

		roleDiskFiles: func() error { return diskFilesMain(os.Stdin, os.Stdout) },
	}
}

// openLayers goes to an instance's directory and mounts its layers there, in a
// mount namespace of this process's own.
func openLayers(dir, disk, holder string) (*beneath.Dir, error) {
	if err := os.Chdir(dir); err != nil {
		return nil, err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	return mountRaw(&Layout{ID: filepath.Base(dir), Disk: disk, Holder: holder})
}
