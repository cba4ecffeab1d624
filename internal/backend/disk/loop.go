package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk/hold"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Flags of a loop device that the system package does not name.
const (
	loopAutoclear = 4  // freed with its last user
	loopDirectIO  = 16 // the image's pages are not cached a second time
)

// inode identifies an image file under all of its names.
type inode struct{ dev, ino uint64 }

func inodeOf(f *os.File) (inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return inode{}, err
	}
	return inode{st.Dev, st.Ino}, nil
}

// attachTries bounds how often another process may take the loop device that
// the kernel had just named as free.
const attachTries = 100

// attach gives the image a loop device and returns it open: it is freed when
// the last one who has it open or mounted lets go. The device keeps img's
// open file, and so the lock on it; where the image is held, who holds it does.
func attach(ctx context.Context, img *os.File, o Options) (*os.File, error) {
	name := filepath.Base(img.Name())
	if o.Holder != "" {
		id, err := inodeOf(img)
		if err != nil {
			return nil, err
		}
		name = hold.Name(id.dev, id.ino) // by which findLoop knows it again
		shown, err := hold.Show(ctx, o.Holder, o.Label, img)
		if err != nil {
			return nil, err
		}
		defer shown.Close()
		img = shown
	}
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("attach disk image: %w", err)
	}
	defer ctl.Close()
	for range attachTries {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("open loop device: %w", err)
		}
		err = configure(dev, img, name)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach disk image to loop device %d: %w", n, err)
		}
	}
	return nil, sandbox.Errorf(sandbox.Exhausted, "no loop device stayed free in %d tries", attachTries)
}

func configure(dev, img *os.File, name string) error {
	c := unix.LoopConfig{Fd: uint32(img.Fd()), Size: blockSize}
	c.Info.Flags = loopAutoclear | loopDirectIO
	copy(c.Info.File_name[:len(c.Info.File_name)-1], name)
	return unix.IoctlLoopConfigure(int(dev.Fd()), &c)
}

// sysBlock lists the machine's block devices.
const sysBlock = "/sys/block"

// findLoop returns, open, the loop device that has the file id, or nil. While
// it is open it can't be freed. With a base name, only devices whose file was
// attached under that name are looked at, which opens none but the right one.
func findLoop(id inode, base string) (*os.File, error) {
	devices, err := os.Open(sysBlock)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer devices.Close()
	names, err := devices.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "loop") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(sysBlock, name, "loop/backing_file"))
		if err != nil { // it has none
			continue
		}
		file := strings.TrimSuffix(strings.TrimRight(string(b), "\n"), " (deleted)")
		if name := filepath.Base(file); base != "" && name != base && name != hold.Name(id.dev, id.ino) {
			continue
		}
		dev, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
		if err != nil {
			continue // freed since it was listed
		}
		if has(dev, id) {
			return dev, nil
		}
		dev.Close()
	}
	return nil, nil
}

// has reports whether an open loop device has the file id, or what stands for it.
func has(dev *os.File, id inode) bool {
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if err != nil {
		return false
	}
	return info.Inode == id.ino && info.Device == id.dev || unix.ByteSliceToString(info.File_name[:]) == hold.Name(id.dev, id.ino)
}

// How long to wait between looks at what the kernel does not announce.
const (
	minPause = 200 * time.Microsecond
	maxPause = 20 * time.Millisecond
)

// retry calls try until it reports that it is done, or ctx ends, or limit is
// over, after which it reports false.
func retry(ctx context.Context, limit time.Duration, try func() (bool, error)) (bool, error) {
	over := time.NewTimer(limit)
	defer over.Stop()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		if done, err := try(); done || err != nil {
			return done, err
		}
		next := time.NewTimer(pause)
		select {
		case <-next.C:
		case <-over.C:
			next.Stop()
			return false, nil
		case <-ctx.Done():
			next.Stop()
			return false, context.Cause(ctx)
		}
	}
}

// Available says why this machine can't use disk images, as an Unsupported
// error, or nil.
func Available() error {
	if os.Geteuid() != 0 {
		return sandbox.Errorf(sandbox.Unsupported, "disk images need root to mount them")
	}
	f, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return sandbox.Errorf(sandbox.Unsupported, "disk images need loop devices: there is no /dev/loop-control").WithHint("modprobe loop")
	case err != nil:
		return &sandbox.Error{Kind: sandbox.Unsupported, Msg: "disk images need loop devices: /dev/loop-control can't be opened", Err: err}
	}
	f.Close()
	_, err = findTool()
	return err
}
