package hold

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// What is kept free of a file system, in bytes: a 32nd part of it, within bounds. It is
// for the daemon's records, and for what is written between two looks.
const (
	leastReserve = 4 << 20
	mostReserve  = 512 << 20
	reservePart  = 32

	// resume is how much more must be free before what was held goes on, so that it does
	// not stop again at once.
	resume = 4 << 20

	// retryAfter is how often a write that is held looks for room.
	retryAfter = 100 * time.Millisecond
)

// Room is what a file system has left, in bytes.
type Room struct {
	Free    int64 // what can be written
	Reserve int64 // what of it no image's growth may take
}

// Spare is what may be written before writes are held.
func (r Room) Spare() int64 { return max(r.Free-r.Reserve, 0) }

// RoomAt returns the room of the file system that path is on.
func RoomAt(path string) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Room{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	return roomOf(&st), nil
}

func roomOf(st *unix.Statfs_t) Room {
	total := int64(st.Blocks) * st.Bsize
	return Room{Free: int64(st.Bavail) * st.Bsize, Reserve: min(max(total/reservePart, leastReserve), mostReserve)}
}

// room returns the room beside the image.
func (im *image) room() (Room, bool) {
	var st unix.Statfs_t
	if err := im.control(func(fd int) error { return unix.Fstatfs(fd, &st) }); err != nil {
		return Room{}, false
	}
	return roomOf(&st), true
}

// fits reports whether length more bytes of the image, which are among what the server
// is writing, may be written at an offset without taking what is kept free. more is to be
// free besides.
func (im *image) fits(at int64, length int, more int64) bool {
	r, ok := im.room()
	if im.draining.Load() {
		r.Reserve, more = r.Reserve/2, 0
	}
	return !ok || r.Free-im.server.writing.Load()-more >= r.Reserve || im.allocated(at, int64(length))
}

// allocated reports whether the image has blocks for all of a range.
func (im *image) allocated(at, length int64) bool {
	data, err := im.file.Seek(at, unix.SEEK_DATA)
	if err != nil || data != at {
		return false
	}
	hole, err := im.file.Seek(at, unix.SEEK_HOLE)
	return err == nil && hole >= at+length
}

// careless: nothing is held, as a loop device without us holds nothing.
func careless() bool { return weak.On(weak.DiskNotHeld) }

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// held tries something that needs length bytes until it is done, fails for another reason
// than a full disk, or the image is given up.
func (im *image) held(length int, try func(again bool) error) error {
	err := try(false)
	if !isFull(err) || careless() {
		return err
	}
	im.server.wait(im, int64(length))
	defer im.server.wait(im, -int64(length))
	tick := time.NewTicker(retryAfter)
	defer tick.Stop()
	for {
		if im.doomed.Load() {
			im.close()
		}
		select {
		case <-im.closed:
			return unix.EIO
		case <-tick.C:
		}
		if err = try(true); !isFull(err) {
			return err
		}
	}
}

// write writes all of data, and waits for room where there is too little.
func (im *image) write(data []byte, at int64) error {
	for len(data) > 0 {
		var n int
		err := im.held(len(data), func(again bool) (err error) {
			var more int64
			if again {
				more = resume
			}
			im.server.writing.Add(int64(len(data)))
			defer im.server.writing.Add(-int64(len(data)))
			if !careless() && !im.fits(at, len(data), more) {
				return unix.ENOSPC
			}
			n, err = im.file.WriteAt(data, at)
			if n > 0 && isFull(err) {
				err = nil // the rest is tried by itself
			}
			return err
		})
		if err != nil {
			return err
		}
		data, at = data[n:], at+int64(n)
	}
	return nil
}

// allocate is fallocate, which takes room where it writes zeros into a hole.
func (im *image) allocate(mode uint32, at, length int64) error {
	taken := length
	if mode&unix.FALLOC_FL_PUNCH_HOLE != 0 {
		taken = 0
	}
	return im.held(int(min(length, maxTransfer)), func(bool) error {
		im.server.writing.Add(taken)
		defer im.server.writing.Add(-taken)
		if taken > 0 && !careless() && !im.fits(at, int(length), 0) {
			return unix.ENOSPC
		}
		return im.control(func(fd int) error { return unix.Fallocate(fd, mode, at, length) })
	})
}
