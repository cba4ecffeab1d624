package ext4

import (
	"bytes"
	"io"
)

// maxTarget bounds the target of a link, in bytes.
const maxTarget = 4096

// fastLink reports whether it is a link whose target lies in the inode, by its length.
func (i *Inode) fastLink() bool {
	return i.Type() == Symlink && i.Flags&flagInline == 0 && i.Size < blockAreaBytes
}

// Readlink reads the target of a symbolic link, which may be any bytes but NUL.
func (i *Inode) Readlink() (string, error) {
	if i.Type() != Symlink {
		return "", damaged(i.Number, "it is no symbolic link")
	}
	if err := i.readable(); err != nil {
		return "", err
	}
	if i.Size == 0 || i.Size > maxTarget {
		return "", damaged(i.Number, "a target of %d bytes", i.Size)
	}
	target := make([]byte, i.Size)
	if i.fastLink() {
		copy(target, i.area())
	} else {
		content, err := i.content()
		if err != nil {
			return "", err
		}
		if _, err := io.ReadFull(content, target); err != nil {
			return "", within(i.Number, err)
		}
	}
	if n := bytes.IndexByte(target, 0); n >= 0 {
		return "", damaged(i.Number, "a target of %d bytes with a NUL at %d", i.Size, n)
	}
	return string(target), nil
}
