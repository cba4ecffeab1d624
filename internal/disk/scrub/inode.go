package scrub

import (
	"fmt"
)

// Flags and types of an inode.
const (
	flagEncrypted = 0x800
	flagIndexed   = 0x1000
	flagExtents   = 0x80000
	flagVerity    = 0x100000
	flagInline    = 0x10000000
	flagCasefold  = 0x40000000

	typeMask    = 0xF000
	typeFIFO    = 0x1000
	typeChar    = 0x2000
	typeDir     = 0x4000
	typeBlock   = 0x6000
	typeRegular = 0x8000
	typeLink    = 0xA000
	typeSocket  = 0xC000
)

// mapSize is how many bytes of an inode say where its blocks are, or are its content.
const mapSize = 60

// inode is one as it is in its table.
type inode struct {
	fs  *fileSystem
	ino uint32
	raw []byte
}

// inodeAt is where an inode lies in the image.
func (fs *fileSystem) inodeAt(ino uint32) (int64, error) {
	if ino == 0 || ino > fs.inodes {
		return 0, broken("inode %d of %d", ino, fs.inodes)
	}
	g, i := (ino-1)/fs.inodesPerGroup, (ino-1)%fs.inodesPerGroup
	return int64(fs.desc[g].inodeTable)*fs.blockSize + int64(i)*int64(fs.inodeSize), nil
}

func (fs *fileSystem) inode(ino uint32) (inode, error) {
	at, err := fs.inodeAt(ino)
	if err != nil {
		return inode{}, err
	}
	n := inode{fs, ino, make([]byte, fs.inodeSize)}
	if _, err := fs.f.ReadAt(n.raw, at); err != nil {
		return inode{}, fmt.Errorf("read inode %d: %w", ino, err)
	}
	return n, nil
}

// store writes an inode to its table.
func (n inode) store() error {
	at, err := n.fs.inodeAt(n.ino)
	if err == nil {
		n.sum()
		_, err = n.fs.f.WriteAt(n.raw, at)
	}
	if err != nil {
		return fmt.Errorf("write inode %d: %w", n.ino, err)
	}
	return nil
}

func (n inode) mode() uint16     { return le.Uint16(n.raw[0x00:]) }
func (n inode) kind() uint16     { return n.mode() & typeMask }
func (n inode) links() uint16    { return le.Uint16(n.raw[0x1A:]) }
func (n inode) flags() uint32    { return le.Uint32(n.raw[0x20:]) }
func (n inode) blockMap() []byte { return n.raw[0x28:][:mapSize] }

func (n inode) has(flag uint32) bool { return n.flags()&flag != 0 }

// size is how many bytes the content has.
func (n inode) size() uint64 {
	size := uint64(le.Uint32(n.raw[0x04:]))
	if k := n.kind(); k == typeRegular || k == typeDir {
		size |= uint64(le.Uint32(n.raw[0x6C:])) << 32
	}
	return size
}

// attributeBlock is the block of its extended attributes; 0: it has none.
func (n inode) attributeBlock() uint64 {
	b := uint64(le.Uint32(n.raw[0x68:]))
	if n.fs.incompat&incompat64 != 0 {
		b |= uint64(le.Uint16(n.raw[0x76:])) << 32
	}
	return b
}

// extra is the end of the fields; behind it are extended attributes.
func (n inode) extra() (int, error) {
	if len(n.raw) == 128 {
		return 128, nil
	}
	end := 128 + int(le.Uint16(n.raw[0x80:]))
	if end > len(n.raw) || end%4 != 0 {
		return 0, broken("inode %d has %d bytes of fields", n.ino, end)
	}
	return end, nil
}

// fastLink reports whether its content is the target of a symbolic link.
func (n inode) fastLink() bool {
	return n.kind() == typeLink && n.size() < mapSize && !n.has(flagInline)
}

// own begins the checksums of what belongs to it.
func (n inode) own() uint32 {
	var b [4]byte
	le.PutUint32(b[:], n.ino)
	sum := checksum(n.fs.seed, b[:])
	return checksum(sum, n.raw[0x64:0x68]) // its generation
}

// sum makes its checksum right.
func (n inode) sum() {
	if !n.fs.sums() || n.empty() {
		return // one of zeros is free, and has none
	}
	wide := len(n.raw) > 128 && le.Uint16(n.raw[0x80:]) >= 4
	le.PutUint16(n.raw[0x7C:], 0)
	if wide {
		le.PutUint16(n.raw[0x82:], 0)
	}
	sum := checksum(n.own(), n.raw)
	le.PutUint16(n.raw[0x7C:], uint16(sum))
	if wide {
		le.PutUint16(n.raw[0x82:], uint16(sum>>16))
	}
}

func (n inode) empty() bool { return allZero(n.raw) }

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// wipe makes b zeros, and reports whether it was something else.
func wipe(b []byte) bool {
	if allZero(b) {
		return false
	}
	clear(b)
	return true
}
