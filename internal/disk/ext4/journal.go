package ext4

import (
	"encoding/binary"
	"io"
)

var be = binary.BigEndian

// journalMagic begins each block of a journal that is not a copy of another block.
var journalMagic = [4]byte{0xc0, 0x3b, 0x39, 0x98}

// The kinds of blocks in a journal.
const (
	journalDescriptor = 1
	journalCommit     = 2
	journalSuper1     = 3
	journalSuper2     = 4
	journalRevoke     = 5
)

// The features of a journal.
const (
	journalCompatSum   = 0x1
	journalIncRevoke   = 0x1
	journalInc64bit    = 0x2
	journalIncAsync    = 0x4
	journalIncSum2     = 0x8
	journalIncSum3     = 0x10
	journalIncFast     = 0x20
	journalIncRead     = journalIncRevoke | journalInc64bit | journalIncAsync | journalIncSum2 | journalIncSum3 | journalIncFast
	defaultFastBlocks  = 256
	minLogBlocks       = 1024 // a smaller log has no fast commits beside it
	journalHeaderBytes = 12
	// maxReplayed and maxRevoked bound what is remembered of a journal.
	maxReplayed = 1 << 19
	maxRevoked  = 1 << 19
)

// journal is a log of blocks in an inode.
type journal struct {
	fs       *FS
	file     *File
	m        mapping
	compat   uint32
	incompat uint32
	seed     uint32 // of its checksums
	first    uint32 // its log is from this block
	last     uint32 // to before this one, and wraps
	start    uint32 // where the log begins; 0: it is empty
	sequence uint32 // of the first transaction there
	blocks   uint32 // in all, with those for fast commits
}

// readJournal returns where the newest contents of blocks lie.
func (f *FS) readJournal() (map[uint64]int64, error) {
	s := f.super
	switch {
	case s.JournalInode == 0 && (s.journalDevice != 0 || s.journalDevUUID):
		return nil, unsupported(0, "it was not unmounted, and its journal is on another device")
	case s.JournalInode == 0:
		return nil, damaged(0, "it was not unmounted, and has no journal")
	}
	i, err := f.Inode(s.JournalInode)
	if err != nil {
		return nil, err
	}
	if i.Type() != Regular || i.Links == 0 {
		return nil, damaged(i.Number, "the journal is no file")
	}
	j := &journal{fs: f}
	if j.file, err = i.Open(); err != nil {
		return nil, err
	}
	if j.file.inline != nil {
		return nil, damaged(i.Number, "the journal lies in its inode")
	}
	j.m = i.mapping()
	if err := j.readSuper(); err != nil || j.start == 0 {
		return nil, err
	}
	return j.replay()
}

func (j *journal) damaged(format string, args ...any) error {
	return damaged(j.file.inode.Number, "journal: "+format, args...)
}

// readSuper reads the journal's own superblock.
func (j *journal) readSuper() error {
	var b [superBytes]byte
	if _, err := io.ReadFull(io.NewSectionReader(j.file, 0, superBytes), b[:]); err != nil {
		return within(j.file.inode.Number, err)
	}
	kind := be.Uint32(b[4:])
	if [4]byte(b[:]) != journalMagic || kind != journalSuper1 && kind != journalSuper2 {
		return j.damaged("it has no superblock")
	}
	if size := be.Uint32(b[0xc:]); int64(size) != int64(j.fs.super.BlockSize) {
		return j.damaged("blocks of %d bytes, and the file system has some of %d", size, j.fs.super.BlockSize)
	}
	j.blocks, j.first = be.Uint32(b[0x10:]), be.Uint32(b[0x14:])
	j.sequence, j.start = be.Uint32(b[0x18:]), be.Uint32(b[0x1c:])
	j.last = j.blocks
	if kind == journalSuper2 {
		if err := j.readFeatures(b); err != nil {
			return err
		}
	}
	if int64(j.blocks) > j.file.Size()/int64(j.fs.super.BlockSize) || j.first == 0 || j.first >= j.last || j.start != 0 && (j.start < j.first || j.start >= j.last) {
		return j.damaged("a log of blocks %d to %d from %d on, in %d", j.first, j.last, j.start, j.file.Size()/int64(j.fs.super.BlockSize))
	}
	return nil
}

func (j *journal) readFeatures(b [superBytes]byte) error {
	j.compat, j.incompat = be.Uint32(b[0x24:]), be.Uint32(b[0x28:])
	if unknown := j.incompat &^ journalIncRead; unknown != 0 {
		return unsupported(j.file.inode.Number, "journal: incompat bits %#x", unknown)
	}
	if j.incompat&journalIncSum2 != 0 && j.incompat&journalIncSum3 != 0 {
		return j.damaged("two kinds of checksums")
	}
	j.seed = crc32c(^uint32(0), b[0x30:0x40])
	if j.hasSums() {
		if kind := b[0x50]; kind != 4 {
			return unsupported(j.file.inode.Number, "journal: checksums of kind %d", kind)
		}
		want := be.Uint32(b[0xfc:])
		clear(b[0xfc:0x100])
		if crc32c(^uint32(0), b[:]) != want {
			return j.damaged("its superblock has a wrong checksum")
		}
	}
	if j.incompat&journalIncFast != 0 {
		fast := be.Uint32(b[0x54:])
		if fast == 0 {
			fast = defaultFastBlocks
		}
		if fast >= j.blocks {
			return j.damaged("%d of its %d blocks are for fast commits", fast, j.blocks)
		}
		if j.blocks-fast >= minLogBlocks {
			j.last = j.blocks - fast
		}
	}
	return nil
}

// hasSums reports whether each of its blocks has a checksum.
func (j *journal) hasSums() bool { return j.incompat&(journalIncSum2|journalIncSum3) != 0 }

// where is a block of the journal, by its number in the image.
func (j *journal) where(block uint32) (uint64, error) {
	e, err := j.m.at(uint64(block))
	if err != nil {
		return 0, err
	}
	if e.Physical == 0 {
		return 0, j.damaged("a hole at its block %d", block)
	}
	return e.Physical, nil
}

// read reads a block of the journal.
func (j *journal) read(block uint32, p []byte) error {
	at, err := j.where(block)
	if err != nil {
		return err
	}
	return within(j.file.inode.Number, j.fs.dev.read(at, 0, p))
}

// after is the block n further on, where the log wraps.
func (j *journal) after(block, n uint32) uint32 {
	size := j.last - j.first
	return j.first + uint32((uint64(block-j.first)+uint64(n))%uint64(size))
}

// checkFast refuses fast commits that come after the last transaction.
func (j *journal) checkFast(sequence uint32, buf []byte) error {
	if j.incompat&journalIncFast == 0 || j.blocks-j.last < 2 {
		return nil
	}
	if err := j.read(j.last+1, buf); err != nil { // one block between is nobody's
		return err
	}
	const head = 9 // the tag that one begins with; its features and its transaction follow
	if le.Uint16(buf) == head && le.Uint16(buf[2:]) >= 8 && le.Uint32(buf[8:]) == sequence {
		return unsupported(j.file.inode.Number, "journal: fast commits of transaction %d; mount the file system once, or run e2fsck", sequence)
	}
	return nil
}
