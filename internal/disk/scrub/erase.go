package scrub

import (
	"context"
	"fmt"
	"math/bits"
)

// part is one kind of place in which erased content lies on. Tests leave one out, to see
// that it is found then.
type part uint

const (
	partFree        part = 1 << iota // blocks that nothing has
	partInodes                       // inodes that nothing has
	partJournal                      // what was written to the journal
	partTails                        // behind the ends of files, and what was never written of them
	partNodes                        // behind what says where blocks are
	partDirectories                  // between the entries of directories
	partAttributes                   // between extended attributes
	partTables                       // behind superblocks and descriptors, and maps that are not in use
)

// eraser makes zeros of all that no file has.
type eraser struct {
	*fileSystem
	keep     part
	used     []uint64        // by block: whether something has it
	shared   map[uint64]bool // blocks of attributes, which several files may have
	progress func(done, total uint64)
}

// erase makes zeros of all that no file has, of a file system that was just checked.
func (fs *fileSystem) erase(ctx context.Context, keep part, progress func(done, total uint64)) error {
	e := &eraser{fs, keep, make([]uint64, (fs.blocks+63)/64), map[uint64]bool{}, progress}
	if err := e.tables(); err != nil {
		return err
	}
	for g := range fs.groups {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := e.inodesOf(ctx, g); err != nil {
			return err
		}
		e.progress(g, 2*fs.groups)
	}
	if err := e.compare(ctx); err != nil {
		return err
	}
	return e.freeBlocks(ctx)
}

func (e *eraser) erases(p part) bool { return e.keep&p == 0 }

// claim notes that something has blocks, which nothing else has.
func (e *eraser) claim(from, count uint64) error {
	if from >= e.blocks || count > e.blocks-from {
		return broken("blocks %d to %d of %d", from, from+count, e.blocks)
	}
	for b := from; b < from+count; b++ {
		if e.used[b/64]&(1<<(b%64)) != 0 {
			return broken("block %d is in two places", b)
		}
		e.used[b/64] |= 1 << (b % 64)
	}
	return nil
}

// tables claims what groups have of their own, and cleans it.
func (e *eraser) tables() error {
	for b := uint64(0); b < e.superBlock() && e.firstBlock == 0; b++ {
		if err := e.claim(b, 1); err != nil { // what a machine starts from
			return err
		}
	}
	for g := range e.groups {
		d := e.desc[g]
		for _, own := range [][2]uint64{{d.blockMap, 1}, {d.inodeMap, 1}, {d.inodeTable, e.tableBlocks()}} {
			if err := e.claim(own[0], own[1]); err != nil {
				return err
			}
		}
		if e.erases(partTables) && e.groupSums() {
			if err := e.unusedMaps(d); err != nil {
				return err
			}
		}
		if err := e.descriptors(g); err != nil {
			return fmt.Errorf("group %d: %w", g, err)
		}
	}
	return nil
}

// unusedMaps makes zeros of maps that nobody reads.
func (e *eraser) unusedMaps(d group) error {
	if d.flags&blocksUninit != 0 {
		if err := e.zero(d.blockMap, 1); err != nil {
			return err
		}
	}
	if d.flags&inodesUninit != 0 {
		return e.zero(d.inodeMap, 1)
	}
	return nil
}

// descriptors claims a group's superblock and descriptors, and those that are kept free for more.
func (e *eraser) descriptors(g uint64) error {
	if block, ok := e.metaDesc(g); ok {
		if err := e.claim(block, 1); err != nil {
			return err
		}
		if err := e.cleanBehind(block, e.descBytes(g/e.perDescBlock())); err != nil {
			return err
		}
	}
	if !e.hasSuper(g) {
		return nil
	}
	at := e.superOf(g)
	if err := e.claim(at, 1); err != nil {
		return err
	}
	behind := int64(superSize)
	if g == 0 && e.blockSize > superOffset {
		behind += superOffset
	}
	if err := e.cleanBehind(at, behind); err != nil {
		return err
	}
	if e.incompat&incompatMetaGroups != 0 && g/e.perDescBlock() >= e.firstMetaGroup {
		return nil
	}
	for n := range e.oldDescBlocks() {
		if err := e.claim(at+1+n, 1); err != nil {
			return err
		}
		if err := e.cleanBehind(at+1+n, e.descBytes(n)); err != nil {
			return err
		}
	}
	first := at + 1 + e.oldDescBlocks()
	if err := e.claim(first, e.reservedGDT); err != nil || !e.erases(partTables) {
		return err
	}
	if g != 0 {
		return e.zero(first, e.reservedGDT)
	}
	return e.cleanReserved(first)
}

// descBytes is how many bytes of the n-th block of descriptors are used.
func (e *eraser) descBytes(n uint64) int64 {
	return int64(min(e.perDescBlock(), e.groups-n*e.perDescBlock())) * int64(e.descSize)
}

// cleanBehind makes zeros of what is behind the first bytes of a block.
func (e *eraser) cleanBehind(block uint64, first int64) error {
	if !e.erases(partTables) {
		return nil
	}
	return e.cleanFrom(block, first)
}

// cleanFrom is cleanBehind for whichever part.
func (e *eraser) cleanFrom(block uint64, first int64) error {
	b, err := e.read(block)
	if err != nil || first >= e.blockSize || !wipe(b[first:]) {
		return err
	}
	return e.write(block, b)
}

