package scrub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// How long openImage waits for an image that somebody has: the kernel frees a loop device a
// moment after the last unmount.
const (
	busyWait  = time.Second
	busyPause = 10 * time.Millisecond
)

var errBusy = errors.New("in use")

// openImage opens an image that nobody else has, and keeps it from others while it is open.
func openImage(ctx context.Context, path string) (*os.File, error) {
	late := time.Now().Add(busyWait)
	for {
		f, err := tryImage(path)
		if !errors.Is(err, errBusy) {
			return f, err
		}
		if time.Now().After(late) {
			return nil, sandbox.Errorf(sandbox.Conflict, "%s is in use: a sandbox that runs, a mount or another command has it", path).
				WithHint("stop the sandbox, or unmount the image")
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(busyPause):
		}
	}
}

// tryImage is one try of openImage.
func tryImage(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, sandbox.Errorf(sandbox.NotFound, "%s: not found", path)
	case errors.Is(err, unix.ELOOP):
		return nil, sandbox.Errorf(sandbox.Invalid, "%s is a symbolic link: name the image itself", path)
	case err != nil:
		return nil, fmt.Errorf("open image: %w", err)
	}
	if err := accept(f, path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// accept locks an image and refuses one whose content others would still see, or change.
func accept(f *os.File, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return sandbox.Errorf(sandbox.Invalid, "%s is no regular file", path)
	case st.Nlink > 1:
		return sandbox.Errorf(sandbox.Conflict, "%s has %d names: under the others, what is erased would stay", path, st.Nlink).
			WithHint("remove the others, or copy it")
	}
	// The lock of who attaches, and that which a loop device of ours keeps.
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EACCES) {
		return errBusy
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	if attached(st) {
		return errBusy
	}
	return sameFile(f, path)
}

// attached reports whether a loop device has the file, whoever made it.
func attached(st unix.Stat_t) bool {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return false
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it was freed meanwhile
		}
		var other unix.Stat_t
		if unix.Stat(strings.TrimRight(string(b), "\n"), &other) == nil && other.Dev == st.Dev && other.Ino == st.Ino {
			return true
		}
	}
	return false
}

// sameFile fails where path leads to another file by now.
func sameFile(f *os.File, path string) error {
	var mine, now unix.Stat_t
	if err := errors.Join(unix.Fstat(int(f.Fd()), &mine), unix.Lstat(path, &now)); err != nil {
		return err
	}
	if mine.Dev != now.Dev || mine.Ino != now.Ino {
		return sandbox.Errorf(sandbox.Conflict, "%s was replaced meanwhile", path)
	}
	return nil
}

// workName is the name that a copy of an image has before it takes the image's.
func workName(path string) string {
	return filepath.Join(filepath.Dir(path), ".scrub-"+filepath.Base(path))
}

// copyImage copies an image to a file beside it that belongs to whom it does. The image is
// locked, so what has the name is of a process that was killed.
func copyImage(image *os.File, path string) (*os.File, error) {
	if err := os.Remove(workName(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove what an earlier scrub left: %w", err)
	}
	work, err := os.OpenFile(workName(path), os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("copy image: %w", err)
	}
	if err = disk.CopySparse(work, image); err == nil {
		err = likeness(work, image)
	}
	if err != nil {
		drop(work)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return nil, sandbox.Errorf(sandbox.Exhausted, "there is no room for a copy of the image beside %s", path)
		}
		return nil, fmt.Errorf("copy image: %w", err)
	}
	return work, nil
}

// likeness gives a copy the owner and the mode of its image.
func likeness(work, image *os.File) error {
	var st, own unix.Stat_t
	if err := errors.Join(unix.Fstat(int(image.Fd()), &st), unix.Fstat(int(work.Fd()), &own)); err != nil {
		return err
	}
	if st.Uid != own.Uid || st.Gid != own.Gid {
		if err := work.Chown(int(st.Uid), int(st.Gid)); err != nil {
			return fmt.Errorf("give it the owner of the image: %w", err)
		}
	}
	return unix.Fchmod(int(work.Fd()), st.Mode&0o7777)
}

// drop removes a copy that is not to be kept.
func drop(work *os.File) {
	_ = os.Remove(work.Name())
	_ = work.Close()
}

// version tells a file that was written to from what it was before.
type version struct {
	size         int64
	mtime, ctime unix.Timespec
}

func versionOf(f *os.File) (version, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return version{st.Size, st.Mtim, st.Ctim}, err
}

// commit gives a copy the name of its image, which is as it was when it was copied: who
// writes to it may know of no lock.
func commit(work, image *os.File, was version, path string) error {
	if err := work.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := sameFile(image, path); err != nil {
		return err
	}
	now, err := versionOf(image)
	if err != nil {
		return err
	}
	if now != was {
		return sandbox.Errorf(sandbox.Conflict, "%s was written to meanwhile", path).WithHint("end what writes to it, and scrub it again")
	}
	return durable.Rename(work.Name(), path, 0)
}

// Exit codes of e2fsck: bits.
const (
	fsckMended = 1
	fsckReboot = 2
)

// fsck runs e2fsck on a copy, which it opens by the descriptor, and returns its exit code.
func fsck(ctx context.Context, work *os.File, how string) (code int, said string, err error) {
	tool, err := disk.Tool("e2fsck")
	if err != nil {
		return 0, "", err
	}
	c := disk.Command(ctx, tool, how, fmt.Sprintf("/proc/self/fd/%d", 3))
	c.ExtraFiles = []*os.File{work}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	said = strings.TrimSpace(string(out))
	if c.ProcessState != nil && c.ProcessState.Exited() {
		return c.ProcessState.ExitCode(), said, nil
	}
	if ctx.Err() != nil {
		return 0, said, context.Cause(ctx)
	}
	return 0, said, fmt.Errorf("run %s: %w", tool, err)
}
