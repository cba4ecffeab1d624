package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// roleWhole is the process that makes renamed directories of a view whole.
const roleWhole = "carboy-box-whole"

// wholeOrder is what it is told.
type wholeOrder struct {
	Layout Layout    `json:"layout"` // of the view alone
	Live   procid.ID `json:"live"`   // a process that sees the view at /workspace; zero: it is not mounted
	Mark   string    `json:"mark"`
	Seal   bool      `json:"seal"` // nothing changes the view meanwhile
}

// MakeWhole implements sandbox.Wholer. In a running instance all is copied first, and looked through once more
// while its commands are held still.
func (b *Backend) MakeWhole(ctx context.Context, sb *sandbox.Sandbox) error {
	dir, err := b.dir(sb.ID)
	if err != nil || b.Rootless() { // without root views are copies
		return err
	}
	o := wholeOrder{Layout: Layout{ID: sb.ID, Dir: dir, Workspace: hostDir(sb.Spec.Workspace.Source, modeCOW, sandbox.WorkspacePath)}}
	for _, m := range sb.Spec.Mounts {
		o.Layout.Mounts = append(o.Layout.Mounts, Dir{Target: m.Target})
	}
	if o.Layout.Disk, o.Layout.Holder, err = b.diskOf(ctx, dir); err != nil {
		return err
	}
	r, err := readRecord(dir)
	running := err == nil && r.alive()
	if running {
		o.Live, o.Mark = r.last(), r.mark()
	}
	if err := b.makeWhole(ctx, o, false); err != nil {
		return err
	}
	if !running {
		return b.makeWhole(ctx, o, true)
	}
	return b.whileStill(ctx, sb.ID, func() error { return b.makeWhole(ctx, o, true) })
}

func (b *Backend) makeWhole(ctx context.Context, o wholeOrder, seal bool) error {
	o.Seal = seal
	if err := b.roles.Ask(ctx, roleWhole, o, nil, nil); err != nil {
		return fmt.Errorf("make renamed directories whole: %w", err)
	}
	return nil
}

// whileStill runs do while an instance's commands are held still.
func (b *Backend) whileStill(ctx context.Context, id string, do func() error) error {
	unsteady := sandbox.Errorf(sandbox.Unavailable, "the sandbox's commands did not come to a stop, so that no moment of its files could be read").
		WithHint("try again, or stop the sandbox first")
	g := b.agent(id)
	release, err := g.Hold(ctx, holdLimit)
	if _, refused := errors.AsType[*agent.StatusError](err); refused {
		return unsteady
	}
	if err != nil {
		return fmt.Errorf("hold the commands still: %w", err)
	}
	defer release()
	if !b.wall.OwnCommands {
		if err := g.Sync(ctx); err != nil {
			return fmt.Errorf("have the guest write back: %w", err)
		}
	}
	if err := do(); err != nil {
		return err
	}
	if err := g.Held(ctx); err != nil {
		unsteady.Err = err
		return unsteady
	}
	return nil
}

// diskOf returns the disk image of an instance, if it has one, and who holds its writes.
func (b *Backend) diskOf(ctx context.Context, dir string) (image, holder string, err error) {
	if image = filepath.Join(dir, fileDisk); !exists(image) {
		return "", "", nil
	}
	holder, err = b.opts.Disks.Holder(ctx)
	return image, holder, err
}

// last is the process that is started last, which sees the instance's file system: the first process
// of an instance on the host's kernel, the gofer of another.
func (r *record) last() procid.ID { return r.Processes[len(r.Processes)-1] }

// mark names this run of an instance.
func (r *record) mark() string { return r.last().String() }