// cleanReserved leaves in the blocks that the first group keeps free for descriptors the
// numbers alone of those of other groups.
func (e *eraser) cleanReserved(first uint64) error {
	backups := 0
	for g := uint64(1); g < e.groups; g++ {
		if e.hasSuper(g) {
			backups++
		}
	}
	for i := range e.reservedGDT {
		if err := e.cleanFrom(first+i, int64(backups)*4); err != nil {
			return err
		}
	}
	return nil
}

// tableChunk is how many bytes of a table of inodes are read at a time, at least.
const tableChunk = 1 << 18

// inodesOf looks at the inodes of a group: it frees those that nothing has of what they
// had, and claims and cleans what the others have.
func (e *eraser) inodesOf(ctx context.Context, g uint64) error {
	d := e.desc[g]
	if e.groupSums() && d.flags&inodesUninit != 0 {
		if !e.erases(partInodes) {
			return nil
		}
		return e.zero(d.inodeTable, e.tableBlocks())
	}
	inUse, err := e.read(d.inodeMap)
	if err != nil {
		return err
	}
	live := e.inodesPerGroup
	if e.groupSums() {
		live -= d.unusedInodes
	}
	perBlock := uint64(e.blockSize) / uint64(e.inodeSize)
	step := max(uint64(tableChunk)/uint64(e.blockSize), 1)
	for from := uint64(0); from < e.tableBlocks(); from += step {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		count := min(step, e.tableBlocks()-from)
		b := make([]byte, count*uint64(e.blockSize))
		at := int64(d.inodeTable+from) * e.blockSize
		if _, err := e.f.ReadAt(b, at); err != nil {
			return fmt.Errorf("read inodes of group %d: %w", g, err)
		}
		changed := false
		for i := range count * perBlock {
			k := from*perBlock + i
			raw := b[i*uint64(e.inodeSize):][:e.inodeSize]
			if k >= uint64(e.inodesPerGroup) || k >= uint64(live) || inUse[k/8]&(1<<(k%8)) == 0 {
				changed = e.erases(partInodes) && wipe(raw) || changed
				continue
			}
			did, err := e.clean(inode{e.fileSystem, uint32(g*uint64(e.inodesPerGroup)+k) + 1, raw})
			if err != nil {
				return err
			}
			changed = did || changed
		}
		if changed {
			if err := e.putTable(d.inodeTable+from, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// putTable writes blocks of inodes, holes in place of those that are zeros.
func (e *eraser) putTable(first uint64, b []byte) error {
	for i := uint64(0); len(b) > 0; i++ {
		var err error
		if block := b[:e.blockSize]; allZero(block) {
			err = e.zero(first+i, 1)
		} else {
			err = e.write(first+i, block)
		}
		if err != nil {
			return err
		}
		b = b[e.blockSize:]
	}
	return nil
}

// compare holds what was found of files against the maps of blocks: before anything that
// nothing seems to have is overwritten.
func (e *eraser) compare(ctx context.Context) error {
	for g, d := range e.desc {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if e.groupSums() && d.flags&blocksUninit != 0 {
			continue
		}
		b, err := e.read(d.blockMap)
		if err != nil {
			return err
		}
		start, end := e.start(uint64(g)), e.end(uint64(g))
		for i := uint64(0); start+i*e.perCluster < end; i++ {
			from := start + i*e.perCluster
			if used := e.any(from, min(from+e.perCluster, end)); used != (b[i/8]&(1<<(i%8)) != 0) {
				return broken("block %d: in use is %t, and its group says otherwise", from, used)
			}
		}
	}
	return nil
}

func (e *eraser) any(from, to uint64) bool {
	for b := from; b < to; b++ {
		if e.used[b/64]&(1<<(b%64)) != 0 {
			return true
		}
	}
	return false
}

// freeBlocks makes zeros of blocks that nothing has, and of what is behind the file system: it
// may have been larger once.
func (e *eraser) freeBlocks(ctx context.Context) error {
	if !e.erases(partFree) {
		return nil
	}
	fi, err := e.f.Stat()
	if err != nil {
		return err
	}
	if end := int64(e.blocks) * e.blockSize; fi.Size() > end {
		if err := e.zeroBytes(end, fi.Size()-end); err != nil {
			return err
		}
	}
	const step = 1 << 18 // blocks, between two looks at the context
	for at := e.firstBlock; at < e.blocks; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		from := e.next(at, false)
		to := min(e.next(from, true), from+step, e.blocks)
		if from >= e.blocks {
			break
		}
		if err := e.zero(from, to-from); err != nil {
			return err
		}
		at = to
		e.progress(e.groups+at/e.blocksPerGroup, 2*e.groups)
	}
	return nil
}

// next returns the first block from at on that something has, or that nothing has; the
// number of blocks where there is none.
func (e *eraser) next(at uint64, used bool) uint64 {
	for at < e.blocks {
		word := e.used[at/64]
		if !used {
			word = ^word
		}
		if word >>= at % 64; word != 0 {
			return min(at+uint64(bits.TrailingZeros64(word)), e.blocks)
		}
		at = (at/64 + 1) * 64
	}
	return e.blocks
}
