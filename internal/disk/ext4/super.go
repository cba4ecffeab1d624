package ext4

import "math/bits"

// Where the superblock lies, and its length, in bytes.
const (
	superOffset = 1024
	superBytes  = 1024
	superMagic  = 0xef53
)

// Super is what a file system says of itself.
type Super struct {
	BlockSize      int    // in bytes, 1 KiB to 64 KiB
	ClusterBlocks  int    // blocks that are allocated together: 1 without bigalloc
	Blocks         uint64 // in all
	FirstBlock     uint64 // of the first group
	GroupBlocks    uint32 // of each group but the last
	GroupInodes    uint32 // of each group
	Inodes         uint32 // in all
	InodeSize      int    // in bytes
	FirstInode     uint32 // that is not the file system's own
	JournalInode   uint32 // 0: none
	UUID           [16]byte
	Recovered      bool // its journal was replayed
	MetadataCsum   bool // checksums of CRC-32C
	compat         uint32
	incompat       uint32
	roCompat       uint32
	descSize       int
	firstMetaBG    uint32
	backupGroups   [2]uint32
	seed           uint32 // that all checksums begin with
	groups         uint32
	journalDevice  uint32
	journalDevUUID bool
}

// Groups is how many groups of blocks there are.
func (s *Super) Groups() uint32 { return s.groups }

// parseSuper reads a superblock, and refuses one whose numbers do not go together.
func parseSuper(b []byte) (*Super, error) {
	if le.Uint16(b[0x38:]) != superMagic {
		return nil, damaged(0, "the magic number of ext4 is missing: is it an image of a file system?")
	}
	s := &Super{
		Inodes: le.Uint32(b), Blocks: uint64(le.Uint32(b[0x4:])), FirstBlock: uint64(le.Uint32(b[0x14:])),
		GroupBlocks: le.Uint32(b[0x20:]), GroupInodes: le.Uint32(b[0x28:]),
		InodeSize: 128, FirstInode: 11, descSize: 32, ClusterBlocks: 1, UUID: [16]byte(b[0x68:]),
	}
	if le.Uint32(b[0x4c:]) > 0 { // revision 0 has no features
		s.FirstInode, s.InodeSize = le.Uint32(b[0x54:]), int(le.Uint16(b[0x58:]))
		s.compat, s.incompat, s.roCompat = le.Uint32(b[0x5c:]), le.Uint32(b[0x60:]), le.Uint32(b[0x64:])
	}
	if err := s.checkFeatures(); err != nil {
		return nil, err
	}
	if err := s.parseSum(b); err != nil {
		return nil, err
	}
	if s.compat&compatHasJournal != 0 {
		s.JournalInode, s.journalDevice = le.Uint32(b[0xe0:]), le.Uint32(b[0xe4:])
		s.journalDevUUID = [16]byte(b[0xd0:]) != [16]byte{}
	}
	if s.incompat&incompat64bit != 0 {
		s.descSize = int(le.Uint16(b[0xfe:]))
		s.Blocks |= uint64(le.Uint32(b[0x150:])) << 32
	}
	s.firstMetaBG = le.Uint32(b[0x104:])
	s.backupGroups = [2]uint32{le.Uint32(b[0x24c:]), le.Uint32(b[0x250:])}
	if err := s.parseSizes(le.Uint32(b[0x18:]), le.Uint32(b[0x1c:])); err != nil {
		return nil, err
	}
	return s, s.checkGeometry()
}

// parseSum verifies the superblock's checksum, and finds what others begin with.
func (s *Super) parseSum(b []byte) error {
	s.MetadataCsum = s.roCompat&roMetadataCsum != 0
	if !s.MetadataCsum {
		return nil
	}
	if kind := b[0x175]; kind != 1 {
		return unsupported(0, "checksums of kind %d", kind)
	}
	if crc32c(^uint32(0), b[:0x3fc]) != le.Uint32(b[0x3fc:]) {
		return damaged(0, "the superblock has a wrong checksum")
	}
	s.seed = crc32c(^uint32(0), s.UUID[:])
	if s.incompat&incompatCsumSeed != 0 {
		s.seed = le.Uint32(b[0x270:])
	}
	return nil
}

func (s *Super) parseSizes(logBlock, logCluster uint32) error {
	if logBlock > 6 {
		return damaged(0, "blocks of 2^%d KiB", logBlock)
	}
	s.BlockSize = 1024 << logBlock
	if s.roCompat&roBigalloc == 0 {
		return nil
	}
	if logCluster < logBlock || logCluster > logBlock+15 {
		return damaged(0, "clusters of 2^%d KiB", logCluster)
	}
	s.ClusterBlocks = 1 << (logCluster - logBlock)
	return nil
}

// checkGeometry bounds what everything else is computed from.
func (s *Super) checkGeometry() error {
	perBitmap := uint64(s.BlockSize) * 8
	switch {
	case s.InodeSize < 128 || s.InodeSize > s.BlockSize || bits.OnesCount(uint(s.InodeSize)) != 1:
		return damaged(0, "inodes of %d bytes", s.InodeSize)
	case s.descSize < 32 || s.descSize > min(1024, s.BlockSize) || bits.OnesCount(uint(s.descSize)) != 1 || s.incompat&incompat64bit != 0 && s.descSize < 64:
		return damaged(0, "group descriptors of %d bytes", s.descSize)
	case s.GroupBlocks == 0 || uint64(s.GroupBlocks) > perBitmap*uint64(s.ClusterBlocks) || s.GroupBlocks%8 != 0:
		return damaged(0, "groups of %d blocks", s.GroupBlocks)
	case s.GroupInodes == 0 || uint64(s.GroupInodes) > perBitmap:
		return damaged(0, "groups of %d inodes", s.GroupInodes)
	case s.FirstBlock > 1 || s.FirstBlock == 1 && s.BlockSize != 1024 || s.Blocks <= s.FirstBlock:
		return damaged(0, "%d blocks from %d on", s.Blocks, s.FirstBlock)
	case s.Blocks > 1<<48 || s.Blocks > uint64(1<<62)/uint64(s.BlockSize):
		return damaged(0, "%d blocks", s.Blocks)
	}
	groups := (s.Blocks - s.FirstBlock + uint64(s.GroupBlocks) - 1) / uint64(s.GroupBlocks)
	if groups > 1<<32-1 || uint64(s.Inodes) != groups*uint64(s.GroupInodes) {
		return damaged(0, "%d inodes in %d groups of %d", s.Inodes, groups, s.GroupInodes)
	}
	s.groups = uint32(groups)
	return nil
}

// superBlock is the block with the superblock.
func (s *Super) superBlock() uint64 { return superOffset / uint64(s.BlockSize) }

// hasBackup reports whether a group begins with a copy of the superblock.
func (s *Super) hasBackup(group uint32) bool {
	switch {
	case group == 0:
		return true
	case s.compat&compatSparseSuper2 != 0:
		return group == s.backupGroups[0] || group == s.backupGroups[1]
	case group == 1 || s.roCompat&roSparseSuper == 0:
		return true
	}
	for _, base := range []uint32{3, 5, 7} {
		n := group
		for n%base == 0 {
			n /= base
		}
		if n == 1 {
			return true
		}
	}
	return false
}
