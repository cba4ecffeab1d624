package ext4

import "sort"

// The format of a node of an extent tree: a header, then entries of the same length.
const (
	extentMagic   = 0xf30a
	extentBytes   = 12 // of the header, too
	maxDepth      = 5
	maxExtentRun  = 1 << 15 // a longer one is unwritten
	extentTailLen = 4
)

// extentTree finds the blocks of an inode with extents. It keeps the leaf that it was in.
type extentTree struct {
	inode  *Inode
	leaf   []Extent // in order, and none overlaps another
	lo, hi uint64   // the logical blocks that the leaf is about
}

func (t *extentTree) at(logical uint64) (Extent, error) {
	if logical < t.lo || logical >= t.hi {
		if err := t.find(logical); err != nil {
			return Extent{}, err
		}
	}
	n := sort.Search(len(t.leaf), func(n int) bool { return t.leaf[n].Logical+t.leaf[n].Blocks > logical })
	if n == len(t.leaf) {
		return Extent{Logical: logical, Blocks: t.hi - logical}, nil
	}
	e := t.leaf[n]
	if e.Logical > logical {
		return Extent{Logical: logical, Blocks: e.Logical - logical}, nil
	}
	skip := logical - e.Logical
	return Extent{logical, e.Physical + skip, e.Blocks - skip, e.Unwritten}, nil
}

// find reads the leaf for a logical block, from the root down. Each node must lie a level
// below, and within the blocks that its parent gives it: so no tree has a cycle.
func (t *extentTree) find(logical uint64) error {
	t.leaf, t.lo, t.hi = t.leaf[:0], 0, 0
	lo, hi := uint64(0), uint64(maxInodeBlocks)
	node, depth := t.inode.area(), -1
	for {
		entries, d, err := t.inode.extentNode(node, depth)
		if err != nil {
			return err
		}
		if depth = d; depth == 0 {
			if err := t.readLeaf(entries, lo, hi); err != nil {
				return err
			}
			t.lo, t.hi = lo, hi
			return nil
		}
		child, first, next, err := t.inode.indexEntry(entries, logical, lo, hi)
		if err != nil {
			return err
		}
		if child == 0 { // before the first: a hole
			t.lo, t.hi = lo, first
			return nil
		}
		lo, hi = first, next
		depth--
		if node, err = t.inode.readNode(child); err != nil {
			return err
		}
	}
}

// extentNode checks a node's header and returns its entries and its depth, which must be
// the given one, where that is not negative.
func (i *Inode) extentNode(node []byte, want int) (entries []byte, depth int, err error) {
	count, limit := int(le.Uint16(node[2:])), int(le.Uint16(node[4:]))
	depth = int(le.Uint16(node[6:]))
	switch {
	case le.Uint16(node) != extentMagic:
		return nil, 0, damaged(i.Number, "a node of its extents has no magic number")
	case count > limit || limit > len(node)/extentBytes-1:
		return nil, 0, damaged(i.Number, "a node of its extents has %d entries of %d", count, limit)
	case depth > maxDepth:
		return nil, 0, damaged(i.Number, "its extents have a depth of %d, at most %d", depth, maxDepth)
	case want >= 0 && depth != want:
		return nil, 0, damaged(i.Number, "a node of its extents has a depth of %d in the place of %d", depth, want)
	case depth > 0 && count == 0:
		return nil, 0, damaged(i.Number, "a node of its extents leads nowhere")
	}
	return node[extentBytes : extentBytes*(1+count)], depth, nil
}

// readNode reads a node that is a block, and verifies its checksum.
func (i *Inode) readNode(block uint64) ([]byte, error) {
	if err := i.checkRun(block, 1); err != nil {
		return nil, err
	}
	node := make([]byte, i.fs.super.BlockSize)
	if err := i.fs.dev.meta(block, 0, node); err != nil {
		return nil, within(i.Number, err)
	}
	if !i.fs.super.MetadataCsum {
		return node, nil
	}
	end := extentBytes * (1 + int(le.Uint16(node[4:])))
	if end+extentTailLen > len(node) || crc32c(i.seed, node[:end]) != le.Uint32(node[end:]) {
		return nil, damaged(i.Number, "block %d of its extents has a wrong checksum", block)
	}
	return node, nil
}

// indexEntry finds the child for a logical block, and the logical blocks that it is about.
// It is 0 before the first one; first is then where that begins.
func (i *Inode) indexEntry(entries []byte, logical, lo, hi uint64) (child, first, next uint64, err error) {
	next = hi
	for at := lo; len(entries) > 0; entries = entries[extentBytes:] {
		key := uint64(le.Uint32(entries))
		if key < at || key >= hi {
			return 0, 0, 0, damaged(i.Number, "an index of its extents is out of order at block %d", key)
		}
		if key > logical {
			next = key
			break
		}
		child, first = uint64(le.Uint32(entries[4:]))|uint64(le.Uint16(entries[8:]))<<32, key
		if child == 0 {
			return 0, 0, 0, damaged(i.Number, "an index of its extents leads to block 0")
		}
		at = key + 1
	}
	if child == 0 {
		first = next
	}
	return child, first, next, nil
}

// readLeaf takes the extents of a leaf, which must be in order and between two blocks.
func (t *extentTree) readLeaf(entries []byte, lo, hi uint64) error {
	at := lo
	for ; len(entries) > 0; entries = entries[extentBytes:] {
		e := Extent{
			Logical:  uint64(le.Uint32(entries)),
			Blocks:   uint64(le.Uint16(entries[4:])),
			Physical: uint64(le.Uint32(entries[8:])) | uint64(le.Uint16(entries[6:]))<<32,
		}
		if e.Blocks > maxExtentRun {
			e.Blocks, e.Unwritten = e.Blocks-maxExtentRun, true
		}
		if e.Blocks == 0 || e.Logical < at || e.Logical+e.Blocks > hi {
			t.leaf = t.leaf[:0]
			return damaged(t.inode.Number, "an extent of %d blocks is out of order at block %d", e.Blocks, e.Logical)
		}
		if err := t.inode.checkRun(e.Physical, e.Blocks); err != nil {
			t.leaf = t.leaf[:0]
			return err
		}
		at = e.Logical + e.Blocks
		t.leaf = append(t.leaf, e)
	}
	return nil
}
