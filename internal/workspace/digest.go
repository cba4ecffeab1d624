package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// blockSize is the unit in which a Digest leaves zeros out.
const blockSize = 64 << 10

var zeroBlock [blockSize]byte

// digester computes Digests. It is used again and again by way of reset.
type digester struct {
	h     hash.Hash
	size  int64
	block int64 // of which buf holds a part, -1 for none
	buf   []byte
}

func newDigester() *digester {
	return &digester{h: sha256.New(), block: -1, buf: make([]byte, blockSize)}
}

// reset starts the digest of a file of the given size.
func (d *digester) reset(size int64) {
	d.h.Reset()
	d.size, d.block = size, -1
	d.number(size)
}

func (d *digester) number(n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	d.h.Write(b[:])
}

// add takes data at an offset. Offsets ascend, and data ends at size at most.
func (d *digester) add(off int64, p []byte) {
	for len(p) > 0 {
		block, at := off/blockSize, int(off%blockSize)
		if at == 0 && len(p) >= blockSize {
			d.flush()
			d.write(block, p[:blockSize])
			off, p = off+blockSize, p[blockSize:]
			continue
		}
		if block != d.block {
			d.flush()
			d.block = block
			clear(d.buf[:d.length(block)])
		}
		n := copy(d.buf[at:], p)
		off, p = off+int64(n), p[n:]
	}
}

// length is the number of bytes in a block: blockSize but for the last.
func (d *digester) length(block int64) int64 {
	return min(blockSize, d.size-block*blockSize)
}

func (d *digester) flush() {
	if d.block >= 0 {
		d.write(d.block, d.buf[:d.length(d.block)])
		d.block = -1
	}
}

func (d *digester) write(block int64, p []byte) {
	if bytes.Equal(p, zeroBlock[:len(p)]) {
		return
	}
	d.number(block)
	d.h.Write(p)
}

func (d *digester) sum() (out Digest) {
	d.flush()
	d.h.Sum(out[:0])
	return out
}

// digestBytes returns the digest of a file that holds p.
func (d *digester) digestBytes(p []byte) Digest {
	d.reset(int64(len(p)))
	d.add(0, p)
	return d.sum()
}

// digestFile returns the digest of an open file with the given size and
// extents. Where the file has become shorter it reads as zeros.
func (d *digester) digestFile(ctx context.Context, f io.ReaderAt, size int64, ext []Extent, buf []byte) (Digest, error) {
	d.reset(size)
	for _, e := range ext {
		for off := e.Offset; off < e.Offset+e.Length; {
			if err := context.Cause(ctx); err != nil {
				return Digest{}, err
			}
			n, err := f.ReadAt(buf[:min(int64(len(buf)), e.Offset+e.Length-off)], off)
			d.add(off, buf[:n])
			off += int64(n)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return Digest{}, err
			}
		}
	}
	return d.sum(), nil
}

// Limits of what fileExtents makes of a sparse file.
const (
	mergeGap = blockSize // a hole of at most this many bytes is read as data
	denseMax = 4 << 30   // a file of more than maxExtents pieces is read whole up to this size
)

// errFragmented says that a file has too much of both holes and data to be
// read in reasonable time.
var errFragmented = errors.New("too fragmented")

// fileExtents returns where an open regular file of the given size and number
// of 512-byte blocks has data: nil for a file that is best read whole.
func fileExtents(f *os.File, size, blocks int64) ([]Extent, error) {
	if size == 0 || blocks*512 >= size {
		return nil, nil
	}
	ext := []Extent{}
	for off := int64(0); off < size; {
		start, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && start >= size {
			break // nothing but a hole up to the end
		}
		if errors.Is(err, unix.EINVAL) {
			return nil, nil // the file system can't tell
		}
		if err != nil {
			return nil, fmt.Errorf("look for data: %w", err)
		}
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if err != nil || end > size || end <= start {
			end = size // it shrank or grew meanwhile
		}
		off = end
		if n := len(ext); n > 0 && start-(ext[n-1].Offset+ext[n-1].Length) <= mergeGap {
			ext[n-1].Length = end - ext[n-1].Offset
			continue
		}
		if len(ext) < maxExtents {
			ext = append(ext, Extent{start, end - start})
			continue
		}
		if size <= denseMax {
			return nil, nil
		}
		return nil, errFragmented
	}
	return ext, nil
}
