package instance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/disk/scrub"
	"github.com/carboy-sandbox/carboy/internal/disk/sparse"
	"github.com/carboy-sandbox/carboy/internal/disk/stack"
	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// roleDiskFiles is the process that looks at the disk of an instance that does not run.
const roleDiskFiles = "carboy-disk-files"

// runtimePaths are the directories, of a disk, that lose their content where it is scrubbed: what was
// written to /run.
var runtimePaths = []string{"/" + layerRoot + "/upper" + scrub.RunPath}

// diskFilesMain reads a diskOrder and does what it says.
func diskFilesMain(in io.Reader, out *os.File) error {
	runtime.LockOSThread()
	var o diskOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	if err := role.BecomeReader(o.Rootless); err != nil {
		return err
	}
	go role.EndWith(out)
	ctx := context.Background()
	switch o.Do {
	case diskScrub:
		return scrub.Scrub(ctx, o.Disk, scrub.Options{Paths: runtimePaths, Opaque: true, Progress: func(step string, done, total uint64) {
			_ = role.TellNews(out, sandbox.DiskStep{Step: step, Done: done, Total: total}) // who does not read ends this process
		}})
	case diskExport:
		if err := o.exportable(); err != nil {
			return err
		}
		f, err := scrub.Copy(ctx, o.Disk, scrub.Options{Paths: runtimePaths, Opaque: true})
		if err != nil {
			return err
		}
		defer f.Close()
		return sparse.Write(out, f)
	}
	v, done, err := o.view()
	if err != nil {
		return err
	}
	defer done()
	return o.answer(ctx, v, out)
}

// exportable refuses an image that has what its sandbox's owner may not read.
func (o *diskOrder) exportable() error {
	if !o.Others {
		return nil
	}
	l := &layerOpener{order: o}
	defer l.close()
	if err := l.open(); err != nil {
		return err
	}
	n, err := l.layer(diskLayer{Own: upperOfView, Others: true})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	count, err := stack.Refused(n)
	if err != nil {
		return fmt.Errorf("look through the workspace: %w", err)
	}
	if count > 0 {
		return sandbox.Errorf(sandbox.Denied, "the disk has %d files or directories that were renamed in the workspace and that only others may read", count).
			WithHint("delete them in the sandbox, then export again")
	}
	return nil
}

// answer writes what was asked for.
func (o *diskOrder) answer(ctx context.Context, v *stack.View, out io.Writer) error {
	var answer any
	if o.Do == diskRead {
		r, err := v.Read(o.Path, o.MaxBytes)
		if err != nil {
			return err
		}
		answer = r
	} else {
		entries, err := v.List(ctx, o.Path, o.Recurse)
		if err != nil {
			return err
		}
		answer = api.DiskListing{Entries: entries, Notes: append([]string{}, v.Notes(filepath.Clean(o.Path))...)}
	}
	w := bufio.NewWriterSize(out, 1<<16)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return errors.Join(enc.Encode(answer), w.Flush())
}

// view opens the layers. done closes them.
func (o *diskOrder) view() (v *stack.View, done func(), err error) {
	l := &layerOpener{order: o}
	done = l.close
	defer func() {
		if err != nil {
			done()
		}
	}()
	if err := l.open(); err != nil {
		return nil, nil, err
	}
	var mounts []stack.Mount
	for _, m := range o.Mounts {
		one, err := l.mount(m)
		if err != nil {
			return nil, nil, err
		}
		mounts = append(mounts, one)
	}
	return stack.New(mounts, o.Rootless), done, nil
}

// layerOpener opens layers of an instance, from its image or its directory.
type layerOpener struct {
	order   *diskOrder
	image   *disk.Image  // nil: there is none
	plain   *beneath.Dir // in its place
	closers []io.Closer
}

func (l *layerOpener) close() {
	for _, c := range l.closers {
		c.Close()
	}
}

// keep has c closed at the end.
func (l *layerOpener) keep(c io.Closer) { l.closers = append(l.closers, c) }

func (l *layerOpener) open() error {
	if l.order.Disk == "" {
		dir, err := beneath.OpenDir(filepath.Join(l.order.Dir, dirLayers))
		if err != nil {
			return err
		}
		l.plain = dir
		l.keep(dir)
		return nil
	}
	// A loop device that has the image keeps this lock.
	lock, err := os.OpenFile(l.order.Disk, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	l.keep(lock)
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return sandbox.Errorf(sandbox.Conflict, "the disk is in use").WithHint("stop the sandbox, then try again")
	}
	if l.image, err = disk.Open(l.order.Disk); err != nil {
		return err
	}
	l.keep(l.image)
	return nil
}

// mount opens the layers of a place. Where one of them is not there, it is left out: of those of
// the disk nothing was written then; of the host's it is said.
func (l *layerOpener) mount(m diskMount) (stack.Mount, error) {
	out := stack.Mount{Path: m.Path, Note: m.Note}
	for _, layer := range m.Layers {
		n, err := l.layer(layer)
		switch {
		case errors.Is(err, fs.ErrNotExist) && layer.Own != "":
			continue
		case err != nil && layer.Own == "":
			out.Note = fmt.Sprintf("%s is not at hand, and what it has is left out: %v", layer.Host.Source, err)
			continue
		case err != nil:
			return out, err
		}
		out.Layers = append(out.Layers, n)
		if layer.Whole {
			break
		}
	}
	return out, nil
}

func (l *layerOpener) layer(layer diskLayer) (stack.Node, error) {
	if layer.Own == "" {
		f, err := layer.openHost()
		if err != nil {
			return nil, err
		}
		l.keep(f)
		return stack.OnHost(f, l.rights(layer))
	}
	n, err := l.own(layer.Own)
	if err != nil {
		return nil, err
	}
	return stack.Guard(n, readerOf(layer.Others)), nil
}

// own opens a layer of the instance's.
func (l *layerOpener) own(name string) (stack.Node, error) {
	if l.image != nil {
		return stack.InImage(l.image.FS, strings.Split(name, "/")...)
	}
	f, err := l.plain.Open(name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	l.keep(f)
	return stack.OnHost(f, nil)
}

// rights runs what reads a layer with the rights of who may read it; nil: with ours, which are
// those of the caller without root.
func (l *layerOpener) rights(layer diskLayer) func(func() error) error {
	if !layer.Reader || l.order.Rootless {
		return nil
	}
	return readAs(layer.Host.UID, layer.Host.GID)
}

// readAs runs what reads files with the rights of a user, who is in no further groups if this process
// is in none; nil: with ours, which they are or which are no more.
func readAs(uid, gid uint32) func(func() error) error {
	if os.Geteuid() != 0 || uid == 0 {
		return nil
	}
	within := false
	return func(f func() error) (err error) {
		if within { // in the midst of a directory
			return f()
		}
		within = true
		defer func() { within = false }()
		// The kernel takes the capabilities over files with the id, and gives them back with it. Ids
		// are a thread's.
		runtime.LockOSThread()
		defer func() {
			back := rights.OfFiles(0, 0)
			if err = errors.Join(err, back); back == nil { // or the thread is not given back
				runtime.UnlockOSThread()
			}
		}()
		if err := rights.OfFiles(uid, gid); err != nil {
			return fmt.Errorf("read as uid %d: %w", uid, err)
		}
		return f()
	}
}
