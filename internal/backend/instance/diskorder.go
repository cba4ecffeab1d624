package instance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// diskOrder is what the daemon hands to the process that looks at the disk of an instance
// that does not run.
type diskOrder struct {
	Dir      string      `json:"dir"`
	Disk     string      `json:"disk"` // as Layout has it
	Rootless bool        `json:"rootless"`
	Do       string      `json:"do"` // one of the following
	Path     string      `json:"path"`
	Recurse  bool        `json:"recurse"`
	MaxBytes int64       `json:"max_bytes"`
	Mounts   []diskMount `json:"mounts"`
	Others   bool        `json:"others"` // an export is for a user whose view may have what only others may read
}

// What such a process does.
const (
	diskList   = "list"
	diskRead   = "read"
	diskExport = "export"
	diskScrub  = "scrub"
)

// diskMount is a place inside, and the layers of what was seen there.
type diskMount struct {
	Path   string      `json:"path"`
	Layers []diskLayer `json:"layers"` // the topmost first
	Note   string      `json:"note"`   // why nothing is to be seen, or less than was
}

// diskLayer is a directory of the instance's disk, or one of the host.
type diskLayer struct {
	Own string `json:"own"` // below the disk's root; "": of the host
	// Whole: where it is there, nothing that follows counts.
	Whole bool `json:"whole"`
	Host  Dir  `json:"host"`
	// Reader: it is read with the rights of Host's owner, not with ours.
	Reader bool `json:"reader"`
	// Others: it is the upper layer of a view of a user's directory, which may have what only others may
	// read.
	Others bool `json:"others"`
}

// ListDisk implements sandbox.DiskFiles. The layers are read, without a mount, by a process of
// its own.
func (b *Backend) ListDisk(ctx context.Context, sb *sandbox.Sandbox, path string, recursive bool, w io.Writer) error {
	return b.onDisk(ctx, sb, diskOrder{Do: diskList, Path: path, Recurse: recursive}, w)
}

// ReadDisk implements sandbox.DiskFiles, as ListDisk does.
func (b *Backend) ReadDisk(ctx context.Context, sb *sandbox.Sandbox, path string, maxBytes int64, w io.Writer) error {
	return b.onDisk(ctx, sb, diskOrder{Do: diskRead, Path: path, MaxBytes: maxBytes}, w)
}

// ExportDisk implements sandbox.DiskFiles. What it writes is a copy, scrubbed on the way.
func (b *Backend) ExportDisk(ctx context.Context, sb *sandbox.Sandbox, w io.Writer) error {
	return b.onDisk(ctx, sb, diskOrder{Do: diskExport}, w)
}

// ScrubDisk implements sandbox.DiskFiles.
func (b *Backend) ScrubDisk(ctx context.Context, sb *sandbox.Sandbox, progress func(sandbox.DiskStep)) error {
	o := diskOrder{Do: diskScrub}
	if err := b.locateDisk(sb, &o); err != nil {
		return err
	}
	return b.roles.AskNews(ctx, roleDiskFiles, o, nil, nil, func(raw json.RawMessage) {
		var s sandbox.DiskStep
		if json.Unmarshal(raw, &s) == nil {
			progress(s)
		}
	})
}

