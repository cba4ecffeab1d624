package ext4

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// cacheBytes is what the blocks take that are kept because they are asked for again: tables
// of inodes, group descriptors and nodes of extent trees.
const cacheBytes = 1 << 20

// device is an image by its blocks. Several goroutines may read from it.
type device struct {
	r         io.ReaderAt
	blockSize int
	blocks    uint64 // of the file system: no block behind them is read
	// replayed is where the newest content of a block lies: its offset in the image, doubled,
	// and one more where the journal has zeros in the place of its own magic number.
	replayed map[uint64]int64

	mu    sync.Mutex
	slots []slot
}

// slot keeps a block. Which slot a block may have is fixed by its number.
type slot struct {
	block uint64 // and one more, so that zero is none
	data  []byte
}

func newDevice(r io.ReaderAt, blockSize int, blocks uint64) *device {
	return &device{r: r, blockSize: blockSize, blocks: blocks, slots: make([]slot, max(16, cacheBytes/blockSize))}
}

// replay has blocks read from where a journal has them.
func (d *device) replay(blocks map[uint64]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replayed = blocks
	clear(d.slots)
}

// read fills p from an offset in a block on. Blocks follow one another.
func (d *device) read(block uint64, off int64, p []byte) error {
	block += uint64(off) / uint64(d.blockSize)
	off %= int64(d.blockSize)
	end := off + int64(len(p))
	if count := uint64(end+int64(d.blockSize)-1) / uint64(d.blockSize); block >= d.blocks || count > d.blocks-block {
		return damaged(0, "block %d is behind the end", block)
	}
	if len(d.replayed) == 0 {
		return d.readImage(int64(block)*int64(d.blockSize)+off, p)
	}
	for len(p) > 0 {
		n, err := d.readRun(block, off, p)
		if err != nil {
			return err
		}
		p = p[n:]
		block += uint64(off+int64(n)) / uint64(d.blockSize)
		off = (off + int64(n)) % int64(d.blockSize)
	}
	return nil
}

// readRun reads from one block that the journal has, or from all up to the next such.
func (d *device) readRun(block uint64, off int64, p []byte) (int, error) {
	inBlock := min(int64(len(p)), int64(d.blockSize)-off)
	if at, ok := d.replayed[block]; ok {
		p = p[:inBlock]
		if err := d.readImage(at>>1+off, p); err != nil {
			return 0, err
		}
		if at&1 != 0 && off < int64(len(journalMagic)) {
			copy(p, journalMagic[off:])
		}
		return len(p), nil
	}
	n := inBlock
	for b := block + 1; n < int64(len(p)); b++ {
		if _, ok := d.replayed[b]; ok {
			break
		}
		n = min(n+int64(d.blockSize), int64(len(p)))
	}
	return int(n), d.readImage(int64(block)*int64(d.blockSize)+off, p[:n])
}

func (d *device) readImage(at int64, p []byte) error {
	n, err := d.r.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) || err == nil {
		return damaged(0, "the image ends before byte %d", at+int64(len(p)))
	}
	return fmt.Errorf("read at byte %d: %w", at, err)
}

// meta is read for a part of one block, which is kept.
func (d *device) meta(block uint64, off int, p []byte) error {
	if off < 0 || len(p) > d.blockSize-off {
		return damaged(0, "something lies across the end of block %d", block)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.slots[block%uint64(len(d.slots))]
	if s.block != block+1 {
		if s.data == nil {
			s.data = make([]byte, d.blockSize)
		}
		s.block = 0
		if err := d.read(block, 0, s.data); err != nil {
			return err
		}
		s.block = block + 1
	}
	copy(p, s.data[off:])
	return nil
}
