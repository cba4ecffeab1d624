package ignore

import (
	"bytes"
	"encoding/binary"
	"errors"
)

var errIndex = errors.New("not an index of git that can be read")

// IndexPaths returns the paths that an index of git names, of its versions 2 to 4. It
// fails for one that is split in two files, or made for SHA-256.
func IndexPaths(b []byte) ([]string, error) {
	if len(b) < 12 || string(b[:4]) != "DIRC" {
		return nil, errIndex
	}
	version, n := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if version < 2 || version > 4 || uint64(n)*62 > uint64(len(b)) {
		return nil, errIndex
	}
	r := indexReader{b: b[12:], version: version}
	paths := make([]string, 0, n)
	for range n {
		if !r.next() {
			return nil, errIndex
		}
		paths = append(paths, r.path)
	}
	// What follows are extensions, and a checksum of 20 bytes.
	for len(r.b) > 20 {
		if len(r.b) < 28 {
			return nil, errIndex
		}
		size := uint64(binary.BigEndian.Uint32(r.b[4:]))
		if string(r.b[:4]) == "link" || size > uint64(len(r.b)-28) {
			return nil, errIndex
		}
		r.b = r.b[8+size:]
	}
	if len(r.b) != 20 {
		return nil, errIndex
	}
	return paths, nil
}

// indexReader reads one entry after the other.
type indexReader struct {
	b       []byte
	version uint32
	path    string
}

func (r *indexReader) next() bool {
	const fixed = 62 // bytes before the name: what stat said, a SHA-1, flags
	if len(r.b) < fixed+1 {
		return false
	}
	at := fixed
	if r.b[60]&0x40 != 0 { // more flags
		at += 2
	}
	shared := 0
	if r.version == 4 {
		cut, n := offset(r.b[min(at, len(r.b)):])
		if n == 0 || cut > uint64(len(r.path)) {
			return false
		}
		at, shared = at+n, len(r.path)-int(cut)
	}
	end := bytes.IndexByte(r.b[min(at, len(r.b)):], 0)
	if end < 0 {
		return false
	}
	r.path = r.path[:shared] + string(r.b[at:at+end])
	size := at + end + 1
	if r.version < 4 {
		size = (at + end + 8) &^ 7
	}
	if r.path == "" || size > len(r.b) {
		return false
	}
	r.b = r.b[size:]
	return true
}

// offset reads a number as git writes it in packs; n is 0 for none.
func offset(b []byte) (v uint64, n int) {
	for i, c := range b[:min(len(b), 9)] {
		if i > 0 {
			v++
		}
		v = v<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			return v, i + 1
		}
	}
	return 0, 0
}
