package ext4

import "time"

// Type is what an inode is.
type Type uint8

// The types. None is of an inode that is not in use, or whose mode means nothing.
const (
	None Type = iota
	Regular
	Directory
	Symlink
	CharDevice
	BlockDevice
	Fifo
	Socket
)

// Flags of inodes.
const (
	flagEncrypt  = 0x800
	flagIndex    = 0x1000
	flagExtents  = 0x80000
	flagEAInode  = 0x200000
	flagInline   = 0x10000000
	flagCasefold = 0x40000000
)

// The places of fields that are read more than once.
const (
	blockArea      = 0x28 // where an inode's blocks, or its content, are
	blockAreaBytes = 60
	oldInodeSize   = 128 // of inodes without extra fields
	maxInodeBlocks = 1 << 32
)

// Inode is a file, a directory or the like. It does not change.
type Inode struct {
	Number uint32
	Mode   uint16 // with the type in its four highest bits
	UID    uint32
	GID    uint32
	Size   int64 // in bytes
	Links  uint16
	// The times are zero where they are not kept.
	Accessed, Changed, Modified, Born, Deleted time.Time
	Generation                                 uint32
	Flags                                      uint32
	XattrBlock                                 uint64 // 0: none

	fs   *FS
	raw  []byte
	seed uint32 // of checksums of what is its own
}

// Inode reads an inode by its number, which is at least 1. One that was never used is of type None.
func (f *FS) Inode(number uint32) (*Inode, error) {
	block, off, err := f.locate(number)
	if err != nil {
		return nil, within(number, err)
	}
	raw := make([]byte, f.super.InodeSize)
	if err := f.dev.meta(block, off, raw); err != nil {
		return nil, within(number, err)
	}
	i := &Inode{Number: number, fs: f, raw: raw}
	if err := i.verify(); err != nil {
		return nil, err
	}
	i.parse()
	return i, i.check()
}

// InodeOffset is where an inode lies in the image, in bytes, were its journal replayed.
func (f *FS) InodeOffset(number uint32) (int64, error) {
	block, off, err := f.locate(number)
	return int64(block)*int64(f.super.BlockSize) + int64(off), within(number, err)
}

// locate finds an inode's block, and its place there.
func (f *FS) locate(number uint32) (block uint64, off int, err error) {
	s := f.super
	if number == 0 || number > s.Inodes {
		return 0, 0, damaged(0, "there are inodes from 1 to %d", s.Inodes)
	}
	group, index := (number-1)/s.GroupInodes, (number-1)%s.GroupInodes
	g, err := f.Group(group)
	if err != nil {
		return 0, 0, err
	}
	at := uint64(index) * uint64(s.InodeSize)
	return g.InodeTable + at/uint64(s.BlockSize), int(at % uint64(s.BlockSize)), nil
}

// verify compares the checksum. An inode that was never written has none.
func (i *Inode) verify() error {
	if !i.fs.super.MetadataCsum || isZero(i.raw) {
		return nil
	}
	i.seed = crc32c(crc32cU32(i.fs.super.seed, i.Number), i.raw[0x64:0x68])
	crc := crc32c(crc32c(i.seed, i.raw[:0x7c]), zeros[:2])
	want, mask := uint32(le.Uint16(i.raw[0x7c:])), uint32(0xffff)
	crc = crc32c(crc, i.raw[0x7e:oldInodeSize])
	if len(i.raw) > oldInodeSize {
		rest := i.raw[0x82:]
		crc = crc32c(crc, i.raw[oldInodeSize:0x82])
		if i.extra() >= 4 {
			want, mask = want|uint32(le.Uint16(rest))<<16, ^uint32(0)
			crc, rest = crc32c(crc, zeros[:2]), rest[2:]
		}
		crc = crc32c(crc, rest)
	}
	if crc&mask != want {
		return damaged(i.Number, "it has a wrong checksum")
	}
	return nil
}

func isZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

// extra is how many bytes of fields there are behind those of old inodes.
func (i *Inode) extra() int {
	if len(i.raw) == oldInodeSize {
		return 0
	}
	return int(le.Uint16(i.raw[0x80:]))
}

