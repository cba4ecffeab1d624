package ext4

import (
	"bytes"
	"io/fs"
	"iter"
)

// Entry is a name in a directory.
type Entry struct {
	Name  string // any bytes but NUL and a slash, at most 255; neither . nor ..
	Inode uint32
	Type  Type // None where the file system does not keep types in directories, or it is none of them
}

// entryTypes are the types by their numbers in entries.
var entryTypes = [...]Type{1: Regular, Directory, CharDevice, BlockDevice, Fifo, Socket, Symlink}

const (
	entryHead   = 8 // bytes of an entry before its name
	dirTailLen  = 12
	dirTailMark = 0xde
	inlineStart = 4 // behind the parent's number
)

// Entries yields the names in a directory as they come, without . and .., a block at a time.
// After an error nothing more comes.
func (i *Inode) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if i.Type() != Directory {
			yield(Entry{}, &Error{Inode: i.Number, Kind: ErrNotDirectory})
			return
		}
		if err := i.readable(); err != nil {
			yield(Entry{}, err)
			return
		}
		if i.Flags&flagInline != 0 {
			i.inlineEntries(yield)
			return
		}
		i.blockEntries(yield)
	}
}

func (i *Inode) inlineEntries(yield func(Entry, error) bool) {
	content, err := i.inlineContent()
	if err == nil && len(content) < inlineStart {
		err = damaged(i.Number, "a directory of %d bytes", len(content))
	}
	if err != nil {
		yield(Entry{}, err)
		return
	}
	// What lies in the place of blocks, and what lies in the attribute, end an entry each.
	first := min(len(content), blockAreaBytes)
	if i.parseEntries(content[inlineStart:first], yield) {
		i.parseEntries(content[first:], yield)
	}
}

func (i *Inode) blockEntries(yield func(Entry, error) bool) {
	size := int64(i.fs.super.BlockSize)
	if i.Size%size != 0 || uint64(i.Size/size) > i.fs.super.Blocks {
		yield(Entry{}, damaged(i.Number, "a directory of %d bytes", i.Size))
		return
	}
	block, m := make([]byte, size), i.mapping()
	var run Extent
	for n := uint64(0); n < uint64(i.Size/size); n++ {
		if n == run.Logical+run.Blocks {
			var err error
			if run, err = m.at(n); err != nil {
				yield(Entry{}, err)
				return
			}
		}
		if run.Physical == 0 || run.Unwritten {
			yield(Entry{}, damaged(i.Number, "a directory with a hole at its block %d", n))
			return
		}
		err := i.fs.dev.read(run.Physical+n-run.Logical, 0, block)
		if err == nil {
			err = i.checkDirBlock(block, n)
		}
		if err != nil {
			yield(Entry{}, within(i.Number, err))
			return
		}
		if !i.parseEntries(block, yield) {
			return
		}
	}
}

// parseEntries yields those of a block, which they fill. It reports whether to go on.
func (i *Inode) parseEntries(block []byte, yield func(Entry, error) bool) bool {
	for at := 0; at < len(block); {
		b := block[at:]
		if len(b) < entryHead {
			yield(Entry{}, damaged(i.Number, "a directory has %d bytes behind its last entry", len(b)))
			return false
		}
		length, name := entryLength(b, i.fs.super.BlockSize), int(b[6])
		if length%4 != 0 || length > len(b) || entryHead+name > length {
			yield(Entry{}, damaged(i.Number, "an entry of %d bytes with a name of %d, at byte %d of %d in its directory", length, name, at, len(block)))
			return false
		}
		at += length
		inode := le.Uint32(b)
		if inode == 0 {
			continue // none, or one that was removed
		}
		e, err := i.entry(inode, b[entryHead:entryHead+name], b[7])
		if err != nil {
			yield(Entry{}, err)
			return false
		}
		if e.Name != "." && e.Name != ".." && !yield(e, nil) {
			return false
		}
	}
	return true
}

// entryLength decodes the length of an entry: one of 64 KiB does not fit into 16 bits.
func entryLength(b []byte, blockSize int) int {
	n := int(le.Uint16(b[4:]))
	if blockSize < 1<<16 {
		return n
	}
	if n == 1<<16-1 || n == 0 {
		return blockSize
	}
	return n&^3 | n&3<<16
}

func (i *Inode) entry(inode uint32, name []byte, kind byte) (Entry, error) {
	if len(name) == 0 || bytes.IndexByte(name, 0) >= 0 || bytes.IndexByte(name, '/') >= 0 {
		return Entry{}, damaged(i.Number, "a directory with the name %q", name)
	}
	if inode > i.fs.super.Inodes {
		return Entry{}, damaged(i.Number, "the name %q leads to inode %d of %d", name, inode, i.fs.super.Inodes)
	}
	e := Entry{Name: string(name), Inode: inode}
	if i.fs.super.incompat&incompatFiletype != 0 && int(kind) < len(entryTypes) {
		e.Type = entryTypes[kind]
	}
	return e, nil
}

// checkDirBlock verifies the checksum of a block: one of entries ends with it, one of an
// index has it behind the room for the index.
func (i *Inode) checkDirBlock(block []byte, n uint64) error {
	s := i.fs.super
	if !s.MetadataCsum {
		return nil
	}
	if i.Flags&flagIndex != 0 && s.compat&compatDirIndex != 0 && (n == 0 || entryLength(block, s.BlockSize) == s.BlockSize) {
		return i.checkIndexBlock(block, n)
	}
	tail := block[len(block)-dirTailLen:]
	if le.Uint32(tail) != 0 || le.Uint16(tail[4:]) != dirTailLen || tail[6] != 0 || tail[7] != dirTailMark {
		return damaged(i.Number, "block %d of the directory has no checksum", n)
	}
	if crc32c(i.seed, block[:len(block)-dirTailLen]) != le.Uint32(tail[8:]) {
		return damaged(i.Number, "block %d of the directory has a wrong checksum", n)
	}
	return nil
}

// checkIndexBlock verifies that of the root of an index, behind . and .., or of a node.
func (i *Inode) checkIndexBlock(block []byte, n uint64) error {
	counts := entryHead
	if n == 0 && entryLength(block, i.fs.super.BlockSize) == 12 {
		counts = 32
	}
	limit, count := int(le.Uint16(block[counts:])), int(le.Uint16(block[counts+2:]))
	tail := counts + 8*limit
	if count > limit || tail+8 > len(block) {
		return damaged(i.Number, "block %d of the directory has an index of %d entries of %d", n, count, limit)
	}
	crc := crc32c(i.seed, block[:counts+8*count])
	crc = crc32c(crc32c(crc, block[tail:tail+4]), zeros[:])
	if crc != le.Uint32(block[tail+4:]) {
		return damaged(i.Number, "block %d of the directory has an index with a wrong checksum", n)
	}
	return nil
}

// Lookup finds an inode by its name in a directory, or fs.ErrNotExist. It reads the directory
// from its beginning.
func (i *Inode) Lookup(name string) (*Inode, error) {
	for e, err := range i.Entries() {
		if err != nil {
			return nil, err
		}
		if e.Name == name {
			return i.fs.Inode(e.Inode)
		}
	}
	return nil, fs.ErrNotExist
}
