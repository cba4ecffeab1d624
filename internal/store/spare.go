package store

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// spareSuffix is added to the path of a database for that of its spare
	// file.
	spareSuffix = ".spare"
	spareSize   = 1 << 20
	leastSpare  = 64 << 10
)

// spare is a file that only takes up room, so that a full disk still lets
// sandboxes be stopped and removed, which is what frees it. Whoever fills the
// disk may take the room first: it is a help, not a promise.
type spare struct{ path string }

// keep makes the file its full size, or as much of that as the disk has room
// for.
func (s spare) keep() error {
	if st, err := os.Lstat(s.path); err == nil && st.Size() == spareSize {
		return nil
	}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		for size := int64(spareSize); size >= leastSpare; size /= 2 {
			if err = allocate(f, size); err == nil || !noRoom(err) {
				break
			}
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil || noRoom(err) {
		return nil
	}
	return fmt.Errorf("keep spare room: %w", err)
}

func noRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// allocate makes f that long, unless it is longer. Where it fails f is as it was.
func allocate(f *os.File, size int64) error {
	st, err := f.Stat()
	if err != nil || st.Size() >= size {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.WriteAt(make([]byte, size), 0)
	}
	if err != nil {
		return errors.Join(err, f.Truncate(st.Size()))
	}
	return nil
}

// spend gives the room up.
func (s spare) spend() error {
	if err := os.Truncate(s.path, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("give up spare room: %w", err)
	}
	return nil
}
