package instance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk/hold"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// roleDisks is the process that holds disk images: see package hold.
const roleDisks = "carboy-disks"

// What a process that is to hold images finds from descriptor 3 on.
const (
	disksReady = 3 + iota // where it says that it serves
	disksDir              // the directory that it serves in
)

const (
	holderWait  = 10 * time.Second       // for a process that was started to serve
	holderRetry = 200 * time.Millisecond // between two tries to have one
)

// Disks is the disk images of a home, of instances and of volumes, and the process that
// holds them: what is written to one waits while the host's disk has no room for it. It
// implements sandbox.Disk. Its methods may be called from several goroutines.
type Disks struct {
	state string
	dir   string
	log   *slog.Logger
	kept  *hold.Keeper
	off   bool // there is nothing to hold images by

	ready  chan struct{} // closed when the first process serves
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	held    map[string]sandbox.Held
	shown   []hold.Shown
	changed chan struct{} // closed at each change of held
}

var _ sandbox.Disk = (*Disks)(nil)

// OpenDisks has a process hold the images of the home with that state directory: the one
// that does, or a new one, which is started meanwhile. Where this process can have no
// disk images, or the kernel has no FUSE, nothing is held.
func OpenDisks(state string, log *slog.Logger) (*Disks, error) {
	ctx, cancel := context.WithCancel(context.Background())
	d := &Disks{
		state: state, dir: hold.Dir(state), log: log, kept: hold.NewKeeper(hold.Dir(state)), ready: make(chan struct{}), cancel: cancel, done: make(chan struct{}),
		held: make(map[string]sandbox.Held), changed: make(chan struct{}),
	}
	if err := hold.Available(); err != nil {
		log.Warn("writes to disk images are not held while the disk is full", "error", err)
		d.off = true
		close(d.done)
		return d, nil
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		cancel()
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	go d.keep(ctx)
	return d, nil
}

// Close leaves the process alone, which goes on while it has images.
func (d *Disks) Close() error {
	d.cancel()
	<-d.done
	d.kept.Close()
	return nil
}

// Holder returns where the process is asked to hold an image, as disk.Options has it; ""
// where nothing can be held. It waits until it serves.
func (d *Disks) Holder(ctx context.Context) (string, error) {
	if d == nil || d.off {
		return "", nil
	}
	late := time.NewTimer(holderWait)
	defer late.Stop()
	select {
	case <-d.ready:
		return d.dir, nil
	case <-late.C:
		return "", sandbox.Errorf(sandbox.Unavailable, "the process that holds disk images does not start").WithHint("the daemon's log says why")
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// keep sees to it that there is a process, and listens to it.
func (d *Disks) keep(ctx context.Context) {
	defer close(d.done)
	first := sync.OnceFunc(func() { close(d.ready) })
	for ctx.Err() == nil {
		err := hold.Watch(ctx, d.dir, func(held []hold.Held, shown []hold.Shown) {
			d.set(held, shown)
			if err := d.kept.Follow(ctx, shown); err != nil && ctx.Err() == nil {
				d.log.Warn("a disk image is not kept for another process", "error", err)
			}
			first()
		})
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, hold.ErrNotServed) {
			d.log.Error("the process that holds disk images has ended: another goes on", "error", err)
		}
		if err := d.spawn(); err != nil {
			d.log.Error("start the process that holds disk images", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(holderRetry):
			}
			continue
		}
		err = d.kept.Restore(ctx)
		for errors.Is(err, hold.ErrNotServed) && ctx.Err() == nil {
			d.log.Warn("the process that was to go on with disk images has ended too: another does", "error", err)
			err = errors.Join(d.spawn(), d.kept.Restore(ctx))
		}
		if err != nil && ctx.Err() == nil {
			d.log.Error("disks of running sandboxes can't be used: their process was killed", "error", err)
		}
	}
}

// spawn starts a process and waits until it serves, or another does.
func (d *Disks) spawn() error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := role.Command(context.Background(), roleDisks, []string{d.state}, w, dir) // it outlives this process
	cmd.Env = append(cmd.Env, role.FewDescriptors)
	err = cmd.Start()
	w.Close()
	if err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // that it ended, its connection tells
	_ = r.SetReadDeadline(time.Now().Add(holderWait))
	return role.AwaitReady(r)
}

// disksMain is the process.
func disksMain() error {
	ready := os.NewFile(disksReady, "ready")
	err := unix.Fchdir(disksDir)
	if err == nil {
		err = hold.Serve(".", func() error { return errors.Join(role.Ready(ready), ready.Close()) })
	}
	if err != nil {
		fmt.Fprintln(ready, err) // nobody reads it once it was ready
	}
	return err
}

// set notes what is held, and what is shown.
func (d *Disks) set(held []hold.Held, shown []hold.Shown) {
	now := make(map[string]sandbox.Held, len(held))
	for _, h := range held {
		now[h.Label] = sandbox.Held{Since: h.Since, Need: h.Need, Path: d.state}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held, d.shown = now, shown
	d.announceLocked()
}

func (d *Disks) announceLocked() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// Held implements sandbox.Disk.
func (d *Disks) Held(id string) (sandbox.Held, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h, ok := d.held[id]
	return h, ok
}

// Broken implements sandbox.Disk.
func (d *Disks) Broken(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.shown {
		switch {
		case one.Label != id:
		case one.Dead:
			return "the process that passed its reads and writes on was killed"
		case one.Broken:
			return "its file system noted an error and takes no more writes"
		}
	}
	return ""
}

// Watch implements sandbox.Disk.
func (d *Disks) Watch(ctx context.Context, changed func()) {
	for {
		d.mu.Lock()
		next := d.changed
		d.mu.Unlock()
		changed()
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

// Drain implements sandbox.Disk.
func (d *Disks) Drain(ctx context.Context, id string) error { return hold.Drain(ctx, d.dir, id) }

// Drop implements sandbox.Disk.
func (d *Disks) Drop(ctx context.Context, id string) error {
	if d == nil || d.off {
		return nil
	}
	d.kept.Drop(id)
	return hold.Drop(ctx, d.dir, id)
}

// Room implements sandbox.Disk. Of a disk that can't be looked at there is room.
func (d *Disks) Room() (spare int64, at string) {
	r, err := hold.RoomAt(d.state)
	if err != nil {
		return 1 << 62, d.state
	}
	return r.Spare(), d.state
}