// wholeMain reads a wholeOrder and does what it says. It ends with the daemon that asked for it.
func wholeMain(in io.Reader, out *os.File) error {
	runtime.LockOSThread()
	go endWith(out)
	var o wholeOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	c := &composer{layout: &o.Layout}
	defer c.close()
	var err error
	if c.raw, err = openLayers(o.Layout.Dir, o.Layout.Disk, o.Layout.Holder); err != nil {
		return err
	}
	if isCopy(c.raw) {
		return nil
	}
	upper, err := c.raw.Open(upperOfView, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer upper.Close()
	if o.Live.IsZero() {
		if err := mountAlone(upper); err != nil { // until this process ends
			return err
		}
	}
	view, err := o.view(c, upper)
	if err != nil {
		return err
	}
	defer view.Close()
	base := &workspace.Below{Open: func() (*os.File, error) { return openAccepted(o.Layout.Workspace) }, Points: o.Layout.mountPoints()}
	w := workspace.Whole{View: view, Upper: upper, Base: base, Seal: o.Seal, Mark: o.Mark}
	return w.Make(context.Background())
}

// mountAlone waits until no other process has called it with the same upper layer of a view, and not closed that:
// a daemon that was killed may have left one that has the view mounted, for a moment.
func mountAlone(upper *os.File) error {
	if err := unix.Flock(int(upper.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("wait for who has the view mounted: %w", err)
	}
	return nil
}

// view opens the view of an upper layer: the one that a running instance has, or one that is mounted here and
// ends with this process.
func (o *wholeOrder) view(c *composer, upper *os.File) (*os.File, error) {
	if !o.Live.IsZero() {
		return liveView(o.Live, upper)
	}
	c.maps = map[[2]uint32]*os.File{}
	if err := c.mapLayers(); err != nil {
		return nil, err
	}
	lowers, err := c.viewLayers(o.Layout.Workspace)
	if err != nil {
		return nil, err
	}
	const name = "whole"
	if err := mkdir(filepath.Join(DirMounts, name)); err != nil {
		return nil, err
	}
	if err := c.overlay(layerWorkspace, name, lowers, bind); err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(DirMounts, name))
}

// liveView opens the view that a process has at /workspace. A second mount of the same layers would not know
// what the first does, and is never made.
func liveView(id procid.ID, upper *os.File) (*os.File, error) {
	p, err := procid.Open(id)
	if err != nil {
		return nil, ended(err)
	}
	defer p.Close()
	root, err := os.OpenFile(fmt.Sprintf("/proc/%d/root", id.PID), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, ended(err)
	}
	defer root.Close()
	if !p.Alive() { // the number may be another's
		return nil, ended(nil)
	}
	fd, err := beneath.OpenNoLinks(int(root.Fd()), sandbox.WorkspacePath[1:], unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("open the workspace of a running sandbox: %w", err)
	}
	view := os.NewFile(uintptr(fd), "view")
	if err := checkView(view, upper); err != nil {
		view.Close()
		return nil, err
	}
	return view, nil
}

func ended(cause error) error {
	e := sandbox.Errorf(sandbox.Unavailable, "the sandbox ended while its changes were read").WithHint("try again")
	e.Err = cause
	return e
}

// xattrProof is an attribute that no guest can set or see.
const xattrProof = "trusted.carboy.proof"

// checkView refuses what is not the overlay over an upper layer: what is set in that for a moment must be seen.
func checkView(view, upper *os.File) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(view.Fd()), &st); err != nil {
		return err
	}
	want := fmt.Sprintf("%d %x", os.Getpid(), rand.Uint64())
	if err := unix.Fsetxattr(int(upper.Fd()), xattrProof, []byte(want), 0); err != nil {
		return fmt.Errorf("mark the upper layer: %w", err)
	}
	defer func() { _ = unix.Fremovexattr(int(upper.Fd()), xattrProof) }()
	got := make([]byte, 2*len(want))
	n, err := unix.Fgetxattr(int(view.Fd()), xattrProof, got)
	if err != nil || st.Type != unix.OVERLAYFS_SUPER_MAGIC || string(got[:n]) != want {
		return fmt.Errorf("what a running sandbox has at %s is not its view (type %#x): %w", sandbox.WorkspacePath, st.Type, errors.Join(err, unix.ESTALE))
	}
	return nil
}
