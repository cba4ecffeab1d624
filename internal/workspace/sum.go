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
	"slices"

	"golang.org/x/sys/unix"
)

// Sum identifies a Diff: what it would put into the base, what it would take
// out of it, and what of the base it was compared with. Two Diffs of equal sums
// are applied with the same result.
type Sum struct {
	Digest Digest   // of the whole, the selection and the filter included
	Items  []Digest // of each item, in the Diff's order
	Paths  []string // the selection, cleaned and sorted; none means all
}

// sumVersion begins all that is summed, so that another form never has the
// digest of this one.
const sumVersion = "carboy diff 2"

// Sum returns d's sum. It reads nothing: the contents of changes count by their
// digests, and what the base has by its identity, size and change time. Times
// that a sandbox set are left out, as no apply carries them over.
func (d *Diff) Sum() Sum {
	s := Sum{Paths: slices.Clone([]string(d.sel)), Items: make([]Digest, 0, len(d.Items))}
	all := newSummer()
	all.number(uint64(len(s.Paths)))
	for _, p := range s.Paths {
		all.text(p)
	}
	for _, list := range [...][]string{d.filter.Ignore, {d.filter.Prefix}, d.filter.Tracked, d.filter.Exclude, d.filter.Only} {
		all.number(uint64(len(list)))
		for _, line := range list {
			all.text(line)
		}
	}
	all.number(uint64(len(d.Items)))
	for i := range d.Items {
		one := d.Items[i].sum()
		s.Items = append(s.Items, one)
		all.h.Write(one[:])
	}
	s.Digest = all.sum()
	return s
}

// sum returns the digest of one item.
func (it *Item) sum() Digest {
	s := newSummer()
	for _, text := range [...]string{
		it.Path, string(it.Kind), string(it.Class), it.Target, it.Detail, string(it.Was), it.blocked,
	} {
		s.text(text)
	}
	s.number(uint64(it.Mode))
	s.number(uint64(it.Size))
	s.h.Write(it.Digest[:])
	s.flag(it.entry.torn)
	// Whether attributes name drivers is known only with their content, and
	// follows from it.
	s.flag(it.Held != "" && !it.heldForText)
	s.stamp(it.base)
	s.h.Write(it.tree[:])
	return s.sum()
}

// summer hashes fields, each of which has one form and an end.
type summer struct{ h hash.Hash }

func newSummer() summer {
	s := summer{sha256.New()}
	s.text(sumVersion)
	return s
}

func (s summer) number(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	s.h.Write(b[:])
}

func (s summer) text(t string) {
	s.number(uint64(len(t)))
	s.h.Write([]byte(t))
}

func (s summer) flag(b bool) {
	n := uint64(0)
	if b {
		n = 1
	}
	s.number(n)
}

// stamp adds what identifies a thing of the base. The change time of a file
// with several names moves with them, and says nothing.
func (s summer) stamp(t stamp) {
	if t.linked {
		t.ctime = 0
	}
	for _, n := range [...]uint64{
		t.dev, t.ino, uint64(t.ctime), uint64(t.mtime), uint64(t.size), uint64(t.mode), uint64(t.uid), uint64(t.gid),
	} {
		s.number(n)
	}
	s.flag(t.linked)
}

func (s summer) sum() (out Digest) {
	s.h.Sum(out[:0])
	return out
}

// treeSum sums what a directory of the base holds, entry by entry, as walk
// meets them.
type treeSum struct{ summer }

func newTreeSum() treeSum { return treeSum{newSummer()} }

func (t treeSum) add(rel string, s stamp) {
	t.text(rel)
	t.stamp(s)
}

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
