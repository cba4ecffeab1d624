package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// prepare makes the directory and the disk of an instance and returns its layout, and
// what its guest agent is to be told, for handOver.
func (b *Backend) prepare(ctx context.Context, sb *sandbox.Sandbox) (*Layout, *control.Config, error) {
	dir, err := b.dir(sb.ID)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range []string{
		"", DirBundle, DirState, dirLayers, DirMounts,
		filepath.Join(DirMounts, MountRoot), filepath.Join(DirMounts, "disk"),
	} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, nil, fmt.Errorf("make instance directory: %w", err)
		}
	}
	p := &Layout{ID: sb.ID, Dir: dir, Rootless: b.Rootless(), Linked: sb.Link != nil}
	cfg := agentConfig(sb)
	cfg.Machine = b.machine(sb.ID, sb.Spec.Limits)
	if err := b.addImage(ctx, p, &cfg, sb.Spec, sb.Owner); err != nil {
		return nil, nil, err
	}
	if err := b.addSnapshot(ctx, p, sb.Spec); err != nil {
		return nil, nil, err
	}
	if p.Disk, p.NewDisk, err = b.makeDisk(ctx, dir, sb.Spec.Limits); err != nil {
		return nil, nil, err
	}
	if p.Holder, err = b.opts.Disks.Holder(ctx); err != nil {
		return nil, nil, err
	}
	if p.Workspace, err = b.workspaceDir(sb.Spec.Workspace); err != nil {
		return nil, nil, err
	}
	if p.Mounts, err = b.mounts(sb.Spec.Mounts); err != nil {
		return nil, nil, err
	}
	if err := checkAccepted(append([]Dir{p.Workspace}, p.Mounts...)...); err != nil {
		return nil, nil, err
	}
	p.Tools = slices.DeleteFunc(p.Tools, func(t hostimage.Tool) bool { return p.mountsIn(t.Path) })
	return p, &cfg, nil
}

// mounts resolves what is to be seen besides the workspace. A volume that is
// not there fails the start.
func (b *Backend) mounts(mounts []sandbox.Mount) ([]Dir, error) {
	var dirs []Dir
	for _, m := range mounts {
		d := hostDir(m.Source, access(m.ReadOnly), m.Target)
		var err error
		switch {
		case m.Own:
			d.Mode = modeOwn
			if m.Owner == sandbox.DefaultUser {
				d.UID, d.GID = guestUID, guestGID
			}
		case m.Volume != "":
			if d.Volume, err = b.volume(m.Volume); err == nil {
				d.Volume.Slot, d.Volume.Sub = m.Slot, m.Sub
			}
		default:
			err = d.protectGit()
		}
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, d)
	}
	return dirs, nil
}

func access(readOnly bool) string {
	if readOnly {
		return modeRO
	}
	return modeRW
}

func (b *Backend) volume(id string) (*tree.Tree, error) {
	t, err := tree.Find(b.opts.State, id)
	return &t, err
}

// workspaceDir resolves what is to be seen at /workspace.
func (b *Backend) workspaceDir(w sandbox.Workspace) (d Dir, err error) {
	if w.Mode == sandbox.WorkspaceVolume {
		d = Dir{Mode: access(w.ReadOnly), Target: sandbox.WorkspacePath}
		d.Volume, err = b.volume(w.Volume)
		return d, err
	}
	d = hostDir(w.Source, string(w.Mode), sandbox.WorkspacePath)
	return d, d.protectGit()
}

// addImage resolves the image that spec names into layers, and tells the
// agent what the image wants.
func (b *Backend) addImage(ctx context.Context, p *Layout, cfg *control.Config, spec sandbox.Spec, owner string) error {
	if spec.Image == sandbox.DefaultImage {
		root, err := b.hostImage(ctx)
		if err != nil {
			return err
		}
		p.Lowers, p.Parts = []string{root.Dir}, root.Parts
		for _, m := range root.Masks {
			if !weak.On(weak.MasksOff) {
				p.Masks = append(p.Masks, m.Path)
			}
		}
		p.Tools = toolsOf(owner)
		path, hidden := root.SearchPath(os.Getenv("PATH"), p.Tools)
		if strings.HasPrefix(owner, "uid:") { // a key's owner is not told of this machine's directories
			cfg.NotShown = hidden
		}
		defaultEnv(cfg, "PATH", path)
		for _, t := range p.Tools {
			for name, value := range t.Env {
				defaultEnv(cfg, name, value)
			}
		}
		return nil
	}
	_, digest, ok := strings.Cut(spec.Image, "@")
	if !ok || b.opts.Images == nil {
		return sandbox.Errorf(sandbox.NotFound, "image %q: not one that this daemon has", spec.Image).
			WithHint("carboy image pull %s", spec.Image)
	}
	img, err := b.opts.Images.ByDigest(ctx, digest)
	if err != nil {
		return err
	}
	p.Lowers = img.Layers
	useImage(cfg, img.Config, spec)
	return nil
}

// mountsIn reports whether something is to be mounted at a path or below it.
func (lay *Layout) mountsIn(path string) bool {
	return slices.ContainsFunc(lay.Mounts, func(d Dir) bool {
		return d.Target == path || strings.HasPrefix(d.Target, path+"/")
	})
}

// toolsOf finds the toolchains that an instance of owner's sees. Without root only
// the daemon's own user's can be: others' homes are not its to open.
func toolsOf(owner string) []hostimage.Tool {
	uid, ok := strings.CutPrefix(owner, "uid:")
	if !ok || os.Geteuid() != 0 && owner != ourOwner() {
		return hostimage.Tools("")
	}
	u, err := user.LookupId(uid)
	if err != nil {
		return hostimage.Tools("")
	}
	return hostimage.Tools(u.HomeDir)
}

// Personal implements sandbox.Warmer: whose toolchains are shown has an instance of
// their own.
func (b *Backend) Personal(owner string, spec sandbox.Spec) bool {
	return spec.Image == sandbox.DefaultImage && len(toolsOf(owner)) != len(toolsOf(""))
}

// markSince notes, once, when the workspace was made: not before it can be
// seen, for what the host's owner wrote until then is in the view.
func markSince(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, fileSince), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("note the time: %w", err)
	}
	return f.Close()
}

// makeDisk makes the image of what the instance writes, unless it stands already
// or this machine has no means, and reports whether it did.
func (b *Backend) makeDisk(ctx context.Context, dir string, l sandbox.Limits) (path string, made bool, err error) {
	if b.diskErr != nil {
		return "", false, nil
	}
	path = filepath.Join(dir, fileDisk)
	if _, err := os.Lstat(path); err == nil {
		mended, err := disk.Repair(ctx, path)
		if mended {
			b.opts.Log.Warn("a disk image had errors, and was mended", "path", path)
		}
		return path, false, err
	}
	size := disk.Size{Bytes: l.Disk, Inodes: l.Inodes}
	if err := b.images.Make(ctx, path, size); err != nil {
		return "", false, fmt.Errorf("make disk image: %w", err)
	}
	return path, true, nil
}