func (b *Backend) onDisk(ctx context.Context, sb *sandbox.Sandbox, o diskOrder, w io.Writer) error {
	if err := b.locateDisk(sb, &o); err != nil {
		return err
	}
	if o.Do == diskList || o.Do == diskRead {
		o.Mounts = b.seenBy(ctx, sb)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return b.roles.Run(ctx, roleDiskFiles, bytes.NewReader(raw), w)
}

// locateDisk finds where the disk of an instance is.
func (b *Backend) locateDisk(sb *sandbox.Sandbox, o *diskOrder) error {
	dir, err := b.dir(sb.ID)
	if err != nil {
		return err
	}
	if !exists(filepath.Join(dir, fileSince)) {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s: there is nothing of it yet", sb.Spec.Name)
	}
	o.Dir, o.Rootless = dir, b.Rootless()
	o.Others = sb.Spec.Workspace.Mode == sandbox.WorkspaceCOW && sb.Spec.Workspace.Source.UID != 0 && sb.Owner != ourOwner()
	if image := filepath.Join(dir, fileDisk); exists(image) {
		o.Disk = image
	}
	if o.Disk == "" && (o.Do == diskExport || o.Do == diskScrub) {
		return sandbox.Errorf(sandbox.Unsupported, "sandbox %s: its disk is a directory of this machine, no image", sb.Spec.Name).
			WithHint("carboy snapshot create %s keeps what it wrote; carboy disk read has single files", sb.Spec.Name)
	}
	return nil
}

// seenBy is what an instance sees, as Compose makes it, in an order that a process can read
// layer by layer.
func (b *Backend) seenBy(ctx context.Context, sb *sandbox.Sandbox) []diskMount {
	p := &Layout{ID: sb.ID}
	cfg := agentConfig(sb) // of no use here
	root := diskMount{Path: "/", Layers: []diskLayer{{Own: layerRoot + "/upper"}}}
	if err := b.addImage(ctx, p, &cfg, sb.Spec, sb.Owner); err != nil {
		root.Note = fmt.Sprintf("the image %s is not at hand, and what it has is left out: %v", sb.Spec.Image, err)
	}
	if err := b.addSnapshot(ctx, p, sb.Spec); err != nil {
		root.Note = fmt.Sprintf("the snapshot %s is not at hand, and what it has is left out: %v", sb.Spec.Snapshot, err)
	}
	root.Layers = append(root.Layers, p.savedLayers(layerRoot)...)
	for _, l := range slices.Backward(p.Lowers) {
		root.Layers = append(root.Layers, diskLayer{Host: Dir{Source: l}})
	}
	mounts := []diskMount{root, {Path: "/proc"}, {Path: "/sys"}, {Path: "/dev"}}
	for _, part := range p.Parts {
		m := diskMount{Path: part.Path, Layers: []diskLayer{{Own: partName(part.Path) + "/upper"}}}
		m.Layers = append(m.Layers, p.savedLayers(partName(part.Path))...)
		m.Layers = append(m.Layers, diskLayer{Host: Dir{Source: part.Source, UID: nobody, GID: nobody}, Reader: true})
		mounts = append(mounts, m)
	}
	for _, mask := range p.Masks {
		mounts = append(mounts, diskMount{Path: mask})
	}
	for _, t := range p.Tools {
		if !(&Layout{Mounts: hostMounts(sb)}).mountsIn(t.Path) {
			mounts = append(mounts, diskMount{Path: t.Path, Note: "it is a directory of the host, shown read-only"})
		}
	}
	mounts = append(mounts, p.seenWorkspace(sb.Spec.Workspace))
	for _, m := range sb.Spec.Mounts {
		mounts = append(mounts, seenMount(m))
	}
	return mounts
}

// nobody is the owner of no file: who reads as one reads what everybody may.
const nobody = 65534

func hostMounts(sb *sandbox.Sandbox) (dirs []Dir) {
	for _, m := range sb.Spec.Mounts {
		dirs = append(dirs, Dir{Target: m.Target})
	}
	return dirs
}

// savedLayers are the directories of snapshots' layers of one overlay, the topmost first.
func (lay *Layout) savedLayers(name string) (list []diskLayer) {
	for _, dir := range slices.Backward(lay.Saved) {
		if at := filepath.Join(dir, name); exists(at) {
			list = append(list, diskLayer{Host: Dir{Source: at}})
		}
	}
	return list
}

// seenWorkspace is what was seen at /workspace.
func (lay *Layout) seenWorkspace(w sandbox.Workspace) diskMount {
	m := diskMount{Path: sandbox.WorkspacePath}
	switch w.Mode {
	case sandbox.WorkspacePrivate:
		if saved := lay.savedLayers(layerWorkspace); len(saved) > 0 {
			m.Layers = append([]diskLayer{{Own: layerOver + "/upper"}}, saved...)
			break
		}
		m.Layers = []diskLayer{{Own: layerWorkspace, Whole: true}}
	case sandbox.WorkspaceCOW:
		m.Layers = []diskLayer{
			{Own: path.Join(layerWorkspace, copyTree), Whole: true},
			{Own: upperOfView, Others: w.Source.UID != 0},
			{Host: hostDir(w.Source, modeCOW, sandbox.WorkspacePath), Reader: true},
		}
	case sandbox.WorkspaceVolume:
		m.Note = "it is the volume " + w.Volume + ", which is no part of this disk"
	default:
		m.Note = fmt.Sprintf("it is the directory %s of the host, which is no part of this disk", w.Source.Path)
	}
	return m
}

// seenMount is what was seen where something is mounted.
func seenMount(m sandbox.Mount) diskMount {
	d := diskMount{Path: m.Target}
	switch {
	case m.Own:
		d.Layers = []diskLayer{{Own: path.Join(dirOwn, Dir{Target: m.Target}.Share()), Whole: true}}
	case m.Volume != "":
		d.Note = "it is the volume " + m.Volume + ", which is no part of this disk"
	default:
		d.Note = fmt.Sprintf("it is the directory %s of the host, which is no part of this disk", m.Source.Path)
	}
	return d
}

// openReader opens the host's directory of a layer: one of a user's only if it is the one that
// was named at create.
func (l diskLayer) openHost() (*os.File, error) {
	if l.Host.Ino != 0 {
		return openAccepted(l.Host)
	}
	f, err := os.OpenFile(l.Host.Source, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		err = os.ErrNotExist
	}
	return f, err
}
