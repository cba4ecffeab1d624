package ext4

import (
	"io"
	"sync"
)

// File is the content of a regular file, read as a stream or at offsets. Holes read as zeros,
// and nothing is read for them.
type File struct {
	inode  *Inode
	inline []byte // where it lies in the inode

	mu  sync.Mutex
	m   mapping
	run Extent // where the last read ended
	at  int64  // of the stream
}

// Open opens the content of a regular file.
func (i *Inode) Open() (*File, error) {
	if i.Type() != Regular {
		return nil, damaged(i.Number, "it is no regular file")
	}
	if err := i.readable(); err != nil {
		return nil, err
	}
	return i.content()
}

// content opens what any inode has, be it names or a target.
func (i *Inode) content() (*File, error) {
	f := &File{inode: i}
	if i.Flags&flagInline == 0 {
		f.m = i.mapping()
		return f, nil
	}
	var err error
	f.inline, err = i.inlineContent()
	return f, err
}

// Size is the file's, in bytes.
func (f *File) Size() int64 { return f.inode.Size }

// Read reads on from where the last Read ended.
func (f *File) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.at)
	f.at += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// ReadAt reads from an offset; it is io.EOF where the file ends.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if off < 0 || off >= f.inode.Size {
		return 0, io.EOF
	}
	var end error
	if rest := f.inode.Size - off; int64(len(p)) >= rest {
		p = p[:rest]
		end = io.EOF
	}
	if f.m == nil {
		clear(p[copy(p, f.inline[min(off, int64(len(f.inline))):]):])
		return len(p), end
	}
	done := 0
	for done < len(p) {
		n, err := f.readRun(p[done:], off+int64(done))
		if done += n; err != nil {
			return done, within(f.inode.Number, err)
		}
	}
	return done, end
}

// readRun reads as much as one run of blocks has.
func (f *File) readRun(p []byte, off int64) (int, error) {
	size := int64(f.inode.fs.super.BlockSize)
	if err := f.seek(uint64(off / size)); err != nil {
		return 0, err
	}
	start := off - int64(f.run.Logical)*size
	if blocks := (start + int64(len(p)) + size - 1) / size; uint64(blocks) > f.run.Blocks {
		p = p[:int64(f.run.Blocks)*size-start]
	}
	if f.run.Physical == 0 || f.run.Unwritten {
		clear(p)
		return len(p), nil
	}
	if err := f.inode.fs.dev.read(f.run.Physical, start, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// seek has run be the one with a logical block.
func (f *File) seek(logical uint64) error {
	if f.run.Blocks > 0 && logical >= f.run.Logical && logical-f.run.Logical < f.run.Blocks {
		return nil
	}
	run, err := f.m.at(logical)
	if err != nil {
		return err
	}
	f.run = run
	return nil
}
