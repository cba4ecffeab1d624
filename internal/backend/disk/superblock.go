package disk

import (
	"encoding/binary"
	"errors"
)

// superblock is what this package reads of an ext4 superblock.
type superblock struct {
	blockSize          int64
	blocks, freeBlocks uint64
	inodes, freeInodes uint32
	recover            bool // the journal must be replayed
}

// Where the superblock is, and how long.
const (
	superblockOffset = 1024
	superblockSize   = 1024
)

var errNotExt4 = errors.New("not an ext4 file system")

// parseSuperblock reads the superblock of an ext2, ext3 or ext4 file system.
func parseSuperblock(b []byte) (superblock, error) {
	le := binary.LittleEndian
	if len(b) < superblockSize || le.Uint16(b[0x38:]) != 0xEF53 {
		return superblock{}, errNotExt4
	}
	const incompatRecover, incompat64bit = 0x4, 0x80
	incompat := le.Uint32(b[0x60:])
	logBlock := le.Uint32(b[0x18:])
	if logBlock > 6 {
		return superblock{}, errNotExt4
	}
	s := superblock{
		blockSize:  1024 << logBlock,
		blocks:     uint64(le.Uint32(b[0x04:])),
		freeBlocks: uint64(le.Uint32(b[0x0C:])),
		inodes:     le.Uint32(b[0x00:]),
		freeInodes: le.Uint32(b[0x10:]),
		recover:    incompat&incompatRecover != 0,
	}
	if incompat&incompat64bit != 0 {
		s.blocks |= uint64(le.Uint32(b[0x150:])) << 32
		s.freeBlocks |= uint64(le.Uint32(b[0x158:])) << 32
	}
	if s.blocks > 1<<48 || s.freeBlocks > s.blocks || s.freeInodes > s.inodes {
		return superblock{}, errNotExt4
	}
	return s, nil
}
