package stack

import (
	"io"

	"github.com/carboy-sandbox/carboy/internal/disk/ext4"
)

// imageNode is a file in an image.
type imageNode struct {
	fs *ext4.FS
	i  *ext4.Inode
}

// InImage returns the directory of an image at a path of no links, or fs.ErrNotExist.
func InImage(fs *ext4.FS, path ...string) (Node, error) {
	i, err := fs.Root()
	for _, name := range path {
		if err == nil {
			i, err = i.Lookup(name)
		}
	}
	if err != nil {
		return nil, err
	}
	return imageNode{fs, i}, nil
}

func (n imageNode) Type() Type {
	switch n.i.Type() {
	case ext4.Regular:
		return File
	case ext4.Directory:
		return Directory
	case ext4.Symlink:
		return Link
	case ext4.CharDevice:
		if major, minor := n.i.Device(); major == 0 && minor == 0 {
			return Whiteout
		}
	}
	return Other
}

func (n imageNode) Size() int64 { return n.i.Size }
func (n imageNode) Owner() (uid, gid, mode uint32) {
	return n.i.UID, n.i.GID, uint32(n.i.Mode) & 0o7777
}

func (n imageNode) Readlink() (string, error) { return n.i.Readlink() }

func (n imageNode) Open() (io.ReadCloser, error) {
	f, err := n.i.Open()
	if err != nil {
		return nil, err
	}
	return io.NopCloser(f), nil
}

func (n imageNode) Attribute(name string) ([]byte, error) {
	value, ok, err := n.i.Xattr(name)
	if !ok {
		return nil, err
	}
	return value, err
}

func (n imageNode) Child(name string) (Node, error) {
	i, err := n.i.Lookup(name)
	if err != nil {
		return nil, err
	}
	return imageNode{n.fs, i}, nil
}

func (n imageNode) Children(f func(name string, node func() (Node, error)) error) error {
	for e, err := range n.i.Entries() {
		if err != nil {
			return err
		}
		err = f(e.Name, func() (Node, error) {
			i, err := n.fs.Inode(e.Inode)
			if err != nil {
				return nil, err
			}
			return imageNode{n.fs, i}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
