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
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/role"
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
	Do     string    `json:"do"`
}

// What a wholeOrder asks for. Nothing changes the view during the first and the last, which answer with its shape.
const (
	wholeLook = "look" // whether it is whole
	wholeCopy = "copy"
	wholeSeal = "seal" // copy what is left, and close renamed directories to the host's
)

// wholeAnswer is what it answers.
type wholeAnswer struct {
	Shape string `json:"shape"` // of a view that is whole; "": it is a copy, or was not looked at
}

// stillLimit bounds how long commands are held still for an apply, and stillNotice is how long before its end that is told.
const (
	stillLimit  = 20 * time.Second
	stillNotice = time.Second
)

// MakeWhole implements sandbox.Wholer. Where something is not whole, all is copied first, and in a running instance looked through
// once more while its commands are held still.
func (b *Backend) MakeWhole(ctx context.Context, sb *sandbox.Sandbox) (sandbox.Moment, error) {
	at := sandbox.Moment{Release: func() {}}
	dir, err := b.dir(sb.ID)
	if err != nil || b.Rootless() { // without root views are copies
		return at, err
	}
	o := wholeOrder{Layout: Layout{
		ID: sb.ID, Dir: dir, Mounts: targetsOf(sb.Spec.Mounts),
		Workspace: hostDir(sb.Spec.Workspace.Source, modeCOW, sandbox.WorkspacePath),
	}}
	if o.Layout.Disk, o.Layout.Holder, err = b.diskOf(ctx, dir); err != nil {
		return at, err
	}
	r, err := readRecord(dir)
	if err == nil && r.alive() {
		o.Live, o.Mark = r.last(), r.mark()
	}
	o.Do = wholeLook
	if at, err = b.moment(ctx, sb.ID, o); !sandbox.IsLoose(err) {
		return at, err
	}
	o.Do = wholeCopy
	if _, err := b.makeWhole(ctx, o); err != nil {
		return at, err
	}
	o.Do = wholeSeal
	return b.moment(ctx, sb.ID, o)
}

// moment has done what an order says while the commands of an instance that runs are held still, and keeps them so.
func (b *Backend) moment(ctx context.Context, id string, o wholeOrder) (at sandbox.Moment, err error) {
	at.Release = func() {}
	if o.Live.IsZero() {
		at.Shape, err = b.makeWhole(ctx, o)
		return at, err
	}
	release, err := b.still(ctx, id)
	if err != nil {
		return at, err
	}
	if at.Shape, err = b.makeWhole(ctx, o); err == nil {
		err = b.wasStill(ctx, id)
	}
	if err != nil {
		release()
		return at, err
	}
	over := make(chan struct{})
	at.Over = over
	notice := time.AfterFunc(stillLimit-stillNotice, func() { close(over) })
	limit := time.AfterFunc(stillLimit, release)
	at.Release = func() { notice.Stop(); limit.Stop(); release() }
	return at, nil
}

func (b *Backend) makeWhole(ctx context.Context, o wholeOrder) (shape string, err error) {
	var answer wholeAnswer
	if err := b.roles.Ask(ctx, roleWhole, o, &answer, nil); err != nil {
		return "", fmt.Errorf("make renamed directories whole: %w", err)
	}
	return answer.Shape, nil
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
	go role.EndWith(out)
	var o wholeOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if err := role.BecomeReader(false); err != nil {
		return err
	}
	shape, err := o.do()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(wholeAnswer{Shape: shape})
}

// do does what the order says, and returns the shape of a view that is whole.
func (o *wholeOrder) do() (shape string, err error) {
	c := &composer{layout: &o.Layout}
	defer c.close()
	if c.raw, err = openLayers(o.Layout.Dir, o.Layout.Disk, o.Layout.Holder); err != nil {
		return "", err
	}
	if isCopy(c.raw) {
		return "", nil
	}
	upper, err := c.raw.Open(upperOfView, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return "", err
	}
	defer upper.Close()
	base := &workspace.Below{Open: func() (*os.File, error) { return openAccepted(o.Layout.Workspace) }, Points: o.Layout.mountPoints()}
	if o.Do == wholeLook { // what only root may read is to be whole too
		if _, err := workspace.Shape(context.Background(), upper, base, nil); err != nil {
			return "", err
		}
		return o.shape(upper)
	}
	if o.Live.IsZero() {
		if err := readyUpper(upper); err != nil {
			return "", err
		}
	}
	view, err := o.view(c, upper)
	if err != nil {
		return "", err
	}
	defer view.Close()
	w := workspace.Whole{View: view, Upper: upper, Base: base, Seal: o.Do == wholeSeal, Mark: o.Mark}
	if err := w.Make(context.Background()); err != nil || !w.Seal {
		return "", err
	}
	return o.shape(upper)
}

// shape reads the shape of a view, with the rights that its changes are read with.
func (o *wholeOrder) shape(upper *os.File) (string, error) {
	order := changesOrder{Base: o.Layout.Workspace, Points: o.Layout.mountPoints()}
	return workspace.Shape(context.Background(), upper, order.below(), readerOf(order.Base.UID != 0))
}

// readyUpper makes the upper layer of a view ready to be mounted. It waits until no other process has called it with
// the same one, and not closed that: a daemon that was killed may have left one that has the view mounted, for a moment.
func readyUpper(upper *os.File) error {
	if err := unix.Flock(int(upper.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("wait for who has the view mounted: %w", err)
	}
	return workspace.Untie(upper)
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
