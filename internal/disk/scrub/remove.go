package scrub

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// errNotDirectory says that a path, or one on the way to it, is something else.
type errNotDirectory struct{ path, what string }

func (e *errNotDirectory) Error() string {
	return fmt.Sprintf("%s is %s, no directory", e.path, e.what)
}

var errAbsent = errors.New("not there")

// lookup finds the directory at path, a clean and absolute one. No link is followed.
func (fs *fileSystem) lookup(path string) (inode, error) {
	n, err := fs.inode(inoRoot)
	if err != nil {
		return n, err
	}
	at := ""
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if name == "" {
			continue
		}
		if n.has(flagEncrypted | flagCasefold) {
			return n, &errNotDirectory{at + "/" + name, "in a directory whose names are encrypted or fold their case"}
		}
		at += "/" + name
		var found uint32
		err := n.each(func(e entry) error {
			if string(e.name) == name {
				found = e.ino
			}
			return nil
		})
		if err != nil {
			return n, err
		}
		if found == 0 {
			return n, errAbsent
		}
		if n, err = fs.inode(found); err != nil {
			return n, err
		}
		if n.kind() != typeDir {
			return n, &errNotDirectory{at, kindName(n.kind())}
		}
	}
	return n, nil
}

func kindName(kind uint16) string {
	switch kind {
	case typeRegular:
		return "a file"
	case typeLink:
		return "a symbolic link"
	default:
		return "a special file"
	}
}

// tree is what stands below a directory.
type tree struct {
	dirs  []uint32          // the directory itself left out
	names map[uint32]uint32 // how many names other files have there
}

// below finds what stands below a directory.
func (fs *fileSystem) below(ctx context.Context, top inode) (tree, error) {
	t := tree{names: map[uint32]uint32{}}
	seen := map[uint32]bool{top.ino: true, inoRoot: true}
	todo := []inode{top}
	for len(todo) > 0 {
		if err := context.Cause(ctx); err != nil {
			return t, err
		}
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		err := dir.each(func(e entry) error {
			if e.ino < fs.firstInode {
				return broken("directory %d: a name of inode %d", dir.ino, e.ino)
			}
			n, err := fs.inode(e.ino)
			if err != nil {
				return err
			}
			if n.kind() != typeDir {
				t.names[e.ino]++
				return nil
			}
			if seen[e.ino] {
				return broken("directory %d has two names", e.ino)
			}
			seen[e.ino] = true
			t.dirs, todo = append(t.dirs, e.ino), append(todo, n)
			return nil
		})
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// empty takes all out of the directory at path, by the numbers of inodes alone. Counts and
// maps are e2fsck's to settle afterwards. Of a path that is not there it reports false.
func (fs *fileSystem) empty(ctx context.Context, path string, opaque bool) (bool, error) {
	top, err := fs.lookup(path)
	if errors.Is(err, errAbsent) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	t, err := fs.below(ctx, top)
	if err != nil {
		return false, err
	}
	// The names go first: an inode that is freed then has none.
	if err := top.clearEntries(); err != nil {
		return false, err
	}
	if opaque {
		if err := top.setOpaque(); err != nil {
			return false, err
		}
	}
	if err := top.store(); err != nil {
		return false, err
	}
	for _, ino := range t.dirs {
		if err := fs.free(ino); err != nil {
			return false, err
		}
	}
	for ino, names := range t.names {
		if err := fs.unname(ino, names); err != nil {
			return false, err
		}
	}
	return true, nil
}

// free makes zeros of an inode.
func (fs *fileSystem) free(ino uint32) error {
	return inode{fs, ino, make([]byte, fs.inodeSize)}.store()
}

// unname takes names from a file, and frees it with its last.
func (fs *fileSystem) unname(ino, names uint32) error {
	n, err := fs.inode(ino)
	if err != nil {
		return err
	}
	if uint32(n.links()) <= names {
		return fs.free(ino)
	}
	le.PutUint16(n.raw[0x1A:], n.links()-uint16(names))
	return n.store()
}

// clearEntries leaves a directory with "." and ".." alone, in its first block or in its
// inode, which is still to be stored.
func (n inode) clearEntries() error {
	if n.has(flagInline) {
		parts, err := n.inlineParts()
		for _, p := range parts {
			clear(p)
			putEntryLength(p[4:], len(p))
		}
		return err
	}
	first, above := uint64(0), uint32(0)
	err := n.dirBlocks(func(logical, block uint64) error {
		if logical != 0 {
			return nil
		}
		first = block
		b, err := n.fs.read(block)
		if err != nil {
			return err
		}
		return n.entries(b, func(e entry) error {
			if string(e.name) == ".." {
				above = e.ino
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if first == 0 || above == 0 {
		return broken("directory %d: no first block", n.ino)
	}
	if err := n.fs.write(first, n.emptyBlock(above)); err != nil {
		return err
	}
	return n.keepFirst(first)
}

// emptyBlock is the block of a directory in which nothing is.
func (n inode) emptyBlock(above uint32) []byte {
	b := make([]byte, n.fs.blockSize)
	for i, e := range []struct {
		ino    uint32
		length int
	}{{n.ino, 12}, {above, n.tail() - 12}} {
		at := b[i*12:]
		le.PutUint32(at, e.ino)
		putEntryLength(at[4:], e.length)
		at[6] = byte(i + 1)
		if n.fs.incompat&0x2 != 0 { // entries have types
			at[7] = 2
		}
		copy(at[entryHead:], "..."[:i+1])
	}
	n.sumLeaf(b)
	return b
}

// keepFirst makes the first block the only one of a directory.
func (n inode) keepFirst(block uint64) error {
	if n.has(flagExtents) {
		m := n.blockMap()
		clear(m)
		le.PutUint16(m, extentMagic)
		le.PutUint16(m[2:], 1)
		le.PutUint16(m[4:], 4)
		e := m[extentSize:]
		le.PutUint16(e[4:], 1)
		le.PutUint16(e[6:], uint16(block>>32))
		le.PutUint32(e[8:], uint32(block))
	} else {
		clear(n.blockMap()[4:])
	}
	le.PutUint32(n.raw[0x04:], uint32(n.fs.blockSize))
	le.PutUint32(n.raw[0x6C:], 0)
	le.PutUint32(n.raw[0x20:], n.flags()&^flagIndexed)
	return nil
}
