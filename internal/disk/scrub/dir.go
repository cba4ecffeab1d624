package scrub

// entry is one of a directory: its place in a block, and what it says.
type entry struct {
	at, length int // in the block, with what is unused behind the name
	ino        uint32
	name       []byte
}

const (
	entryHead = 8    // bytes before a name
	tailSize  = 12   // of what looks like an entry and holds a block's checksum
	tailType  = 0xDE // its type
)

// entries calls f for each entry of b, part of a directory, unused ones and a checksum's too.
func (n inode) entries(b []byte, f func(e entry) error) error {
	for at := 0; at < len(b); {
		if at+entryHead > len(b) {
			return broken("directory %d: an entry that is cut off", n.ino)
		}
		length := entryLength(le.Uint16(b[at+4:]))
		name := int(b[at+6])
		if length < entryHead || length%4 != 0 || at+length > len(b) || entryHead+name > length {
			return broken("directory %d: an entry of %d bytes", n.ino, length)
		}
		if err := f(entry{at, length, le.Uint32(b[at:]), b[at+entryHead:][:name]}); err != nil {
			return err
		}
		at += length
	}
	return nil
}

// entryLength is the length of an entry: blocks of 64 KiB need one bit more.
func entryLength(n uint16) int {
	if n == 0xFFFF || n == 0 {
		return 1 << 16
	}
	return int(n&0xFFFC) | int(n&3)<<16
}

// putEntryLength is the other way round.
func putEntryLength(b []byte, n int) {
	if n >= 1<<16 {
		n = 0xFFFF
	}
	le.PutUint16(b, uint16(n))
}

// dirBlocks calls f for the blocks of a directory that has them, in the order of their
// number in it.
func (n inode) dirBlocks(f func(logical, block uint64) error) error {
	return n.walk(walker{data: func(r run) error {
		if r.unwritten {
			return broken("directory %d: blocks that were never written", n.ino)
		}
		for i := range r.count {
			if err := f(r.logical+i, r.phys+i); err != nil {
				return err
			}
		}
		return nil
	}})
}

// inlineParts are the pieces of a directory whose entries are in the inode itself.
func (n inode) inlineParts() ([][]byte, error) {
	parts := [][]byte{n.blockMap()[4:]} // before it, the directory above
	value, err := n.inlineValue()
	if len(value) > 0 {
		parts = append(parts, value)
	}
	return parts, err
}

// each calls f for the entries of a directory that are used, but "." and "..".
func (n inode) each(f func(e entry) error) error {
	used := func(e entry) error {
		if name := string(e.name); e.ino == 0 || name == "." || name == ".." {
			return nil
		}
		return f(e)
	}
	if n.has(flagInline) {
		parts, err := n.inlineParts()
		for _, p := range parts {
			if err == nil {
				err = n.entries(p, used)
			}
		}
		return err
	}
	last := (n.size() + uint64(n.fs.blockSize) - 1) / uint64(n.fs.blockSize)
	return n.dirBlocks(func(logical, block uint64) error {
		if logical >= last {
			return nil
		}
		b, err := n.fs.read(block)
		if err != nil {
			return err
		}
		return n.entries(b, used) // the nodes of an index look as if they had none
	})
}

// tail is where a block's checksum begins, in a directory's block that has one.
func (n inode) tail() int {
	if n.fs.sums() {
		return int(n.fs.blockSize) - tailSize
	}
	return int(n.fs.blockSize)
}

// sumLeaf makes the checksum of a directory's block right.
func (n inode) sumLeaf(b []byte) {
	if at := n.tail(); at < len(b) {
		clear(b[at:])
		putEntryLength(b[at+4:], tailSize)
		b[at+7] = tailType
		le.PutUint32(b[at+8:], checksum(n.own(), b[:at]))
	}
}

// cleanEntries makes zeros of what is not used between the entries of b, and reports
// whether there was something.
func (n inode) cleanEntries(b []byte) (changed bool, err error) {
	err = n.entries(b, func(e entry) error {
		if e.ino == 0 && e.length == tailSize && b[e.at+7] == tailType && e.at+e.length == len(b) {
			return nil // its checksum
		}
		used := entryHead + len(e.name)
		if e.ino == 0 {
			used = entryHead
			changed = wipe(b[e.at+6:][:2]) || changed
		}
		changed = wipe(b[e.at+used:e.at+e.length]) || changed
		return nil
	})
	return changed, err
}

// Where the index of a directory is, in its first block and in the others.
const (
	rootInfo  = 0x18
	nodeIndex = 8
	indexSize = 8 // bytes of an entry
	maxLevels = 3
)

