package scrub

// run is a piece of a file: count blocks from phys on, which are those from logical on.
type run struct {
	logical, phys, count uint64
	unwritten            bool // the file has zeros there, whatever the blocks have
}

// walker is told of the blocks of an inode. Either may be nil.
type walker struct {
	data func(r run) error
	// node is told of a block that says where others are, and of its content, which it may
	// change: it returns whether it did. Its checksum is then made right.
	node func(block uint64, b []byte, used int) (bool, error)

	left *uint64 // how many blocks it may still be told of
}

// spend counts blocks: no file has more than there are.
func (n inode) spend(w walker, count uint64) error {
	if count > *w.left {
		return broken("inode %d has more blocks than there are", n.ino)
	}
	*w.left -= count
	return nil
}

// walk tells w of the blocks of n, whose content is not in the inode itself.
func (n inode) walk(w walker) error {
	left := n.fs.blocks
	w.left = &left
	if n.has(flagExtents) {
		return n.extents(w, n.blockMap(), -1)
	}
	return n.pointers(w)
}

const (
	extentMagic = 0xF30A
	extentSize  = 12      // bytes of a header, and of an entry
	maxDepth    = 5       // of a tree of extents
	maxWritten  = 1 << 15 // blocks of an extent; one that says more is unwritten, and has so many less
)

// extents tells of a node of the tree, which is at the given depth or, as the root is, at any.
func (n inode) extents(w walker, b []byte, depth int) error {
	if le.Uint16(b) != extentMagic {
		return broken("inode %d: a node of extents is none", n.ino)
	}
	entries, limit, own := int(le.Uint16(b[2:])), int(le.Uint16(b[4:])), int(le.Uint16(b[6:]))
	if entries > limit || (limit+1)*extentSize > len(b) || own > maxDepth || depth >= 0 && own != depth {
		return broken("inode %d: %d of %d extents at depth %d", n.ino, entries, limit, own)
	}
	for i := range entries {
		e := b[(i+1)*extentSize:][:extentSize]
		if own > 0 {
			if err := n.extentNode(w, uint64(le.Uint32(e[4:]))|uint64(le.Uint16(e[8:]))<<32, own-1); err != nil {
				return err
			}
			continue
		}
		r := run{logical: uint64(le.Uint32(e)), count: uint64(le.Uint16(e[4:])), phys: uint64(le.Uint32(e[8:])) | uint64(le.Uint16(e[6:]))<<32}
		if r.count > maxWritten {
			r.count, r.unwritten = r.count-maxWritten, true
		}
		if r.phys >= n.fs.blocks || r.count > n.fs.blocks-r.phys {
			return broken("inode %d: blocks %d to %d", n.ino, r.phys, r.phys+r.count)
		}
		if err := n.spend(w, r.count); err != nil {
			return err
		}
		if w.data != nil {
			if err := w.data(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// extentNode is extents for a node in a block of its own.
func (n inode) extentNode(w walker, block uint64, depth int) error {
	if err := n.spend(w, 1); err != nil {
		return err
	}
	b, err := n.fs.read(block)
	if err != nil {
		return err
	}
	if w.node != nil {
		used := (min(int(le.Uint16(b[2:])), len(b)) + 1) * extentSize
		changed, err := w.node(block, b, min(used, len(b)))
		if err != nil {
			return err
		}
		if changed {
			n.sumExtents(b)
			if err := n.fs.write(block, b); err != nil {
				return err
			}
		}
	}
	return n.extents(w, b, depth)
}

// sumExtents makes the checksum of a block of extents right.
func (n inode) sumExtents(b []byte) {
	at := (int(le.Uint16(b[4:])) + 1) * extentSize
	if n.fs.sums() && at+4 <= len(b) {
		le.PutUint32(b[at:], checksum(n.own(), b[:at]))
	}
}

// pointers tells of a map of blocks: twelve, and trees of one, two and three levels.
func (n inode) pointers(w walker) error {
	m := n.blockMap()
	per := uint64(n.fs.blockSize) / 4
	logical := uint64(0)
	for i := range 15 {
		levels, covers := max(i-11, 0), uint64(1)
		for range levels {
			covers *= per
		}
		if err := n.pointer(w, le.Uint32(m[i*4:]), levels, logical); err != nil {
			return err
		}
		logical += covers
	}
	return nil
}

func (n inode) pointer(w walker, p uint32, levels int, logical uint64) error {
	block := uint64(p)
	switch {
	case block == 0:
		return nil
	case block >= n.fs.blocks:
		return broken("inode %d: block %d", n.ino, block)
	}
	if err := n.spend(w, 1); err != nil {
		return err
	}
	switch {
	case levels == 0 && w.data != nil:
		return w.data(run{logical: logical, phys: block, count: 1})
	case levels == 0:
		return nil
	}
	b, err := n.fs.read(block)
	if err != nil {
		return err
	}
	if w.node != nil {
		if _, err := w.node(block, b, len(b)); err != nil {
			return err
		}
	}
	covers := uint64(1)
	for range levels - 1 {
		covers *= uint64(len(b)) / 4
	}
	for i := range len(b) / 4 {
		if err := n.pointer(w, le.Uint32(b[i*4:]), levels-1, logical+uint64(i)*covers); err != nil {
			return err
		}
	}
	return nil
}
