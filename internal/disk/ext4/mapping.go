package ext4

import "iter"

// Extent is a run of an inode's blocks.
type Extent struct {
	Logical  uint64 // the first block, counted in the inode
	Physical uint64 // the first block, counted in the image; 0: a hole, which reads as zeros
	Blocks   uint64
	// Unwritten blocks belong to the inode and read as zeros.
	Unwritten bool
}

// mapping tells where the blocks of an inode lie. It remembers where it was.
type mapping interface {
	// at returns the run that goes on from a logical block, be it a hole. It has a block at least.
	at(logical uint64) (Extent, error)
}

// mapping returns how an inode's blocks are found. What has none must not ask.
func (i *Inode) mapping() mapping {
	if i.Flags&flagExtents != 0 {
		return &extentTree{inode: i}
	}
	return &blockMap{inode: i}
}

// Extents yields the runs of blocks that belong to an inode, in their order, without holes; also
// those behind its size. Inline content and short links have none.
func (i *Inode) Extents() iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		if t := i.Type(); i.Inline() || t != Regular && t != Directory && t != Symlink {
			return
		}
		m := i.mapping()
		// No more runs and holes than all blocks of the image could name.
		left := i.fs.super.Blocks * uint64(i.fs.super.BlockSize/4)
		for at := uint64(0); at < maxInodeBlocks; left-- {
			e, err := m.at(at)
			if err == nil && left == 0 {
				err = damaged(i.Number, "more runs of blocks than the image has room for")
			}
			if err != nil {
				yield(Extent{}, err)
				return
			}
			if e.Physical != 0 && !yield(e, nil) {
				return
			}
			at = e.Logical + e.Blocks
		}
	}
}

// checkRun bounds a run of blocks of the image.
func (i *Inode) checkRun(physical, blocks uint64) error {
	s := i.fs.super
	if physical <= s.superBlock() || physical >= s.Blocks || blocks > s.Blocks-physical {
		return damaged(i.Number, "%d blocks from block %d on lie outside", blocks, physical)
	}
	return nil
}
