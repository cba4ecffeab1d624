package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// copyChunk bounds what is copied between two looks at the context.
const copyChunk = 64 << 20

// copyExtents makes out, an empty file, a copy of in's extents, with holes
// between them, of the given size. What in no longer has reads as zeros. It
// returns how much data it copied, and tells it as it goes.
func copyExtents(ctx context.Context, out, in *os.File, ext []Extent, size int64, tell func(int64)) (int64, error) {
	total := int64(0)
	for _, e := range ext {
		for off, end := e.Offset, e.Offset+e.Length; off < end; off += copyChunk {
			n, err := copyRange(ctx, out, in, off, off, min(copyChunk, end-off))
			total += n
			if err != nil {
				return total, err
			}
			tell(total)
		}
	}
	if err := out.Truncate(size); err != nil {
		return total, fmt.Errorf("set size: %w", err)
	}
	return total, nil
}

// copyRange copies a range of one file to another, in the kernel where it can.
// It stops early, without an error, at the end of in.
func copyRange(ctx context.Context, out, in *os.File, to, from, length int64) (int64, error) {
	if length == 0 {
		return 0, nil
	}
	if _, err := out.Seek(to, io.SeekStart); err != nil {
		return 0, err
	}
	if _, err := in.Seek(from, io.SeekStart); err != nil {
		return 0, err
	}
	total := int64(0)
	for total < length {
		if err := context.Cause(ctx); err != nil {
			return total, err
		}
		n, err := io.CopyN(out, in, min(copyChunk, length-total))
		total += n
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// futimens sets an open file's access and modification times.
func futimens(f *os.File, times *[2]unix.Timespec) error {
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, f.Fd(), 0, uintptr(unsafe.Pointer(times)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("set times: %w", errno)
	}
	return nil
}
