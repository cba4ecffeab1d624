package disk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The request that stops an ext4 at once, and the mode in which it does not
// even write its journal.
const (
	ext4Shutdown             = 0x8004587d
	shutdownNoLogFlush       = 2
	superMagicExt4     int64 = 0xEF53
)

// Discard unmounts an image that is about to be deleted. What was not
// written out yet is thrown away, which spares the host the writing; all of
// its mounts fail from then on. It refuses with Conflict where target does
// not show the image, because it would stop the file system that is there.
func Discard(path, target string) error {
	img, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("discard disk image: %w", err)
	}
	defer img.Close()
	dir, err := os.OpenFile(target, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("discard disk image: %w", err)
	}
	err = shutdown(img, dir)
	dir.Close()
	if err != nil {
		return err
	}
	return Unmount(target)
}

// shutdown stops the file system that dir shows, if it is the image's.
func shutdown(img, dir *os.File) error {
	shows, err := isMountOf(img, dir)
	if err != nil {
		return fmt.Errorf("discard disk image %s: %w", img.Name(), err)
	}
	if !shows {
		return sandbox.Errorf(sandbox.Conflict, "%s does not show the disk image %s", dir.Name(), img.Name())
	}
	err = unix.IoctlSetPointerInt(int(dir.Fd()), ext4Shutdown, shutdownNoLogFlush)
	if err != nil && !errors.Is(err, unix.ENOTTY) { // an older kernel: unmounting then writes
		return fmt.Errorf("discard disk image %s: %w", img.Name(), err)
	}
	return nil
}

// isMountOf reports whether dir is of an ext4 on a loop device that has img.
func isMountOf(img, dir *os.File) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
		return false, err
	}
	at, err := inodeOf(dir)
	if err != nil || fs.Type != superMagicExt4 || unix.Major(at.dev) != loopMajor {
		return false, err
	}
	id, err := inodeOf(img)
	if err != nil {
		return false, err
	}
	dev, err := openLoop(at.dev, id)
	if err != nil || dev == nil {
		return false, err
	}
	return true, dev.Close()
}
