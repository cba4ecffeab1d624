package ext4

import "strings"

const (
	xattrMagic      = 0xea020000
	xattrEntryBytes = 16
	xattrHeadBytes  = 32 // of a block of attributes
	// maxXattr bounds a value; the kernel's bound for those without an inode of their own is a block.
	maxXattr = 64 << 10
)

// xattrPrefixes begin names, by the number that stands for them.
var xattrPrefixes = map[byte]string{
	0: "", 1: "user.", 2: "system.posix_acl_access", 3: "system.posix_acl_default", 4: "trusted.", 6: "security.", 7: "system.", 8: "system.richacl",
}

// Xattr reads an extended attribute by its whole name, such as trusted.overlay.opaque. Content
// that lies in the inode is one, system.data.
func (i *Inode) Xattr(name string) (value []byte, ok bool, err error) {
	if extra := i.extra(); extra > 0 && oldInodeSize+extra+4 <= len(i.raw) {
		area := i.raw[oldInodeSize+extra:]
		if le.Uint32(area) == xattrMagic {
			if value, ok, err = i.findXattr(area[4:], area[4:], name); ok || err != nil {
				return value, ok, err
			}
		}
	}
	if i.XattrBlock == 0 {
		return nil, false, nil
	}
	block := make([]byte, i.fs.super.BlockSize)
	if err := i.fs.dev.read(i.XattrBlock, 0, block); err != nil {
		return nil, false, within(i.Number, err)
	}
	if err := i.checkXattrBlock(block); err != nil {
		return nil, false, err
	}
	return i.findXattr(block[xattrHeadBytes:], block, name)
}

func (i *Inode) checkXattrBlock(block []byte) error {
	if le.Uint32(block) != xattrMagic {
		return damaged(i.Number, "block %d has no attributes", i.XattrBlock)
	}
	if !i.fs.super.MetadataCsum {
		return nil
	}
	crc := crc32c(i.fs.super.seed, le.AppendUint64(nil, i.XattrBlock))
	crc = crc32c(crc32c(crc, block[:0x10]), zeros[:])
	if crc32c(crc, block[0x14:]) != le.Uint32(block[0x10:]) {
		return damaged(i.Number, "block %d of attributes has a wrong checksum", i.XattrBlock)
	}
	return nil
}

// findXattr looks through entries, whose values lie at offsets in values.
func (i *Inode) findXattr(entries, values []byte, name string) (value []byte, ok bool, err error) {
	for len(entries) >= 4 && le.Uint32(entries) != 0 {
		if len(entries) < xattrEntryBytes {
			return nil, false, damaged(i.Number, "its attributes are cut off")
		}
		length := int(entries[0])
		if xattrEntryBytes+length > len(entries) {
			return nil, false, damaged(i.Number, "the name of an attribute is cut off")
		}
		prefix, known := xattrPrefixes[entries[1]]
		suffix, found := strings.CutPrefix(name, prefix)
		if known && found && suffix == string(entries[xattrEntryBytes:xattrEntryBytes+length]) {
			value, err = i.xattrValue(entries, values, name)
			return value, err == nil, err
		}
		entries = entries[min(len(entries), (xattrEntryBytes+length+3)&^3):]
	}
	return nil, false, nil
}

func (i *Inode) xattrValue(entry, values []byte, name string) ([]byte, error) {
	off, size := int(le.Uint16(entry[2:])), uint64(le.Uint32(entry[8:]))
	if inode := le.Uint32(entry[4:]); inode != 0 {
		return nil, unsupported(i.Number, "the attribute %q has its value in inode %d", name, inode)
	}
	if size > maxXattr || off > len(values) || int(size) > len(values)-off {
		return nil, damaged(i.Number, "the attribute %q has %d bytes at %d of %d", name, size, off, len(values))
	}
	return append([]byte{}, values[off:off+int(size)]...), nil
}

// inlineContent is what lies in the inode: the place of its blocks, then an attribute. A file may
// be longer, and reads as zeros there; nothing else may.
func (i *Inode) inlineContent() ([]byte, error) {
	content := append([]byte{}, i.area()...)
	more, _, err := i.Xattr("system.data")
	if err != nil {
		return nil, err
	}
	content = append(content, more...)
	if i.Size > int64(len(content)) && i.Type() != Regular {
		return nil, damaged(i.Number, "a size of %d bytes, and %d lie in it", i.Size, len(content))
	}
	return content[:min(i.Size, int64(len(content)))], nil
}
