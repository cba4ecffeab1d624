package tool

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// dirent is a name in a directory, and what it is as far as the directory
// says: unix.DT_REG and so on, or unix.DT_UNKNOWN.
type dirent struct {
	name string
	kind uint8
}

// dirents reads an open directory piece by piece.
type dirents struct {
	fd  int
	buf []byte
}

func newDirents(fd int) *dirents { return &dirents{fd, make([]byte, 32<<10)} }

// next returns some of the names, none at the end.
func (d *dirents) next() ([]dirent, error) {
	for {
		n, err := unix.ReadDirent(d.fd, d.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return nil, err
		}
		if list := parseDirents(d.buf[:n]); len(list) > 0 {
			return list, nil
		}
	}
}

// parseDirents reads what getdents64 gives: each has the inode, an offset, its
// own length, the kind and the name with a NUL.
func parseDirents(b []byte) (list []dirent) {
	const head = 19
	for len(b) > head {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size <= head || size > len(b) {
			return list
		}
		name := b[head:size]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		if s := string(name); s != "." && s != ".." && s != "" {
			list = append(list, dirent{s, b[18]})
		}
		b = b[size:]
	}
	return list
}