func (i *Inode) parse() {
	b := i.raw
	i.Mode = le.Uint16(b)
	i.UID = uint32(le.Uint16(b[0x2:])) | uint32(le.Uint16(b[0x78:]))<<16
	i.GID = uint32(le.Uint16(b[0x18:])) | uint32(le.Uint16(b[0x7a:]))<<16
	i.Links, i.Flags, i.Generation = le.Uint16(b[0x1a:]), le.Uint32(b[0x20:]), le.Uint32(b[0x64:])
	i.XattrBlock = uint64(le.Uint32(b[0x68:])) | uint64(le.Uint16(b[0x76:]))<<32
	i.Size = int64(le.Uint32(b[0x4:]))
	if t := i.Type(); t == Regular || t == Directory && i.fs.super.incompat&incompatLargeDir != 0 {
		i.Size |= int64(le.Uint32(b[0x6c:])) << 32
	}
	i.Accessed, i.Changed = i.time(0x8, 0x8c), i.time(0xc, 0x84)
	i.Modified, i.Deleted = i.time(0x10, 0x88), i.time(0x14, len(b))
	if i.extra() >= 0x98-oldInodeSize {
		i.Born = i.time(0x90, 0x94)
	}
}

// time reads a time: seconds, and where the inode is large enough two more bits of them, and
// nanoseconds.
func (i *Inode) time(at, extra int) time.Time {
	seconds, nanos := int64(int32(le.Uint32(i.raw[at:]))), int64(0)
	if extra+4 <= min(oldInodeSize+i.extra(), len(i.raw)) {
		more := le.Uint32(i.raw[extra:])
		seconds += int64(more&3) << 32
		nanos = min(int64(more>>2), 1e9-1)
	}
	if seconds == 0 && nanos == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, nanos)
}

// check bounds what the rest of the package relies on.
func (i *Inode) check() error {
	s := i.fs.super
	if x := i.extra(); x%4 != 0 || x > len(i.raw)-oldInodeSize {
		return damaged(i.Number, "%d bytes of further fields in one of %d", x, len(i.raw))
	}
	if i.Size < 0 || uint64(i.Size) > maxInodeBlocks*uint64(s.BlockSize) {
		return damaged(i.Number, "a size of %d bytes", i.Size)
	}
	if i.XattrBlock != 0 && (i.XattrBlock <= s.FirstBlock || i.XattrBlock >= s.Blocks) {
		return damaged(i.Number, "its attributes are in block %d of %d", i.XattrBlock, s.Blocks)
	}
	return nil
}

// Type is what it is, by its mode.
func (i *Inode) Type() Type {
	switch i.Mode >> 12 {
	case 0x8:
		return Regular
	case 0x4:
		return Directory
	case 0xa:
		return Symlink
	case 0x2:
		return CharDevice
	case 0x6:
		return BlockDevice
	case 0x1:
		return Fifo
	case 0xc:
		return Socket
	}
	return None
}

// Device is the number of a device, zeros for anything else.
func (i *Inode) Device() (major, minor uint32) {
	if t := i.Type(); t != CharDevice && t != BlockDevice {
		return 0, 0
	}
	area := i.area()
	if old := le.Uint32(area); old != 0 {
		return old >> 8 & 0xff, old & 0xff
	}
	v := le.Uint32(area[4:])
	return v >> 8 & 0xfff, v&0xff | v>>12&0xfff00
}

// Inline reports whether its content lies in the inode itself: a small file's or directory's,
// by a flag, or a short link's target.
func (i *Inode) Inline() bool { return i.Flags&flagInline != 0 || i.fastLink() }

// Encrypted reports whether its content, its names or its target are encrypted.
func (i *Inode) Encrypted() bool { return i.Flags&flagEncrypt != 0 }

// area is where its blocks are named, or its content lies.
func (i *Inode) area() []byte { return i.raw[blockArea : blockArea+blockAreaBytes] }

// readable refuses what is not read of any content.
func (i *Inode) readable() error {
	switch {
	case i.Encrypted():
		return unsupported(i.Number, "it is encrypted")
	case i.Flags&flagCasefold != 0 && i.Type() == Directory:
		return unsupported(i.Number, "it is a directory that folds case")
	case i.Flags&flagEAInode != 0:
		return unsupported(i.Number, "it is the value of an extended attribute")
	case i.Flags&flagInline != 0 && i.fs.super.incompat&incompatInlineData == 0:
		return damaged(i.Number, "its content lies in it, which the file system does not have")
	case i.Flags&flagExtents != 0 && i.fs.super.incompat&incompatExtents == 0:
		return damaged(i.Number, "it has extents, which the file system does not have")
	}
	return nil
}
