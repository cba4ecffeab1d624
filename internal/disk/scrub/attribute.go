package scrub

// attributeMagic begins extended attributes, in an inode and in a block.
const attributeMagic = 0xEA020000

const (
	attributeHead  = 16 // bytes of an entry before the name
	blockHeader    = 32
	prefixTrusted  = 4
	prefixSystem   = 7
	inlineName     = "data" // after "system.": the content that does not fit where the blocks' map is
	opaqueName     = "overlay.opaque"
	maxAttributes  = 1 << 12
	attributeRound = 3
)

// attribute is one, in a region whose values' offsets count from base on.
type attribute struct {
	at, end    int // of its entry in the region
	prefix     byte
	name       string
	from, size int // of its value in the region
}

// attributes lists those of a region whose entries begin at b[first:]. end is behind the
// mark that ends the list.
func (n inode) attributes(b []byte, first, base int) (list []attribute, end int, err error) {
	at := first
	for {
		if at+4 > len(b) || len(list) > maxAttributes {
			return nil, 0, broken("inode %d: attributes without an end", n.ino)
		}
		if le.Uint32(b[at:]) == 0 {
			return list, at + 4, nil
		}
		length := (int(b[at]) + attributeHead + attributeRound) &^ attributeRound
		if at+length > len(b) {
			return nil, 0, broken("inode %d: an attribute that is cut off", n.ino)
		}
		a := attribute{at: at, end: at + length, prefix: b[at+1], name: string(b[at+attributeHead:][:b[at]])}
		if le.Uint32(b[at+4:]) != 0 {
			return nil, 0, broken("inode %d: an attribute in an inode of its own", n.ino)
		}
		a.from, a.size = base+int(le.Uint16(b[at+2:])), int(le.Uint32(b[at+8:]))
		if a.size < 0 || a.from > len(b) || a.size > len(b)-a.from {
			return nil, 0, broken("inode %d: an attribute of %d bytes", n.ino, a.size)
		}
		list, at = append(list, a), a.end
	}
}

// inside returns what is behind an inode's fields: nil where no attributes are.
func (n inode) inside() ([]byte, error) {
	end, err := n.extra()
	if err != nil || len(n.raw)-end < 8 || le.Uint32(n.raw[end:]) != attributeMagic {
		return nil, err
	}
	return n.raw[end:], nil
}

// inlineValue is the part of an inode's content that its attributes have.
func (n inode) inlineValue() ([]byte, error) {
	b, err := n.inside()
	if b == nil || err != nil {
		return nil, err
	}
	list, _, err := n.attributes(b, 4, 4)
	for _, a := range list {
		if a.prefix == prefixSystem && a.name == inlineName {
			clear(b[a.at+12:][:4]) // a hash of the value, which may be left out
			return b[a.from:][:a.size], nil
		}
	}
	return nil, err
}

// cleanRegion makes zeros of what no attribute uses, from b[first:] on.
func (n inode) cleanRegion(b []byte, first, base int) (bool, error) {
	list, end, err := n.attributes(b, first, base)
	if err != nil {
		return false, err
	}
	used := make([]bool, len(b))
	mark := func(from, to int) {
		for i := from; i < min(to, len(b)); i++ {
			used[i] = true
		}
	}
	mark(0, first)
	for _, a := range list {
		mark(a.at, a.at+attributeHead+len(a.name))
		mark(a.from, (a.from+a.size+attributeRound)&^attributeRound) // what rounds a value is part of its hash
	}
	mark(end-4, end)
	changed := false
	for i := range b {
		if !used[i] && b[i] != 0 {
			b[i], changed = 0, true
		}
	}
	return changed, nil
}

// cleanInside makes zeros of what is not used behind an inode's fields.
func (n inode) cleanInside() error {
	end, err := n.extra()
	if err != nil {
		return err
	}
	b, err := n.inside()
	if err != nil {
		return err
	}
	if b == nil {
		clear(n.raw[end:])
		return nil
	}
	_, err = n.cleanRegion(b, 4, 4)
	return err
}

// cleanAttributeBlock is cleanInside for a block of attributes.
func (n inode) cleanAttributeBlock(block uint64) error {
	b, err := n.fs.read(block)
	if err != nil {
		return err
	}
	if le.Uint32(b) != attributeMagic {
		return broken("inode %d: a block of attributes is none", n.ino)
	}
	changed, err := n.cleanRegion(b, blockHeader, 0)
	if err != nil || !changed {
		return err
	}
	if n.fs.sums() {
		var at [8]byte
		le.PutUint64(at[:], block)
		clear(b[16:20])
		le.PutUint32(b[16:], checksum(checksum(n.fs.seed, at[:]), b))
	}
	return n.fs.write(block, b)
}

// setOpaque makes a directory hide what lies below it in an overlay, in the place of what
// attributes it has in its inode.
func (n inode) setOpaque() error {
	end, err := n.extra()
	if err != nil {
		return err
	}
	const entry = (attributeHead + len(opaqueName) + attributeRound) &^ attributeRound
	b := n.raw[end:]
	if len(b) < 4+entry+4+4 || n.has(flagInline) {
		return broken("inode %d has no room for the mark of a directory that hides others", n.ino)
	}
	clear(b)
	le.PutUint32(b, attributeMagic)
	e := b[4:]
	e[0], e[1] = byte(len(opaqueName)), prefixTrusted
	value := len(b) - 4
	le.PutUint16(e[2:], uint16(value-4))
	le.PutUint32(e[8:], 1)
	copy(e[attributeHead:], opaqueName)
	b[value] = 'y'
	return nil
}
