package ext4_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/disk/ext4"
)

var le, be = binary.LittleEndian, binary.BigEndian

// patched is an image of which some parts are others.
type patched struct {
	base    []byte
	patches map[int64][]byte
}

func (p patched) ReadAt(b []byte, off int64) (int, error) {
	n, err := bytes.NewReader(p.base).ReadAt(b, off)
	for at, patch := range p.patches {
		if from, to := max(at, off), min(at+int64(len(patch)), off+int64(n)); from < to {
			copy(b[from-off:to-off], patch[from-at:])
		}
	}
	return n, err
}

// with has a part replaced, as far as the image goes.
func (p patched) with(at int64, patch []byte) patched {
	all := map[int64][]byte{at: patch}
	for at, patch := range p.patches {
		all[at] = patch
	}
	return patched{p.base, all}
}

// Inodes of the small image, as mke2fs makes them.
const (
	rootInode    = 2
	journalInode = 8
)

// small is an image without checksums, with blocks of 1 KiB, and what lies where in it. It has a
// file /file with a block, a directory /dir and a link /link.
type small struct {
	patched
	inode map[string]int64 // where the inodes lie
	block map[string]int64 // where the first block of each lies
	log   []int64          // where the first blocks of the journal lie
}

var smalls = sync.OnceValues(func() (map[bool]*small, error) {
	dir, err := os.MkdirTemp("", "ext4-fuzz-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(filepath.Join(tree, "dir", "below"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(tree, "file"), bytes.Repeat([]byte("content\n"), 100), 0o644); err != nil {
		return nil, err
	}
	if err := os.Symlink("file", filepath.Join(tree, "link")); err != nil {
		return nil, err
	}
	made := map[bool]*small{}
	for _, journal := range []bool{false, true} {
		image := filepath.Join(dir, "image")
		args := "-O ^has_journal,^metadata_csum,^resize_inode,inline_data,^dir_index " + image + " 256k"
		if journal {
			args = "-O ^metadata_csum,^resize_inode -J size=1 " + image + " 4m"
		}
		args = "-q -F -t ext4 -b 1024 -I 256 -N 32 -m 0 -d " + tree + " " + args
		if out, err := exec.Command("mke2fs", strings.Fields(args)...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("mke2fs: %w: %s", err, out)
		}
		raw, err := os.ReadFile(image)
		if err != nil {
			return nil, err
		}
		if err := os.Remove(image); err != nil {
			return nil, err
		}
		if made[journal], err = look(raw); err != nil {
			return nil, err
		}
	}
	return made, nil
})

// look finds what lies where.
func look(raw []byte) (*small, error) {
	s := &small{patched{base: raw}, map[string]int64{}, map[string]int64{}, nil}
	fs, err := ext4.Open(s, int64(len(raw)))
	if err != nil {
		return nil, err
	}
	for _, path := range []string{"/", "/file", "/dir", "/link", "journal"} {
		i, err := fs.Walk(path)
		if path == "journal" {
			i, err = fs.Inode(journalInode)
		}
		if err != nil {
			return nil, err
		}
		if s.inode[path], err = fs.InodeOffset(i.Number); err != nil {
			return nil, err
		}
		for e, err := range i.Extents() {
			if err != nil {
				return nil, err
			}
			if e.Logical == 0 {
				s.block[path] = int64(e.Physical) * 1024
			}
			for n := e.Physical; path == "journal" && n < e.Physical+e.Blocks; n++ {
				s.log = append(s.log, int64(n)*1024)
			}
		}
	}
	return s, nil
}

func smallImage(tb testing.TB, journal bool) *small {
	tb.Helper()
	made, err := smalls()
	if err != nil {
		tb.Fatal(err)
	}
	return made[journal]
}

// exercise reads all that an image has, within bounds, and wants what is promised of it.
func exercise(t *testing.T, r io.ReaderAt, size int64) {
	t.Helper()
	fs, err := ext4.Open(r, size)
	if err != nil {
		return
	}
	next := []uint32{rootInode}
	for n := 0; n < len(next) && n < 60; n++ {
		if i, err := fs.Inode(next[n]); err == nil {
			next = append(next, exerciseInode(t, fs, i)...)
		}
	}
	_, _ = fs.Walk("/dir/below/../../link/x")
}

