package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// The steps of a scrub, in their order.
const (
	StepCopy   = "copy"   // the image is copied
	StepReplay = "replay" // its journal is replayed
	StepRemove = "remove" // directories are emptied
	StepSettle = "settle" // counts and maps are made right
	StepErase  = "erase"  // what no file has is overwritten
	StepCheck  = "check"  // the outcome is checked
	StepSwap   = "swap"   // it takes the image's name
)

// RunPath is the directory whose content an image loses where no other is named: what
// programs keep there is of the machine that ran, not of its disk.
const RunPath = "/run"

// Options of a Scrub. The zero value works.
type Options struct {
	Paths []string // absolute ones of directories that are emptied; default: RunPath
	// Opaque marks the directories as hiding what lies below them, for an image that is the upper
	// layer of an overlay.
	Opaque bool
	// Progress is told of each step as it begins, and of how far it is, in parts of whatever total; nil:
	// nobody is.
	Progress func(step string, done, total uint64)

	keep part // what is left out, by tests
}

// Scrub empties directories of an ext4 image file, in place, and erases what was in them.
// Those that are not there are passed over; one that is no directory, or to which a link
// leads, is an Invalid error. An image that somebody has mounted or locked is a Conflict; one
// that is damaged or has features that are not known is Unsupported or Internal, and says what to do.
// Where it fails, and wherever its process ends, the image is either as it was or scrubbed.
func Scrub(ctx context.Context, image string, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	f, err := openImage(ctx, image)
	if err != nil {
		return err
	}
	defer f.Close()
	was, err := versionOf(f)
	if err != nil {
		return err
	}
	work, err := o.scrubbed(ctx, f, image)
	if err != nil {
		return err
	}
	defer work.Close()
	o.Progress(StepSwap, 0, 1)
	if err := commit(work, f, was, image); err != nil {
		drop(work)
		return err
	}
	return nil
}

// Copy is Scrub for a copy of the image, which has no name and is gone once it is closed. The
// image stays as it is.
func Copy(ctx context.Context, image string, o Options) (*os.File, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	f, err := openImage(ctx, image)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	work, err := o.scrubbed(ctx, f, image)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(work.Name()); err != nil {
		drop(work)
		return nil, err
	}
	return work, nil
}

// complete checks options and fills in what is left out.
func (o *Options) complete() error {
	if len(o.Paths) == 0 {
		o.Paths = []string{RunPath}
	}
	for _, p := range o.Paths {
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
			return sandbox.Errorf(sandbox.Invalid, "%q is no absolute path of a directory below the root", p)
		}
	}
	if o.Progress == nil {
		o.Progress = func(string, uint64, uint64) {}
	}
	if weak.On(weak.ScrubKept) {
		o.keep = ^part(0)
	}
	return nil
}

// scrubbed makes a copy of an image that is open, and scrubs it.
func (o Options) scrubbed(ctx context.Context, f *os.File, image string) (*os.File, error) {
	if err := checkFeatures(f, image); err != nil {
		return nil, err
	}
	// A tool must end with this thread, so the thread may not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o.Progress(StepCopy, 0, 1)
	work, err := copyImage(f, image)
	if err != nil {
		return nil, err
	}
	if err := o.scrub(ctx, work, image); err != nil {
		drop(work)
		return nil, explain(err, image)
	}
	return work, nil
}

// checkFeatures refuses an image before it is copied.
func checkFeatures(f *os.File, image string) error {
	fs, err := openFileSystem(f)
	if err != nil {
		return explain(err, image)
	}
	var what []string
	for bit := range 32 {
		if b := uint32(1) << bit; fs.incompat&b&^knownIncompat != 0 {
			what = append(what, fmt.Sprintf("incompat %#x", b))
		}
	}
	for bit := range 32 {
		if b := uint32(1) << bit; fs.rocompat&b&^knownRocompat != 0 {
			what = append(what, fmt.Sprintf("ro_compat %#x", b))
		}
	}
	if len(what) > 0 {
		return sandbox.Errorf(sandbox.Unsupported, "%s: its file system has features whose blocks are not known to scrub: %s", image, strings.Join(what, ", "))
	}
	return nil
}

// explain makes an error about the image of one about a structure.
func explain(err error, image string) error {
	if notDir, ok := errors.AsType[*errNotDirectory](err); ok {
		return sandbox.Errorf(sandbox.Invalid, "%s: %v: nothing was erased", image, notDir)
	}
	if errors.Is(err, errStructure) {
		e := sandbox.Errorf(sandbox.Internal, "%s: %v: nothing was erased", image, err)
		e.Err = err
		return e.WithHint("is it an ext4 image? e2fsck -fn %s", image)
	}
	return err
}

// scrub does all steps on a copy.
func (o Options) scrub(ctx context.Context, work *os.File, image string) error {
	o.Progress(StepReplay, 0, 1)
	if err := replay(ctx, work, image); err != nil {
		return err
	}
	fs, err := openFileSystem(work)
	if err != nil {
		return err
	}
	for i, p := range slices.Compact(slices.Sorted(slices.Values(o.Paths))) {
		o.Progress(StepRemove, uint64(i), uint64(len(o.Paths)))
		if _, err := fs.empty(ctx, p, o.Opaque); err != nil {
			return err
		}
	}
	o.Progress(StepSettle, 0, 1)
	if code, said, err := fsck(ctx, work, "-fy"); err != nil || code&^fsckMended != 0 {
		return failed("settle its counts", code, said, err)
	}
	if fs, err = openFileSystem(work); err != nil {
		return err
	}
	o.Progress(StepErase, 0, fs.groups)
	err = fs.erase(ctx, o.keep, func(done, total uint64) { o.Progress(StepErase, done, total) })
	if err != nil {
		return err
	}
	o.Progress(StepCheck, 0, 1)
	if code, said, err := fsck(ctx, work, "-fn"); err != nil || code != 0 {
		return failed("check the outcome", code, said, err)
	}
	return nil
}

// replay has the journal replayed, and what a crash left put right. It refuses what needs a
// decision: a directory that was lost could come back elsewhere, with all that is in it.
func replay(ctx context.Context, work *os.File, image string) error {
	code, said, err := fsck(ctx, work, "-fp")
	if err != nil {
		return err
	}
	if code&^(fsckMended|fsckReboot) != 0 {
		return sandbox.Errorf(sandbox.Internal, "%s is damaged, and e2fsck -p could not mend it: %.300s", image, said).
			WithHint("e2fsck -f %s; then look at its lost+found", image)
	}
	return nil
}

func failed(what string, code int, said string, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: e2fsck could not %s, exit code %d: %.300s", errStructure, what, code, said)
}
