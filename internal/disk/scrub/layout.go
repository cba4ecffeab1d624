package scrub

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

var le = binary.LittleEndian

// Bits of the feature words of a superblock.
const (
	compatJournal = 0x4

	incompatJournalDevice = 0x8
	incompatMetaGroups    = 0x10
	incompat64            = 0x80
	incompatSeed          = 0x2000

	rocompatSparse  = 0x1
	rocompatGDTSums = 0x10
	rocompatSums    = 0x400
	compatSparse2   = 0x200
)

// The features that this package knows the structures of. Whichever else an image has, it is refused:
// what such a feature keeps in blocks of its own would be taken for free.
const (
	// filetype, recover, meta_bg, extents, 64bit, flex_bg, csum_seed, largedir, inline_data, encrypt, casefold
	knownIncompat = 0x2 | 0x4 | incompatMetaGroups | 0x40 | incompat64 | 0x200 | incompatSeed | 0x4000 | 0x8000 | 0x10000 | 0x20000
	// sparse_super, large_file, btree_dir, huge_file, gdt_csum, dir_nlink, extra_isize, quota, bigalloc,
	// metadata_csum, readonly, project, verity, orphan_present
	knownRocompat = rocompatSparse | 0x2 | 0x4 | 0x8 | rocompatGDTSums | 0x20 | 0x40 | 0x100 | 0x200 | rocompatSums | 0x1000 | 0x2000 | 0x8000 | 0x10000
)

// Flags of a group's descriptor.
const (
	inodesUninit = 0x1
	blocksUninit = 0x2
)

// Inodes with a meaning of their own.
const (
	inoBad     = 1
	inoRoot    = 2
	inoResize  = 7
	inoJournal = 8
)

const (
	superOffset = 1024
	superSize   = 1024
	maxInode    = 4096 // bytes of an inode
)

var errStructure = errors.New("a structure of the file system is broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errStructure}, args...)...)
}

// fileSystem is an ext4 file system in a file. It has been checked by e2fsck; what is read
// is bounded all the same.
type fileSystem struct {
	f *os.File

	blockSize      int64
	blocks         uint64
	firstBlock     uint64
	perCluster     uint64 // blocks
	blocksPerGroup uint64
	inodesPerGroup uint32
	inodes         uint32
	firstInode     uint32
	inodeSize      int
	groups         uint64
	descSize       int
	reservedGDT    uint64
	firstMetaGroup uint64
	sparse2        [2]uint32
	journalInode   uint32

	compat, incompat, rocompat uint32
	seed                       uint32 // of checksums
	desc                       []group
}

// group is a group's descriptor.
type group struct {
	blockMap, inodeMap, inodeTable uint64
	flags                          uint16
	unusedInodes                   uint32
}

