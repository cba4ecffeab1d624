package ext4

// directBlocks are named in the inode itself; the three numbers behind them lead to blocks of
// numbers, one, two and three levels deep.
const directBlocks = 12

// blockMap finds the blocks of an inode without extents, as ext2 and ext3 have them. It keeps
// the last block of numbers.
type blockMap struct {
	inode   *Inode
	numbers []byte
	lo, hi  uint64 // the logical blocks that the numbers are of
}

func (m *blockMap) at(logical uint64) (Extent, error) {
	if logical < m.lo || logical >= m.hi {
		hole, err := m.find(logical)
		if err != nil || hole.Blocks > 0 {
			return hole, err
		}
	}
	// A run goes on for as long as the numbers follow one another, or are all zero.
	n := logical - m.lo
	first := uint64(le.Uint32(m.numbers[4*n:]))
	e := Extent{Logical: logical, Physical: first, Blocks: 1}
	for n++; n < m.hi-m.lo; n++ {
		next := uint64(le.Uint32(m.numbers[4*n:]))
		if first == 0 && next != 0 || first != 0 && next != first+e.Blocks {
			break
		}
		e.Blocks++
	}
	if first != 0 {
		return e, m.inode.checkRun(first, e.Blocks)
	}
	return e, nil
}

// find reads the block of numbers that a logical block's is in. Where there is none, the hole
// up to the next that there could be is returned.
func (m *blockMap) find(logical uint64) (hole Extent, err error) {
	area := m.inode.area()
	if logical < directBlocks {
		m.numbers, m.lo, m.hi = append(m.numbers[:0], area[:4*directBlocks]...), 0, directBlocks
		return Extent{}, nil
	}
	m.lo, m.hi = 0, 0
	perBlock := uint64(m.inode.fs.super.BlockSize / 4)
	start, span := uint64(directBlocks), perBlock
	for level := range 3 {
		if logical < start+span {
			number := le.Uint32(area[4*(directBlocks+level):])
			return m.descend(uint64(number), logical, start, span)
		}
		start += span
		span *= perBlock
	}
	return Extent{Logical: logical, Blocks: maxInodeBlocks}, nil // no block can have such a number
}

// descend goes down to the numbers of logical, from a block for the span of them that begins at start.
func (m *blockMap) descend(block, logical, start, span uint64) (hole Extent, err error) {
	perBlock := uint64(m.inode.fs.super.BlockSize / 4)
	for {
		if block == 0 {
			return Extent{Logical: logical, Blocks: start + span - logical}, nil
		}
		if err := m.inode.checkRun(block, 1); err != nil {
			return Extent{}, err
		}
		if span == perBlock {
			return Extent{}, m.load(block, start)
		}
		span /= perBlock
		n := (logical - start) / span
		start += n * span
		var number [4]byte
		if err := m.inode.fs.dev.meta(block, int(4*n), number[:]); err != nil {
			return Extent{}, within(m.inode.Number, err)
		}
		block = uint64(le.Uint32(number[:]))
	}
}

func (m *blockMap) load(block, start uint64) error {
	size := m.inode.fs.super.BlockSize
	if cap(m.numbers) < size {
		m.numbers = make([]byte, size)
	}
	m.numbers = m.numbers[:size]
	if err := m.inode.fs.dev.meta(block, 0, m.numbers); err != nil {
		return within(m.inode.Number, err)
	}
	m.lo, m.hi = start, start+uint64(size/4)
	return nil
}
