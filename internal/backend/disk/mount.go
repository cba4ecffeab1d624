package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Options of a Mount. The zero value mounts for writing.
type Options struct {
	ReadOnly bool // must be the same for all mounts of an image at a time
	// New: Images.Make has just made the image, so that nobody can have attached
	// it but by this package. Looking for that costs the more the more loop
	// devices there are.
	New bool
	// Holder is the directory of the process that holds the image's writes while there is
	// no room for them, and Label what it calls the image: see package hold. Without one,
	// writes that find the host's disk full break the image's file system. Of an image that
	// is attached already it changes nothing.
	Holder, Label string
}

// detachWait is how long Mount waits for a loop device that is on its way
// from one user of the image to the next, or to being freed.
const detachWait = 5 * time.Second

// Mount mounts an image on the directory target and returns its loop device,
// "/dev/loop0". An image that is attached, by whomever and in whichever mount
// namespace, is mounted a second time: the same file system is then in both
// places. It may be called at once from several processes. An image that
// does not mount gives an error that names it and changes nothing.
func Mount(ctx context.Context, path, target string, o Options) (string, error) {
	img, err := openImage(path)
	if err != nil {
		return "", err
	}
	defer img.Close()
	if err := lockAttach(ctx, img); err != nil {
		return "", fmt.Errorf("mount disk image %s: %w", path, err)
	}
	dev, err := device(ctx, img, o)
	if err != nil {
		return "", fmt.Errorf("mount disk image %s: %w", path, err)
	}
	defer dev.Close()
	if err := mountDevice(dev.Name(), target, o); err != nil {
		return "", mountError(path, target, err)
	}
	return dev.Name(), nil
}

// lockAttach keeps others from attaching the image until img is closed. It is
// a lock of another kind than the one that the loop device inherits, so the
// two do not meet.
func lockAttach(ctx context.Context, img *os.File) error {
	ok, err := retry(ctx, detachWait, func() (bool, error) {
		err := unix.FcntlFlock(img.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return false, nil
		}
		return err == nil, err
	})
	if err == nil && !ok {
		err = sandbox.Errorf(sandbox.Unavailable, "another process is attaching it for more than %v", detachWait)
	}
	return err
}

// device returns, open, the loop device of the image: the one it has, or a
// new one.
func device(ctx context.Context, img *os.File, o Options) (*os.File, error) {
	id, err := inodeOf(img)
	if err != nil {
		return nil, err
	}
	var dev *os.File
	ok, err := retry(ctx, detachWait, func() (bool, error) {
		dev, err = deviceNow(ctx, img, id, o)
		return dev != nil, err
	})
	if err == nil && !ok {
		err = sandbox.Errorf(sandbox.Unavailable, "its loop device is not freed after %v", detachWait)
	}
	return dev, err
}

// deviceNow is one try of device; nil means that the image is being detached.
func deviceNow(ctx context.Context, img *os.File, id inode, o Options) (*os.File, error) {
	base := filepath.Base(img.Name())
	mine, err := lockAttached(img)
	if err != nil {
		return nil, err
	}
	if mine == nil { // attached by one of us
		if dev, err := findLoop(id, base); dev != nil || err != nil {
			return dev, err
		}
		return findLoop(id, "") // under another name of the file
	}
	defer mine.Close()
	if o.New {
		return attach(ctx, mine, o)
	}
	// Attached by somebody who does not lock: an administrator with losetup.
	if dev, err := findLoop(id, base); dev != nil || err != nil {
		return dev, err
	}
	return attach(ctx, mine, o)
}

// lockAttached opens the image anew and takes the lock that a loop device
// keeps for as long as it has the image. It returns nil where one has.
func lockAttached(img *os.File) (*os.File, error) {
	fd, err := unix.Openat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", img.Fd()), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open anew: %w", err)
	}
	f := os.NewFile(uintptr(fd), img.Name())
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock: %w", err)
}

// mountDevice mounts ext4. The kernel's thread that zeroes unused inode
// tables would write out hundreds of MB per instance, so it stays off: in a sparse
// file they read as zero anyway.
func mountDevice(dev, target string, o Options) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
	if o.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount(dev, target, "ext4", flags, "noinit_itable")
}

// mountError says whose fault it was.
func mountError(path, target string, err error) error {
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EUCLEAN), errors.Is(err, unix.EIO):
		e := &sandbox.Error{Kind: sandbox.Internal, Msg: fmt.Sprintf("disk image %s is damaged: it does not mount", path), Err: err}
		return e.WithHint("e2fsck -f %s", path)
	case errors.Is(err, unix.EBUSY):
		return &sandbox.Error{Kind: sandbox.Conflict, Msg: fmt.Sprintf("disk image %s is mounted in another mode", path), Err: err}
	case errors.Is(err, unix.ENODEV):
		return sandbox.Errorf(sandbox.Unsupported, "this kernel has no ext4").WithHint("modprobe ext4")
	}
	return fmt.Errorf("mount disk image %s on %s: %w", path, target, err)
}

// Unmount takes the image off target and writes out what is not yet on the
// platter if that was its last mount. It fails with Conflict where files are
// in use; a target on which nothing is mounted is no error.
func Unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	switch {
	case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY):
		return &sandbox.Error{Kind: sandbox.Conflict, Msg: fmt.Sprintf("the disk mounted on %s is in use", target), Err: err}
	}
	return fmt.Errorf("unmount %s: %w", target, err)
}

// Detached waits until no loop device has the image any more: the kernel
// frees one a moment after the last unmount. It fails with Conflict if that
// takes longer than detachWait, as it does while the image is mounted.
func Detached(ctx context.Context, path string) error {
	ok, err := DetachedWithin(ctx, path, detachWait)
	if err == nil && !ok {
		err = sandbox.Errorf(sandbox.Conflict, "disk image %s is still mounted", path)
	}
	return err
}

// DetachedWithin is Detached that waits for as long as limit, and reports whether no loop
// device has the image. An image that is not there has none.
func DetachedWithin(ctx context.Context, path string, limit time.Duration) (bool, error) {
	img, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("wait for disk image: %w", err)
	}
	defer img.Close()
	ok, err := retry(ctx, limit, func() (bool, error) {
		f, err := lockAttached(img)
		if f != nil {
			f.Close()
		}
		return f != nil, err
	})
	if err != nil {
		return false, fmt.Errorf("wait for disk image %s: %w", path, err)
	}
	return ok, nil
}

// Device returns the number of the loop device that has the image, 0 where none has.
func Device(path string) (uint64, error) {
	img, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("find loop device: %w", err)
	}
	defer img.Close()
	id, err := inodeOf(img)
	if err != nil {
		return 0, fmt.Errorf("find loop device: %w", err)
	}
	dev, err := findLoop(id, "")
	if err != nil || dev == nil {
		return 0, err
	}
	defer dev.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dev.Fd()), &st); err != nil {
		return 0, fmt.Errorf("find loop device: %w", err)
	}
	return st.Rdev, nil
}
