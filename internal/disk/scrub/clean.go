package scrub

import (
	"encoding/binary"
	"fmt"
)

// clean claims what an inode has, and makes zeros of what it has no use for, in its blocks
// and in itself. It reports whether the inode itself is another now.
func (e *eraser) clean(n inode) (bool, error) {
	if n.empty() || n.ino == inoBad && allZero(n.blockMap()) {
		return false, nil
	}
	before := append([]byte(nil), n.raw...)
	if err := e.content(n); err != nil {
		return false, err
	}
	if block := n.attributeBlock(); block != 0 && !e.shared[block] {
		e.shared[block] = true
		if err := e.claim(block, 1); err != nil {
			return false, err
		}
		if e.erases(partAttributes) {
			if err := n.cleanAttributeBlock(block); err != nil {
				return false, err
			}
		}
	}
	if e.erases(partAttributes) {
		if err := n.cleanInside(); err != nil {
			return false, err
		}
	}
	if string(before) == string(n.raw) {
		return false, nil
	}
	n.sum()
	return true, nil
}

// content is clean for what an inode has in its blocks, or in the place of their map.
func (e *eraser) content(n inode) error {
	switch {
	case n.ino == inoResize:
		return e.resizeInode(n)
	case e.compat&compatJournal != 0 && n.ino == e.journalInode:
		return e.journal(n)
	case n.has(flagInline):
		return e.inline(n)
	case n.fastLink():
		if e.erases(partTails) {
			clear(n.blockMap()[n.size():])
		}
		return nil
	}
	switch n.kind() {
	case typeChar, typeBlock:
		if e.erases(partTails) {
			clear(n.blockMap()[8:])
		}
		return nil
	case typeFIFO, typeSocket:
		if e.erases(partTails) {
			clear(n.blockMap())
		}
		return nil
	}
	if err := n.walk(walker{data: e.file(n), node: e.node}); err != nil {
		return err
	}
	if n.has(flagExtents) && e.erases(partNodes) {
		m := n.blockMap()
		clear(m[(int(le.Uint16(m[2:]))+1)*extentSize:])
	}
	if n.kind() == typeDir && e.erases(partDirectories) {
		return n.cleanDir()
	}
	return nil
}

// file returns what is done with each piece of a file.
func (e *eraser) file(n inode) func(run) error {
	size := n.size()
	whole, last := size/uint64(e.blockSize), (size+uint64(e.blockSize)-1)/uint64(e.blockSize)
	opaque := n.has(flagEncrypted) || n.has(flagVerity) || n.kind() == typeDir || n.ino == inoBad
	return func(r run) error {
		if err := e.claim(r.phys, r.count); err != nil {
			return fmt.Errorf("inode %d: %w", n.ino, err)
		}
		switch {
		case !e.erases(partTails):
			return nil
		case r.unwritten:
			return e.zero(r.phys, r.count)
		case opaque: // whose ends are not where their size is
			return nil
		}
		if r.logical+r.count > last {
			from := max(last, r.logical)
			if err := e.zero(r.phys+from-r.logical, r.logical+r.count-from); err != nil {
				return err
			}
		}
		if whole != last && whole >= r.logical && whole < r.logical+r.count {
			return e.cleanFrom(r.phys+whole-r.logical, int64(size%uint64(e.blockSize)))
		}
		return nil
	}
}

// node claims a block that says where others are, and cleans what is behind what it says.
func (e *eraser) node(block uint64, b []byte, used int) (bool, error) {
	if err := e.claim(block, 1); err != nil {
		return false, err
	}
	if !e.erases(partNodes) || used == len(b) {
		return false, nil
	}
	end := min((int(le.Uint16(b[4:]))+1)*extentSize, len(b))
	changed := wipe(b[min(used, end):end])
	if e.sums() {
		end = min(end+4, len(b)) // its checksum
	}
	return wipe(b[end:]) || changed, nil
}

// inline cleans behind the end of what is in the place of the map of blocks.
func (e *eraser) inline(n inode) error {
	value, err := n.inlineValue()
	if err != nil {
		return err
	}
	if n.kind() == typeDir {
		if !e.erases(partDirectories) {
			return nil
		}
		parts, err := n.inlineParts()
		for _, p := range parts {
			if err == nil {
				_, err = n.cleanEntries(p)
			}
		}
		return err
	}
	if !e.erases(partTails) {
		return nil
	}
	size := n.size()
	if size < mapSize {
		clear(n.blockMap()[size:])
		clear(value)
	} else if size-mapSize < uint64(len(value)) {
		clear(value[size-mapSize:])
	}
	return nil
}

// resizeInode claims what the inode has that keeps blocks free for descriptors, but those.
func (e *eraser) resizeInode(n inode) error {
	block := uint64(le.Uint32(n.blockMap()[13*4:]))
	if block == 0 {
		return nil
	}
	return e.claim(block, 1)
}

// journal claims the blocks of the journal and makes zeros of all but its superblock, which
// says that nothing is to be replayed.
func (e *eraser) journal(n inode) error {
	return n.walk(walker{node: e.node, data: func(r run) error {
		if err := e.claim(r.phys, r.count); err != nil {
			return err
		}
		if r.logical == 0 {
			if err := e.journalStart(r.phys); err != nil {
				return err
			}
			r.phys, r.count = r.phys+1, r.count-1
		}
		if !e.erases(partJournal) {
			return nil
		}
		return e.zero(r.phys, r.count)
	}})
}

// journalStart looks at the journal's superblock.
func (e *eraser) journalStart(block uint64) error {
	b, err := e.read(block)
	if err != nil {
		return err
	}
	be := binary.BigEndian
	if be.Uint32(b) != 0xC03B3998 || be.Uint32(b[0x1C:]) != 0 {
		return broken("the journal was not replayed")
	}
	if !e.erases(partJournal) {
		return nil
	}
	return e.cleanFrom(block, superSize)
}
