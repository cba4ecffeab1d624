package pack

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
)

// indexMagic begins an index of version 2.
var indexMagic = []byte{0xff, 't', 'O', 'c', 0, 0, 0, 2}

// IndexBytes is how much an index of p has at most.
func (p *Pack) IndexBytes() int64 {
	return int64(len(indexMagic)) + 256*4 + int64(len(p.entries))*int64(p.Format.Size()+4+4+8) + 2*int64(p.Format.Size())
}

// CheckIndex reads the index of p: each of the pack's objects once, at the place where
// the scan saw it and with its sum, under names that ascend. What the names are worth
// only who unpacks the objects can tell.
func (p *Pack) CheckIndex(r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, p.IndexBytes()+1))
	if err != nil {
		return err
	}
	c := &cutter{rest: b}
	ok := bytes.Equal(c.cut(len(indexMagic)), indexMagic) && p.names(c) && p.places(c) &&
		bytes.Equal(c.cut(len(p.Checksum)), p.Checksum)
	if whole := len(b) - len(c.rest); ok {
		h := p.Format.New()
		_, _ = h.Write(b[:whole]) // a hash never fails
		ok = bytes.Equal(c.rest, h.Sum(nil))
	}
	if !ok {
		return refused("the index that git made is not one of the pack")
	}
	return nil
}

// names reads the counts by first byte, and the names.
func (p *Pack) names(c *cutter) bool {
	fanout := c.cut(256 * 4)
	size, n := p.Format.Size(), len(p.entries)
	table := c.cut(n * size)
	if fanout == nil || table == nil {
		return false
	}
	var counts [256]uint32
	for i := range n {
		name := table[i*size:][:size]
		if i > 0 && bytes.Compare(table[(i-1)*size:][:size], name) >= 0 {
			return false
		}
		counts[name[0]]++
	}
	var total uint32
	for i, count := range counts {
		if total += count; binary.BigEndian.Uint32(fanout[4*i:]) != total {
			return false
		}
	}
	return true
}

// places reads the sums and the places.
func (p *Pack) places(c *cutter) bool {
	n := len(p.entries)
	sums, near := c.cut(4*n), c.cut(4*n)
	if sums == nil || near == nil {
		return false
	}
	const far = 1 << 31
	var wide int
	for i := range n {
		if binary.BigEndian.Uint32(near[4*i:])&far != 0 {
			wide++
		}
	}
	table := c.cut(8 * wide)
	if table == nil {
		return false
	}
	seen := make([]bool, n)
	for i := range n {
		at := uint64(binary.BigEndian.Uint32(near[4*i:]))
		if at&far != 0 {
			if at &^= far; at >= uint64(wide) {
				return false
			}
			at = binary.BigEndian.Uint64(table[8*at:])
		}
		j, ok := slices.BinarySearchFunc(p.entries, at, func(e entry, at uint64) int {
			switch {
			case uint64(e.at) < at:
				return -1
			case uint64(e.at) > at:
				return 1
			}
			return 0
		})
		if !ok || seen[j] || p.entries[j].crc != binary.BigEndian.Uint32(sums[4*i:]) {
			return false
		}
		seen[j] = true
	}
	return true
}

// cutter cuts pieces off bytes.
type cutter struct{ rest []byte }

// cut returns the next n bytes, nil where there are fewer.
func (c *cutter) cut(n int) []byte {
	if n > len(c.rest) {
		c.rest = nil
		return nil
	}
	piece := c.rest[:n:n]
	c.rest = c.rest[n:]
	return piece
}
