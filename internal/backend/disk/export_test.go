package disk

// ParseSuperblock is the parser for its fuzz target: blocks, free ones,
// inodes, free ones.
func ParseSuperblock(b []byte) ([4]uint64, error) {
	s, err := parseSuperblock(b)
	return [4]uint64{s.blocks, s.freeBlocks, uint64(s.inodes), uint64(s.freeInodes)}, err
}