// indexAt is where the index in a directory's first block begins, and how many levels of
// nodes are below.
func (n inode) indexAt(b []byte) (at, levels int, err error) {
	at, levels = rootInfo+int(b[rootInfo+5]), int(b[rootInfo+6])
	if at != rootInfo+8 || levels > maxLevels {
		return 0, 0, broken("directory %d: an index of %d levels", n.ino, levels)
	}
	return at, levels, nil
}

// index returns how many entries the index at b[at:] has, and may have.
func (n inode) index(b []byte, at int) (count, limit int, err error) {
	limit, count = int(le.Uint16(b[at:])), int(le.Uint16(b[at+2:]))
	room := len(b) - at
	if n.fs.sums() {
		room -= 8
	}
	if count > limit || limit*indexSize > room {
		return 0, 0, broken("directory %d: %d of %d entries in an index", n.ino, count, limit)
	}
	return count, limit, nil
}

// cleanIndex is cleanEntries for a block of an index that begins at b[at:].
func (n inode) cleanIndex(b []byte, at int) (bool, error) {
	count, limit, err := n.index(b, at)
	if err != nil {
		return false, err
	}
	changed := wipe(b[at+count*indexSize : at+limit*indexSize])
	end := at + limit*indexSize
	if n.fs.sums() {
		end += 8
	}
	changed = wipe(b[end:]) || changed
	if at == nodeIndex {
		changed = wipe(b[6:8]) || changed
	} else {
		changed = wipe(b[9:12]) || changed // behind "." and ".."
		changed = wipe(b[22:24]) || changed
	}
	if changed && n.fs.sums() {
		sum := checksum(n.own(), b[:at+count*indexSize])
		sum = checksum(sum, b[end-8:end-4])
		le.PutUint32(b[end-4:], checksum(sum, make([]byte, 4)))
	}
	return changed, nil
}

// indexNodes returns the blocks, by their number in the directory, that are nodes of its
// index.
func (n inode) indexNodes(blocks map[uint64]uint64) (map[uint64]bool, error) {
	nodes := map[uint64]bool{}
	if !n.has(flagIndexed) {
		return nodes, nil
	}
	first, ok := blocks[0]
	if !ok {
		return nil, broken("directory %d: no first block", n.ino)
	}
	b, err := n.fs.read(first)
	if err != nil {
		return nil, err
	}
	at, levels, err := n.indexAt(b)
	if err != nil {
		return nil, err
	}
	return nodes, n.nodesBelow(b, at, levels, blocks, nodes)
}

func (n inode) nodesBelow(b []byte, at, levels int, blocks map[uint64]uint64, nodes map[uint64]bool) error {
	if levels == 0 {
		return nil
	}
	count, _, err := n.index(b, at)
	if err != nil {
		return err
	}
	for i := range count {
		logical := uint64(le.Uint32(b[at+i*indexSize+4:]) & 0x0FFFFFFF)
		block, ok := blocks[logical]
		if !ok || nodes[logical] || logical == 0 {
			return broken("directory %d: block %d of its index", n.ino, logical)
		}
		nodes[logical] = true
		below, err := n.fs.read(block)
		if err != nil {
			return err
		}
		if err := n.nodesBelow(below, nodeIndex, levels-1, blocks, nodes); err != nil {
			return err
		}
	}
	return nil
}

// cleanDir makes zeros of what is not used in a directory's blocks.
func (n inode) cleanDir() error {
	if n.has(flagEncrypted) {
		return nil // names are ciphers, and may have a hash behind them
	}
	blocks := map[uint64]uint64{}
	var order []uint64
	err := n.dirBlocks(func(logical, block uint64) error {
		blocks[logical] = block
		order = append(order, logical)
		return nil
	})
	if err != nil {
		return err
	}
	nodes, err := n.indexNodes(blocks)
	if err != nil {
		return err
	}
	last := (n.size() + uint64(n.fs.blockSize) - 1) / uint64(n.fs.blockSize)
	for _, logical := range order {
		if logical >= last {
			err = n.fs.zero(blocks[logical], 1)
		} else {
			err = n.cleanDirBlock(logical, blocks[logical], nodes[logical])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n inode) cleanDirBlock(logical, block uint64, node bool) error {
	b, err := n.fs.read(block)
	if err != nil {
		return err
	}
	var changed bool
	switch {
	case node:
		changed, err = n.cleanIndex(b, nodeIndex)
	case logical == 0 && n.has(flagIndexed):
		var at int
		if at, _, err = n.indexAt(b); err == nil {
			changed, err = n.cleanIndex(b, at)
		}
	default:
		if changed, err = n.cleanEntries(b); changed {
			n.sumLeaf(b)
		}
	}
	if err != nil || !changed {
		return err
	}
	return n.fs.write(block, b)
}