// exerciseInode returns the inodes that are named in it.
func exerciseInode(t *testing.T, fs *ext4.FS, i *ext4.Inode) (named []uint32) {
	t.Helper()
	_, _, _ = i.Xattr("user.none")
	if target, err := i.Readlink(); err == nil && (target == "" || len(target) > 4096) {
		t.Errorf("a target of %d bytes", len(target))
	}
	blocks := fs.Super().Blocks
	end, runs := uint64(0), 0
	for e, err := range i.Extents() {
		if err != nil {
			break
		}
		if e.Logical < end || e.Blocks == 0 || e.Physical == 0 || e.Physical+e.Blocks > blocks {
			t.Fatalf("inode %d: a run %+v after block %d, of %d blocks", i.Number, e, end, blocks)
		}
		if end = e.Logical + e.Blocks; runs > 2000 {
			break
		}
		runs++
	}
	if f, err := i.Open(); err == nil {
		buf := make([]byte, 4096)
		for _, at := range []int64{0, 12 << 10, 300 << 10, f.Size() - 100, f.Size() / 2} {
			_, _ = f.ReadAt(buf, at)
		}
	}
	entries := uint64(0)
	for e, err := range i.Entries() {
		if err != nil {
			break
		}
		if e.Name == "" || len(e.Name) > 255 || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") || e.Inode == 0 {
			t.Fatalf("inode %d: an entry %q for %d", i.Number, e.Name, e.Inode)
		}
		if entries++; entries > blocks*uint64(fs.Super().BlockSize)/8 {
			t.Fatalf("inode %d: more entries than the image has room for", i.Number)
		}
		if len(named) < 40 {
			named = append(named, e.Inode)
		}
	}
	return named
}

// FuzzOpen has the superblock and the descriptors of groups be anything.
func FuzzOpen(f *testing.F) {
	s := smallImage(f, false)
	super := func(at int, value uint32) []byte {
		b := slices.Clone(s.base[1024:2048])
		le.PutUint32(b[at:], value)
		return b
	}
	groups := s.base[2048 : 2048+64]
	f.Add(s.base[1024:2048], groups)
	for _, field := range []struct {
		at    int
		value uint32
	}{
		{0x28, 0},                      // inodes of a group
		{0x20, 0},                      // blocks of a group
		{0x18, 31},                     // the size of blocks
		{0x18, 6},                      // likewise
		{0x0, 1 << 31},                 // inodes
		{0x4, ^uint32(0)},              // blocks
		{0x58, 0},                      // the size of inodes
		{0x60, 0x40 | 0x80 | 4},        // a journal to be replayed
		{0x60, 0x40 | 0x80 | 0x10},     // descriptors all over the image
		{0x60, 0x40 | 0x80 | 0x100000}, // a feature that nobody knows
		{0x4c, 0},                      // the revision
	} {
		f.Add(super(field.at, field.value), groups)
	}
	f.Add(s.base[1024:2048], bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, super, groups []byte) {
		super, groups = super[:min(len(super), 1024)], groups[:min(len(groups), 1024)]
		exercise(t, s.with(1024, super).with(2048, groups), int64(len(s.base)))
	})
}

// FuzzInode has an inode be anything.
func FuzzInode(f *testing.F) {
	s := smallImage(f, false)
	for path, at := range s.inode {
		if path != "journal" {
			f.Add(s.base[at : at+256])
		}
	}
	with := func(path string, change func(b []byte)) {
		b := slices.Clone(s.base[s.inode[path] : s.inode[path]+256])
		change(b)
		f.Add(b)
	}
	with("/link", func(b []byte) { le.PutUint32(b[4:], 1<<31) })
	with("/file", func(b []byte) { le.PutUint32(b[0x6c:], 1<<31) })
	with("/file", func(b []byte) { le.PutUint16(b[0x80:], 0xfff0) })
	with("/file", func(b []byte) { le.PutUint32(b[0x20:], 0) }) // a map of blocks
	with("/file", func(b []byte) { le.PutUint32(b[0x20:], 0x10000000) })
	with("/dir", func(b []byte) { // an attribute with its value far away
		le.PutUint32(b[0x20:], 0x10000000)
		copy(b[0xa0:], "\x00\x00\x02\xea\x04\x07\xf0\xff\x00\x00\x00\x00\x00\xff\x00\x00\x00\x00\x00\x00data\x00\x00\x00\x00")
	})
	f.Fuzz(func(t *testing.T, inode []byte) {
		inode = inode[:min(len(inode), 256)]
		exercise(t, s.with(s.inode["/dir"], inode), int64(len(s.base)))
		exercise(t, s.with(s.inode["/"], inode), int64(len(s.base)))
	})
}

