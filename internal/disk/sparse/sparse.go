// Package sparse passes a file on without its holes: pieces, each behind its offset and its
// length, eight bytes each with the highest first. The last piece has no bytes, and its offset
// is the length of the file; without it what was passed on is not whole.
//
// It refuses pieces that are not in order, and files that are longer than was allowed for.
package sparse

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ContentType is what an answer of this form says that it is.
const ContentType = "application/vnd.carboy.sparse"

const (
	headSize = 16
	maxPiece = 1 << 20 // bytes of a piece that is written
)

// Write writes a file. That it becomes shorter meanwhile is an error.
func Write(w io.Writer, f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); at < fi.Size(); {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		}
		if err != nil {
			return fmt.Errorf("seek data: %w", err)
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("seek hole: %w", err)
		}
		for at = data; at < hole; {
			n := min(hole-at, maxPiece)
			if err := piece(w, at, n); err != nil {
				return err
			}
			if c, err := io.Copy(w, io.NewSectionReader(f, at, n)); err != nil || c != n {
				return errors.Join(err, fmt.Errorf("read %d of %d bytes at %d", c, n, at))
			}
			at += n
		}
	}
	return piece(w, fi.Size(), 0)
}

func piece(w io.Writer, at, length int64) error {
	var head [headSize]byte
	binary.BigEndian.PutUint64(head[:8], uint64(at))
	binary.BigEndian.PutUint64(head[8:], uint64(length))
	_, err := w.Write(head[:])
	return err
}

// Read writes to an empty file what Write passed on, at most so many bytes long, holes left out,
// and returns its length. progress, where it is not nil, is told how many bytes were read. What ends
// early is io.ErrUnexpectedEOF.
func Read(r io.Reader, f *os.File, most int64, progress func(int64)) (int64, error) {
	var got int64
	for end := int64(0); ; {
		var head [headSize]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return 0, early(err)
		}
		at, length := int64(binary.BigEndian.Uint64(head[:8])), int64(binary.BigEndian.Uint64(head[8:]))
		if at < end || length < 0 || at > most || length > most-at {
			return 0, fmt.Errorf("%d bytes at %d, after %d of at most %d", length, at, end, most)
		}
		if length == 0 {
			return at, f.Truncate(at)
		}
		if _, err := io.CopyN(io.NewOffsetWriter(f, at), r, length); err != nil {
			return 0, early(err)
		}
		end = at + length
		if got += length; progress != nil {
			progress(got)
		}
	}
}

func early(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
