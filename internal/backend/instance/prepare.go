package instance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Prepare makes the directory and the disk of an instance and returns its layout, and
// what its guest agent is to be told, for HandOver.
func (h *Host) Prepare(ctx context.Context, sb *sandbox.Sandbox) (*Layout, *control.Config, error) {
	dir, err := h.dir(sb.ID)
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
	p := &Layout{ID: sb.ID, Dir: dir, Rootless: h.Rootless(), Linked: sb.Link != nil}
	cfg := agentConfig(sb)
	if err := h.addImage(ctx, p, &cfg, sb.Spec, sb.Owner); err != nil {
		return nil, nil, err
	}
	if err := h.addSnapshot(ctx, p, sb.Spec); err != nil {
		return nil, nil, err
	}
	if p.Disk, p.NewDisk, err = h.makeDisk(ctx, dir, sb.Spec.Limits); err != nil {
		return nil, nil, err
	}
	if p.Workspace, err = h.workspaceDir(sb.Spec.Workspace); err != nil {
		return nil, nil, err
	}
	if p.Mounts, err = h.mounts(sb.Spec.Mounts); err != nil {
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
func (h *Host) mounts(mounts []sandbox.Mount) ([]Dir, error) {
	var dirs []Dir
	for _, m := range mounts {
		d := hostDir(m.Source, access(m.ReadOnly), m.Target)
		var err error
		switch {
		case m.Own:
			d.Mode = modeOwn
		case m.Volume != "":
			d.Volume, err = h.volume(m.Volume)
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

func (h *Host) volume(id string) (*tree.Tree, error) {
	t, err := tree.Find(h.opts.State, id)
	return &t, err
}

// workspaceDir resolves what is to be seen at /workspace.
func (h *Host) workspaceDir(w sandbox.Workspace) (d Dir, err error) {
	if w.Mode == sandbox.WorkspaceVolume {
		d = Dir{Mode: access(w.ReadOnly), Target: sandbox.WorkspacePath}
		d.Volume, err = h.volume(w.Volume)
		return d, err
	}
	d = hostDir(w.Source, string(w.Mode), sandbox.WorkspacePath)
	return d, d.protectGit()
}

// addImage resolves the image that spec names into layers, and tells the
// agent what the image wants.
func (h *Host) addImage(ctx context.Context, p *Layout, cfg *control.Config, spec sandbox.Spec, owner string) error {
	if spec.Image == sandbox.DefaultImage {
		root, err := h.hostImage(ctx)
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
	if !ok || h.opts.Images == nil {
		return sandbox.Errorf(sandbox.NotFound, "image %q: not one that this daemon has", spec.Image).
			WithHint("carboy image pull %s", spec.Image)
	}
	img, err := h.opts.Images.ByDigest(ctx, digest)
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
	if !ok || os.Geteuid() != 0 && owner != OurOwner() {
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
func (h *Host) Personal(owner string, spec sandbox.Spec) bool {
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
func (h *Host) makeDisk(ctx context.Context, dir string, l sandbox.Limits) (path string, made bool, err error) {
	if h.diskErr != nil {
		return "", false, nil
	}
	path = filepath.Join(dir, fileDisk)
	if _, err := os.Lstat(path); err == nil {
		return path, false, nil
	}
	size := disk.Size{Bytes: l.Disk, Inodes: l.Inodes}
	if err := h.images.Make(ctx, path, size); err != nil {
		return "", false, fmt.Errorf("make disk image: %w", err)
	}
	return path, true, nil
}

// What an instance's gate may take, on top of what the instance was promised.
const (
	gateMemory = 128 << 20
	gatePIDs   = 64
)

// Enterable makes the instance's cgroup and puts into the layout how to enter it. A
// machine without usable cgroups was reported, and nothing was promised of
// them. The count of out-of-memory kills so far is 0 where it can't be read:
// then no end is called out of memory.
func (h *Host) Enterable(sb *sandbox.Sandbox, p *Layout, cfg *control.Config) (oomKills uint64, err error) {
	limits := h.opts.Limits(sb.Spec.Limits)
	if sb.Link != nil {
		limits.Memory += gateMemory
		limits.PIDs += gatePIDs
	}
	group, err := h.cgroups.Create(sb.ID, limits)
	if sandbox.KindOf(err) == sandbox.Unsupported {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	p.Groups.Procs = group.ProcsFiles()
	oomKills, _ = group.OOMKills()
	if sb.Link != nil {
		if err := sb.Link.Join(group.ProcsFiles()); err != nil {
			return 0, err
		}
	}
	if h.opts.OwnCommands {
		return oomKills, commandGroup(group, sb.Spec.Limits, p, cfg)
	}
	return oomKills, nil
}

// commandGroup makes the part of group that commands are in, and tells the
// agent where it will see it.
func commandGroup(group *cgroup.Group, l sandbox.Limits, p *Layout, cfg *control.Config) error {
	uid, gid := int(p.Base), int(p.Base)
	if p.Base == 0 {
		uid, gid = os.Geteuid(), os.Getegid()
	}
	part, err := group.Commands(commandLimits(l), uid, gid)
	if err != nil {
		return err
	}
	p.Groups.Commands = part
	cfg.Hide = []string{GuestControl}
	for i, f := range part.Tasks {
		cfg.Tasks = append(cfg.Tasks, p.show(f, fmt.Sprintf("tasks-%d", i)))
	}
	if part.Root != "" {
		cfg.CgroupRoot = p.show(part.Root, "cgroup")
	}
	if part.OOMFile != "" {
		cfg.OOMFile = p.show(part.OOMFile, "oom")
	}
	if part.PIDsFile != "" {
		cfg.PIDsFile = p.show(part.PIDsFile, "pids")
	}
	return nil
}

// show has a file or directory of the host's control groups shown to the agent
// alone, and returns its path inside.
func (lay *Layout) show(source, name string) string {
	lay.Shown = append(lay.Shown, Shown{Source: source, Name: name})
	return GuestControl + "/" + name
}

// Enter moves this process, and so all that it starts.
func (g Groups) Enter() error {
	for _, f := range g.Procs {
		if err := os.WriteFile(f, []byte("0"), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// Unified opens the instance's group of version 2, for a child to be born in; nil
// where there is none.
func (g Groups) Unified() (*os.File, error) {
	for _, f := range g.Procs {
		if unified(f) {
			return os.Open(filepath.Dir(f))
		}
	}
	return nil, nil
}

// Old reports whether there are groups of version 1 among them.
func (g Groups) Old() bool {
	return slices.ContainsFunc(g.Procs, func(f string) bool { return !unified(f) })
}

// unified reports whether a file of processes is of version 2.
func unified(procs string) bool {
	return !exists(filepath.Join(filepath.Dir(procs), "tasks"))
}

// Add moves a process that has done nothing yet into the groups of version 1,
// and then sets the commands' limits. Not the thread that starts it: with one
// thread in a group, this whole process would count as in it, and end with it.
func (g Groups) Add(pid int) error {
	for _, f := range g.Procs {
		if unified(f) {
			continue // born there
		}
		if err := os.WriteFile(f, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	if g.Commands != nil {
		return g.Commands.Finish()
	}
	return nil
}

// noteInstead says in a report by what other means /workspace was made.
func noteInstead(list []sandbox.Enforcement, instead string) {
	for i := range list {
		if list[i].Promise == "filesystem" {
			list[i].Mechanism = "private root over the image, in a mount namespace of its own; " + instead
		}
	}
}

// undoLimit bounds how long a failed start is cleaned up after.
const undoLimit = 30 * time.Second

// Join remembers an instance that was launched, the process that it lives by first,
// and waits for its guest.
func (h *Host) Join(ctx context.Context, p *Layout, oomKills uint64, pids ...int) error {
	ids, err := identify(pids)
	if err != nil {
		return err
	}
	if err := h.note(p, record{Processes: ids, OOMKills: oomKills}); err != nil {
		return err
	}
	return h.awaitGuest(ctx, p.ID, ids[0])
}

// Started is a start's last step: it undoes one that failed with err, and says
// in the report of one that did not by what other means /workspace was made.
func (h *Host) Started(ctx context.Context, id string, p *Layout, report []sandbox.Enforcement, err error) ([]sandbox.Enforcement, error) {
	if err != nil {
		return nil, h.undo(ctx, id, err)
	}
	if p.Instead != "" {
		noteInstead(report, p.Instead)
	}
	return report, nil
}

// undo ends what a failed start has begun and returns its cause. What an
// earlier run of the instance left on its disk stays: only Remove deletes.
func (h *Host) undo(ctx context.Context, id string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if err := h.end(ctx, id); err != nil {
		h.opts.Log.Error("end an instance whose start failed", "id", id, "err", err)
	}
	return cause
}
