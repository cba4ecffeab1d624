package ext4

import (
	"io"
	"sync/atomic"
)

// FS is a file system that is open for reading. Several goroutines may use it.
type FS struct {
	dev   *device
	super *Super
	last  atomic.Pointer[numbered] // the group that was asked for last
}

type numbered struct {
	number uint32
	Group
}

// RootInode is the number of the root directory.
const RootInode = 2

// Open reads the superblock of an image of so many bytes, and finds what its journal has to
// be replayed. Errors are ErrDamaged, ErrUnsupported and those of r.
func Open(r io.ReaderAt, size int64) (*FS, error) {
	dev := newDevice(r, superBytes, 2)
	var raw [superBytes]byte
	if err := dev.read(1, 0, raw[:]); err != nil {
		return nil, within(0, err)
	}
	s, err := parseSuper(raw[:])
	if err != nil {
		return nil, err
	}
	f := &FS{dev: newDevice(r, s.BlockSize, s.Blocks), super: s}
	if s.incompat&incompatRecover != 0 {
		if err := f.recover(); err != nil {
			return nil, within(0, err)
		}
	}
	if s := f.super; size/int64(s.BlockSize) < int64(s.Blocks) {
		return nil, damaged(0, "it has %d blocks of %d bytes, and the image is %d bytes long", s.Blocks, s.BlockSize, size)
	}
	return f, nil
}

// recover replays the journal, and reads the superblock once more.
func (f *FS) recover() error {
	blocks, err := f.readJournal()
	if err != nil {
		return err
	}
	f.dev.replay(blocks)
	var raw [superBytes]byte
	at := f.super.superBlock()
	if err := f.dev.read(at, superOffset-int64(at)*int64(f.super.BlockSize), raw[:]); err != nil {
		return err
	}
	s, err := parseSuper(raw[:])
	if err != nil {
		return err
	}
	if s.BlockSize != f.super.BlockSize {
		return damaged(0, "the journal changes the size of blocks from %d to %d", f.super.BlockSize, s.BlockSize)
	}
	s.Recovered = true
	f.super, f.dev.blocks = s, s.Blocks
	f.last.Store(nil)
	return nil
}

// Super is what the file system says of itself.
func (f *FS) Super() Super { return *f.super }

// ReadBlock fills p, of a block's size, as the block is once the journal is replayed.
func (f *FS) ReadBlock(block uint64, p []byte) error {
	return f.dev.read(block, 0, p[:f.super.BlockSize])
}

// Root is the root directory.
func (f *FS) Root() (*Inode, error) { return f.Inode(RootInode) }
