package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrBusy says that something has a file of a mount open for writing, or mapped so.
var ErrBusy = errors.New("a file is open for writing")

// SetReadOnly makes what is mounted at a path read-only, or writable again, wherever commands and the
// agent see it, and where later ones will. Files that are open are no way around: while one is open for
// writing the error is ErrBusy, and nothing is changed. That it can't be written to is tried.
func (j *Jail) SetReadOnly(path string, readOnly bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return errors.New("the jail is closed")
	}
	// Later cells have copies of the agent's own mounts, and while mu is held nobody makes one.
	spaces := []*os.File{nil, j.mountNS}
	if ns := j.cell.mounts(); ns != nil && !sameFile(ns, j.mountNS) {
		spaces = append(spaces, ns)
	}
	var changed []*os.File
	for _, ns := range spaces {
		err := inMounts(ns, func() error {
			was, err := remount(path, readOnly)
			if was {
				changed = append(changed, ns)
			}
			return err
		})
		if err == nil {
			continue
		}
		for _, ns := range slices.Backward(changed) {
			err = errors.Join(err, inMounts(ns, func() error {
				_, err := remount(path, !readOnly)
				return err
			}))
		}
		return err
	}
	return nil
}

// mounts is the cell's mount namespace; nil after its end.
func (c *cell) mounts() *os.File {
	for _, ns := range c.ns {
		if ns.flag == unix.CLONE_NEWNS {
			return ns.file
		}
	}
	return nil
}

func sameFile(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errors.Join(errX, errY) == nil && os.SameFile(x, y)
}

// inMounts runs f on a thread in a mount namespace; nil: the agent's own.
func inMounts(ns *os.File, f func() error) error {
	w, err := startWorker(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("leave the shared working directory: %w", err)
		}
		if ns == nil {
			return nil
		}
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("join %s: %w", ns.Name(), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer w.stop()
	var failed error
	if err := w.do(func() { failed = f() }); err != nil {
		return err
	}
	return failed
}

// remount runs on a thread that sees the mount, and reports whether it changed it.
func remount(path string, readOnly bool) (changed bool, err error) {
	m, err := mountAt(path)
	if err != nil || m.readOnly == readOnly {
		return false, err
	}
	flags := unix.MS_BIND | unix.MS_REMOUNT | m.flags
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	err = unix.Mount("", path, "", flags, "")
	switch {
	case errors.Is(err, unix.EBUSY):
		return false, ErrBusy
	case err != nil:
		return false, fmt.Errorf("remount %s: %w", path, err)
	case readOnly:
		return true, tryWrite(path)
	}
	return true, nil
}

// mountAt is what the calling thread sees mounted at a path.
func mountAt(path string) (mountPoint, error) {
	// The /proc that commands see does not know this thread: another one looks.
	task := filepath.Join(strconv.Itoa(os.Getpid()), "task", strconv.Itoa(unix.Gettid()))
	var mounts []mountPoint
	var err error
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		mounts, err = mountsOf(task)
	}()
	<-looked
	if err != nil {
		return mountPoint{}, err
	}
	i := slices.IndexFunc(mounts, func(m mountPoint) bool { return m.path == path })
	if i < 0 {
		return mountPoint{}, fmt.Errorf("%s is not a mount of its own", path)
	}
	return mounts[i], nil
}

// tryWrite fails where a file can be made in a directory that was made read-only.
func tryWrite(dir string) error {
	name := filepath.Join(dir, ".carboy-"+strconv.Itoa(os.Getpid()))
	err := unix.Mkdir(name, 0o700)
	if errors.Is(err, unix.EROFS) {
		return nil
	}
	if err == nil {
		err = errors.Join(errors.New("it went well"), unix.Rmdir(name))
	}
	return fmt.Errorf("write to %s, which is read-only: %w", dir, err)
}