// FuzzDirectory has a block of a directory be anything, or what lies in its inode.
func FuzzDirectory(f *testing.F) {
	s := smallImage(f, false)
	root := s.base[s.block["/"] : s.block["/"]+1024]
	f.Add(root)
	f.Add(make([]byte, 1024)) // entries without a length
	long := slices.Clone(root)
	le.PutUint16(long[4:], 0xfffc)
	f.Add(long)
	slash := bytes.Replace(slices.Clone(root), []byte("file"), []byte("f/le"), 1)
	f.Add(slash)
	f.Add(append(slices.Clone(root[:24]), "\x0c\x00\x00\x00\x00\x00\xff\x02"...))
	f.Fuzz(func(t *testing.T, block []byte) {
		block = block[:min(len(block), 1024)]
		exercise(t, s.with(s.block["/"], block), int64(len(s.base)))
		exercise(t, s.with(s.inode["/dir"]+0x28, block[:min(len(block), 60)]), int64(len(s.base)))
	})
}

// FuzzExtents has the root of a tree of extents be anything, and the block of a node.
func FuzzExtents(f *testing.F) {
	s := smallImage(f, false)
	at, node := s.inode["/file"]+0x28, s.block["/file"]
	header := func(entries, limit, depth uint16, rest ...uint32) []byte {
		b := le.AppendUint32(nil, 0xf30a|uint32(entries)<<16)
		b = le.AppendUint32(b, uint32(limit)|uint32(depth)<<16)
		b = le.AppendUint32(b, 0)
		for _, v := range rest {
			b = le.AppendUint32(b, v)
		}
		return b
	}
	block := uint32(node / 1024)
	f.Add(s.base[at:at+60], s.base[node:node+1024])
	f.Add(header(1, 4, 1, 0, block, 0), header(1, 84, 0, 0, 1, block))
	f.Add(header(1, 4, 0, 0, 0x7fff, block), []byte{})                                                     // longer than the image
	f.Add(header(1, 4, 1, 0, block, 0), header(1, 84, 1, 0, block, 0))                                     // leads to itself
	f.Add(header(2, 4, 1, 0, block, 0, 5, block, 0), header(2, 84, 0, 0, 1, block, 7, 2, block))           // one leaf twice
	f.Add(header(3, 4, 0, 5, 1, block, 3, 1, block, 0, 0, 0), header(0, 84, 0))                            // out of order
	f.Add(header(1, 4, 0, 0xfffffff0, 0x7fff, block), header(0xffff, 0xffff, 0xffff))                      // behind the end
	f.Add(header(4, 4, 5, 0, block, 0, 1, block, 0, 2, block, 0, 3, 0, 0), header(1, 84, 4, 0, 0xffff, 0)) // deep
	f.Fuzz(func(t *testing.T, root, leaf []byte) {
		root, leaf = root[:min(len(root), 60)], leaf[:min(len(leaf), 1024)]
		exercise(t, s.with(at, root).with(node, leaf), int64(len(s.base)))
	})
}

// FuzzJournal has the first blocks of a journal be anything, of a file system that was not unmounted.
func FuzzJournal(f *testing.F) {
	s := smallImage(f, true)
	super := slices.Clone(s.base[1024:2048])
	le.PutUint32(super[0x60:], le.Uint32(super[0x60:])|4)
	at := s.block["journal"]
	head := func(start uint32) []byte {
		b := slices.Clone(s.base[at : at+1024])
		be.PutUint32(b[0x18:], 1)
		be.PutUint32(b[0x1c:], start)
		return b
	}
	block := func(kind uint32, words ...uint32) []byte {
		b := append([]byte{}, "\xc0\x3b\x39\x98"...)
		b = be.AppendUint32(be.AppendUint32(b, kind), 1)
		for _, w := range words {
			b = be.AppendUint32(b, w)
		}
		return append(b, make([]byte, 1024-len(b))...)
	}
	zeros := make([]byte, 1024)
	commit := block(2)
	f.Add(slices.Concat(head(1), block(1, 100, 8, 0), zeros, commit))
	f.Add(slices.Concat(head(1), block(1, 100, 9, 0, 0, 0, 0, 0), zeros, commit, block(5, 20, 100)))
	f.Add(slices.Concat(head(1), block(5, 0xffff, 100), commit))
	f.Add(slices.Concat(head(1023), commit))
	f.Add(slices.Concat(head(1<<31), commit))
	cut := make([]uint32, 0, 250)
	for len(cut) < 252 { // tags of 8 bytes, the last without room for the UUID behind it
		cut = append(cut, 100, 2)
	}
	cut[len(cut)-1] = 0
	f.Add(slices.Concat(head(1), block(1, cut...), commit))
	f.Add(slices.Concat(head(1), bytes.Repeat(block(1, 100, 8), 30)))
	f.Fuzz(func(t *testing.T, journal []byte) {
		p := s.with(1024, super)
		for n := 0; len(journal) > 0 && n < 64; n++ {
			length := min(len(journal), 1024)
			p.patches[s.log[n]] = journal[:length]
			journal = journal[length:]
		}
		exercise(t, p, int64(len(s.base)))
	})
}
