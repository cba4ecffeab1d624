package ext4

// Group is a group of blocks and inodes.
type Group struct {
	BlockBitmap uint64 // blocks of these
	InodeBitmap uint64
	InodeTable  uint64
	// InodesUninit and BlocksUninit say that the bitmap was never written: nothing, or its
	// own tables alone, are in use.
	InodesUninit bool
	BlocksUninit bool
	UnusedInodes uint32 // at the end of its table, never used
}

// Group reads the descriptor of a group, which is counted from 0.
func (f *FS) Group(group uint32) (Group, error) {
	if last := f.last.Load(); last != nil && last.number == group {
		return last.Group, nil
	}
	g, err := f.readGroup(group)
	if err == nil {
		f.last.Store(&numbered{group, g})
	}
	return g, err
}

func (f *FS) readGroup(group uint32) (Group, error) {
	s := f.super
	if group >= s.groups {
		return Group{}, damaged(0, "group %d of %d", group, s.groups)
	}
	perBlock := uint32(s.BlockSize / s.descSize)
	var buf [1024]byte
	b := buf[:s.descSize]
	if err := f.dev.meta(s.descriptorBlock(group/perBlock), int(group%perBlock)*s.descSize, b); err != nil {
		return Group{}, err
	}
	if !s.groupSumIsRight(group, b) {
		return Group{}, damaged(0, "the descriptor of group %d has a wrong checksum", group)
	}
	flags := le.Uint16(b[0x12:])
	g := Group{
		BlockBitmap: uint64(le.Uint32(b)), InodeBitmap: uint64(le.Uint32(b[4:])), InodeTable: uint64(le.Uint32(b[8:])),
		UnusedInodes: uint32(le.Uint16(b[0x1c:])),
	}
	if s.descSize >= 64 {
		g.BlockBitmap |= uint64(le.Uint32(b[0x20:])) << 32
		g.InodeBitmap |= uint64(le.Uint32(b[0x24:])) << 32
		g.InodeTable |= uint64(le.Uint32(b[0x28:])) << 32
		g.UnusedInodes |= uint32(le.Uint16(b[0x32:])) << 16
	}
	if s.roCompat&(roGDTCsum|roMetadataCsum) == 0 {
		g.UnusedInodes = 0
	} else {
		g.InodesUninit, g.BlocksUninit = flags&1 != 0, flags&2 != 0
	}
	table := (uint64(s.GroupInodes)*uint64(s.InodeSize) + uint64(s.BlockSize) - 1) / uint64(s.BlockSize)
	if g.InodeTable < s.FirstBlock || g.InodeTable >= s.Blocks || table > s.Blocks-g.InodeTable ||
		g.BlockBitmap >= s.Blocks || g.InodeBitmap >= s.Blocks || g.UnusedInodes > s.GroupInodes {
		return Group{}, damaged(0, "the tables of group %d lie outside", group)
	}
	return g, nil
}

// descriptorBlock is where the nth block of descriptors lies.
func (s *Super) descriptorBlock(n uint32) uint64 {
	if s.incompat&incompatMetaBG == 0 || n < s.firstMetaBG {
		return s.superBlock() + 1 + uint64(n)
	}
	group := n * uint32(s.BlockSize/s.descSize)
	at := s.FirstBlock + uint64(group)*uint64(s.GroupBlocks)
	if s.hasBackup(group) {
		at++
	}
	if s.BlockSize == 1024 && n == 0 && s.FirstBlock == 0 {
		at++ // the superblock is in block 1
	}
	return at
}

func (s *Super) groupSumIsRight(group uint32, b []byte) bool {
	const field = 0x1e
	number := le.AppendUint32(nil, group)
	want := le.Uint16(b[field:])
	switch {
	case s.MetadataCsum:
		crc := crc32c(crc32c(s.seed, number), b[:field])
		return uint16(crc32c(crc32c(crc, zeros[:2]), b[field+2:])) == want
	case s.roCompat&roGDTCsum != 0:
		crc := crc16(crc16(crc16(^uint16(0), s.UUID[:]), number), b[:field])
		return crc16(crc, b[field+2:]) == want
	}
	return true
}