// openFileSystem reads the superblock and the groups of an image.
func openFileSystem(f *os.File) (*fileSystem, error) {
	sb := make([]byte, superSize)
	if _, err := f.ReadAt(sb, superOffset); err != nil {
		return nil, broken("no superblock")
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	fs := &fileSystem{f: f}
	if err := fs.parse(sb, fi.Size()); err != nil {
		return nil, err
	}
	return fs, fs.readGroups()
}

// parse reads a superblock, of an image of so many bytes.
func (fs *fileSystem) parse(sb []byte, size int64) error {
	if le.Uint16(sb[0x38:]) != 0xEF53 {
		return broken("no superblock")
	}
	fs.compat, fs.incompat, fs.rocompat = le.Uint32(sb[0x5C:]), le.Uint32(sb[0x60:]), le.Uint32(sb[0x64:])
	if log := le.Uint32(sb[0x18:]); log <= 6 {
		fs.blockSize = 1024 << log
	} else {
		return broken("blocks of 2^%d KiB", log)
	}
	fs.perCluster = 1
	if log, block := le.Uint32(sb[0x1C:]), le.Uint32(sb[0x18:]); fs.rocompat&0x200 != 0 {
		if log < block || log-block > 20 {
			return broken("clusters of 2^%d KiB", log)
		}
		fs.perCluster = 1 << (log - block)
	}
	fs.blocks, fs.firstBlock = uint64(le.Uint32(sb[0x04:])), uint64(le.Uint32(sb[0x14:]))
	fs.descSize = 32
	if fs.incompat&incompat64 != 0 {
		fs.blocks |= uint64(le.Uint32(sb[0x150:])) << 32
		fs.descSize = int(le.Uint16(sb[0xFE:]))
	}
	fs.inodes, fs.inodesPerGroup = le.Uint32(sb[0x00:]), le.Uint32(sb[0x28:])
	fs.blocksPerGroup = uint64(le.Uint32(sb[0x20:]))
	fs.firstInode, fs.inodeSize = 11, 128
	if le.Uint32(sb[0x4C:]) > 0 {
		fs.firstInode, fs.inodeSize = le.Uint32(sb[0x54:]), int(le.Uint16(sb[0x58:]))
	}
	fs.reservedGDT, fs.firstMetaGroup = uint64(le.Uint16(sb[0xCE:])), uint64(le.Uint32(sb[0x104:]))
	fs.sparse2 = [2]uint32{le.Uint32(sb[0x24C:]), le.Uint32(sb[0x250:])}
	fs.journalInode = le.Uint32(sb[0xE0:])
	fs.seed = checksum(^uint32(0), sb[0x68:0x78])
	if fs.incompat&incompatSeed != 0 {
		fs.seed = le.Uint32(sb[0x270:])
	}
	return fs.bound(size)
}

// bound holds what a superblock says against itself and the size of the image.
func (fs *fileSystem) bound(size int64) error {
	switch {
	case fs.blocks == 0 || fs.blocks > uint64(size)/uint64(fs.blockSize):
		return broken("%d blocks in %d bytes", fs.blocks, size)
	case fs.firstBlock > 1 || fs.firstBlock >= fs.blocks:
		return broken("first block %d", fs.firstBlock)
	case fs.blocksPerGroup == 0 || fs.blocksPerGroup%fs.perCluster != 0 || fs.blocksPerGroup/fs.perCluster > uint64(fs.blockSize)*8:
		return broken("%d blocks per group", fs.blocksPerGroup)
	case fs.inodesPerGroup == 0 || int64(fs.inodesPerGroup) > fs.blockSize*8:
		return broken("%d inodes per group", fs.inodesPerGroup)
	case fs.inodeSize < 128 || fs.inodeSize > maxInode || int64(fs.inodeSize) > fs.blockSize || fs.inodeSize&(fs.inodeSize-1) != 0:
		return broken("inodes of %d bytes", fs.inodeSize)
	case fs.descSize < 32 || fs.descSize > 1024 || fs.descSize&(fs.descSize-1) != 0:
		return broken("descriptors of %d bytes", fs.descSize)
	}
	fs.groups = (fs.blocks - fs.firstBlock + fs.blocksPerGroup - 1) / fs.blocksPerGroup
	if fs.groups*uint64(fs.inodesPerGroup) != uint64(fs.inodes) {
		return broken("%d inodes in %d groups", fs.inodes, fs.groups)
	}
	if fs.perDescBlock() == 0 || fs.reservedGDT > uint64(fs.blockSize)/4 {
		return broken("%d reserved blocks for descriptors", fs.reservedGDT)
	}
	return nil
}

// perDescBlock is how many descriptors a block has.
func (fs *fileSystem) perDescBlock() uint64 { return uint64(fs.blockSize) / uint64(fs.descSize) }

// superBlock is the block that the first superblock is in.
func (fs *fileSystem) superBlock() uint64 { return uint64(superOffset / fs.blockSize) }

// start is the first block of a group.
func (fs *fileSystem) start(g uint64) uint64 { return fs.firstBlock + g*fs.blocksPerGroup }

// end is the block after the last one of a group.
func (fs *fileSystem) end(g uint64) uint64 { return min(fs.start(g)+fs.blocksPerGroup, fs.blocks) }

// tableBlocks is how many blocks a group's inodes take.
func (fs *fileSystem) tableBlocks() uint64 {
	return (uint64(fs.inodesPerGroup)*uint64(fs.inodeSize) + uint64(fs.blockSize) - 1) / uint64(fs.blockSize)
}

// hasSuper reports whether a group has a superblock.
func (fs *fileSystem) hasSuper(g uint64) bool {
	switch {
	case g == 0:
		return true
	case fs.compat&compatSparse2 != 0:
		return g == uint64(fs.sparse2[0]) || g == uint64(fs.sparse2[1])
	case g == 1 || fs.rocompat&rocompatSparse == 0:
		return true
	}
	for _, base := range []uint64{3, 5, 7} {
		n := base
		for n < g {
			n *= base
		}
		if n == g {
			return true
		}
	}
	return false
}

// superOf is the block of a group's superblock, in a group that has one.
func (fs *fileSystem) superOf(g uint64) uint64 {
	if g == 0 {
		return fs.superBlock()
	}
	return fs.start(g)
}

// oldDescBlocks is how many blocks of descriptors follow each superblock.
func (fs *fileSystem) oldDescBlocks() uint64 {
	n := (fs.groups + fs.perDescBlock() - 1) / fs.perDescBlock()
	if fs.incompat&incompatMetaGroups != 0 {
		n = min(n, fs.firstMetaGroup)
	}
	return n
}

// descAt is the block that the descriptors of the n-th so many groups are read from.
func (fs *fileSystem) descAt(n uint64) uint64 {
	if n < fs.oldDescBlocks() {
		return fs.superBlock() + 1 + n
	}
	g := n * fs.perDescBlock()
	if fs.hasSuper(g) {
		return fs.superOf(g) + 1
	}
	return fs.start(g)
}

// metaDesc returns the block of descriptors that a group has a copy of where these lie
// among the groups, if it has one.
func (fs *fileSystem) metaDesc(g uint64) (uint64, bool) {
	per := fs.perDescBlock()
	if fs.incompat&incompatMetaGroups == 0 || g/per < fs.oldDescBlocks() {
		return 0, false
	}
	if at := g % per; at != 0 && at != 1 && at != per-1 {
		return 0, false
	}
	if fs.hasSuper(g) {
		return fs.superOf(g) + 1, true
	}
	return fs.start(g), true
}

func (fs *fileSystem) readGroups() error {
	per := fs.perDescBlock()
	for g := uint64(0); g < fs.groups; g += per {
		b, err := fs.read(fs.descAt(g / per))
		if err != nil {
			return err
		}
		for i := uint64(0); i < per && g+i < fs.groups; i++ {
			d := parseGroup(b[i*uint64(fs.descSize):][:fs.descSize], fs.incompat&incompat64 != 0)
			if d.blockMap >= fs.blocks || d.inodeMap >= fs.blocks || d.inodeTable+fs.tableBlocks() > fs.blocks || d.unusedInodes > fs.inodesPerGroup {
				return broken("group %d", g+i)
			}
			fs.desc = append(fs.desc, d)
		}
	}
	return nil
}

func parseGroup(b []byte, wide bool) group {
	d := group{
		blockMap: uint64(le.Uint32(b[0x00:])), inodeMap: uint64(le.Uint32(b[0x04:])), inodeTable: uint64(le.Uint32(b[0x08:])),
		flags: le.Uint16(b[0x12:]), unusedInodes: uint32(le.Uint16(b[0x1C:])),
	}
	if wide && len(b) >= 64 {
		d.blockMap |= uint64(le.Uint32(b[0x20:])) << 32
		d.inodeMap |= uint64(le.Uint32(b[0x24:])) << 32
		d.inodeTable |= uint64(le.Uint32(b[0x28:])) << 32
		d.unusedInodes |= uint32(le.Uint16(b[0x32:])) << 16
	}
	return d
}

// groupSums reports whether groups say what of them was never written to.
func (fs *fileSystem) groupSums() bool { return fs.rocompat&(rocompatGDTSums|rocompatSums) != 0 }

// sums reports whether structures have checksums.
func (fs *fileSystem) sums() bool { return fs.rocompat&rocompatSums != 0 }

func (fs *fileSystem) read(block uint64) ([]byte, error) {
	if block >= fs.blocks {
		return nil, broken("block %d of %d", block, fs.blocks)
	}
	b := make([]byte, fs.blockSize)
	if _, err := fs.f.ReadAt(b, int64(block)*fs.blockSize); err != nil {
		return nil, fmt.Errorf("read block %d: %w", block, err)
	}
	return b, nil
}

func (fs *fileSystem) write(block uint64, b []byte) error {
	if block >= fs.blocks || int64(len(b)) != fs.blockSize {
		return broken("block %d of %d", block, fs.blocks)
	}
	if _, err := fs.f.WriteAt(b, int64(block)*fs.blockSize); err != nil {
		return fmt.Errorf("write block %d: %w", block, err)
	}
	return nil
}

// zero makes blocks zeros, as a hole where the file can have one.
func (fs *fileSystem) zero(from, count uint64) error {
	if count == 0 {
		return nil
	}
	if from >= fs.blocks || count > fs.blocks-from {
		return broken("blocks %d to %d of %d", from, from+count, fs.blocks)
	}
	return fs.zeroBytes(int64(from)*fs.blockSize, int64(count)*fs.blockSize)
}

// zeroBytes is zero for bytes of the image's file.
func (fs *fileSystem) zeroBytes(at, n int64) error {
	err := unix.Fallocate(int(fs.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		_, err = io.CopyN(io.NewOffsetWriter(fs.f, at), zeros{}, n)
	}
	if err != nil {
		return fmt.Errorf("erase bytes %d to %d: %w", at, at+n, err)
	}
	return nil
}

// zeros is read without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum goes on with a checksum as ext4 has it: without the two inversions.
func checksum(sum uint32, b []byte) uint32 { return ^crc32.Update(^sum, castagnoli, b) }
