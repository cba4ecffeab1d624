package disk

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/disk/ext4"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The bounds of a listing.
const (
	// maxHeld is what the names may take, in bytes, that wait for their turn: those of the
	// directories from where a listing began to where it is.
	maxHeld = 256 << 20
	// maxListed is what List collects, in bytes.
	maxListed = 512 << 20
	// maxDirectories is how many directories one listing goes through.
	maxDirectories = 4 << 20
	// maxListedPath bounds the path of an entry, in bytes.
	maxListedPath = 64 << 10
	entryBytes    = 96 // about what an entry takes besides its text
)

// The types of entries.
const (
	typeFile      = "file"
	typeDirectory = "directory"
	typeSymlink   = "symlink"
)

// List lists what a path names in the image of a file: a directory's entries, and recursively all
// below it, or the one thing that it is. Errors are as Walk's, with "failed to inspect workspace
// disk path" for what is no image.
func List(ctx context.Context, image, path string, recursive bool) ([]action.Entry, error) {
	im, err := Open(image)
	if err != nil {
		return nil, err
	}
	defer im.Close()
	return im.List(ctx, path, recursive)
}

// List collects what Walk yields; never nil without an error.
func (im *Image) List(ctx context.Context, path string, recursive bool) ([]action.Entry, error) {
	all, held := []action.Entry{}, 0
	for e, err := range im.Walk(ctx, path, recursive) {
		if err != nil {
			return nil, err
		}
		held += entryBytes + len(e.Path)
		if e.LinkTarget != nil {
			held += len(*e.LinkTarget)
		}
		if held > maxListed {
			return nil, sandbox.Errorf(sandbox.Exhausted, "%s has too many entries to list: over %d", path, len(all)).WithHint("list a directory below it")
		}
		all = append(all, e)
	}
	return all, nil
}

// Walk yields what a path names, ordered by whole paths: files, directories and symbolic links,
// which are not followed. What is anything else below the path is left out. A directory does not
// yield itself. After an error nothing more comes.
//
// A path that is missing is "workspace disk path does not exist"; one that is none of the three,
// "unsupported workspace disk path type"; anything that can't be read, "failed to inspect
// workspace disk path", with the inode.
func (im *Image) Walk(ctx context.Context, path string, recursive bool) iter.Seq2[action.Entry, error] {
	return func(yield func(action.Entry, error) bool) {
		path, i, err := im.find(path)
		if err != nil {
			yield(action.Entry{}, err)
			return
		}
		switch i.Type() {
		case ext4.Regular, ext4.Symlink:
			yield(describe(path, i))
		case ext4.Directory:
			w := &walk{fs: im.FS, recursive: recursive, seen: map[uint32]bool{}, path: []byte(strings.TrimSuffix(path, "/"))}
			w.run(ctx, i, yield)
		case ext4.None:
			yield(action.Entry{}, inspectError(path, fmt.Errorf("inode %d: it is not in use, or has a mode that means nothing: %#o", i.Number, i.Mode)))
		default:
			yield(action.Entry{}, sandbox.Errorf(sandbox.Invalid, "unsupported workspace disk path type: %s is a device, a pipe or a socket", path))
		}
	}
}

// describe makes the entry of an inode of one of the three types.
func describe(path string, i *ext4.Inode) (action.Entry, error) {
	e := action.Entry{Path: path}
	switch i.Type() {
	case ext4.Directory:
		e.ArtifactType = typeDirectory
	case ext4.Symlink:
		target, err := i.Readlink()
		if err != nil {
			return action.Entry{}, inspectError(path, err)
		}
		e.ArtifactType, e.SizeBytes, e.LinkTarget = typeSymlink, int64(len(target)), &target
	default:
		e.ArtifactType, e.SizeBytes = typeFile, i.Size
	}
	return e, nil
}

// walk goes through a tree in the order of whole paths.
type walk struct {
	fs        *ext4.FS
	recursive bool
	path      []byte // of the directory that it is in
	stack     []frame
	seen      map[uint32]bool // directories: each has one name, in a tree that is right
	held      int             // by the stack, in bytes
}

// frame is a directory that the walk is in, and what is left of it.
type frame struct {
	rest []child
	path int // the length of the path of the directory above
	held int
}

// child is a turn in the order of a directory: an entry's own, or that of all that is below it,
// which comes later where another name goes on with a byte before the slash.
type child struct {
	name  string // with a slash behind it where it is what is below
	inode uint32
	size  int64
	kind  ext4.Type
}

func (w *walk) run(ctx context.Context, top *ext4.Inode, yield func(action.Entry, error) bool) {
	if err := w.enter(ctx, top, len(w.path)); err != nil {
		yield(action.Entry{}, err)
		return
	}
	for len(w.stack) > 0 {
		f := &w.stack[len(w.stack)-1]
		if len(f.rest) == 0 {
			w.path, w.held = w.path[:f.path], w.held-f.held
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		c := f.rest[0]
		f.rest = f.rest[1:]
		e, ok, err := w.turn(ctx, c)
		if err != nil {
			yield(action.Entry{}, err)
			return
		}
		if ok && !yield(e, nil) {
			return
		}
	}
}

// turn takes a child: it makes an entry of it, or goes down.
func (w *walk) turn(ctx context.Context, c child) (e action.Entry, ok bool, err error) {
	above := len(w.path)
	whole := append(append(w.path, '/'), c.name...)
	if len(whole) > maxListedPath {
		return e, false, inspectError(string(whole[:100])+"...", fmt.Errorf("inode %d: its path is over %d bytes long", c.inode, maxListedPath))
	}
	if name, below := strings.CutSuffix(c.name, "/"); below {
		w.path = whole[:above+1+len(name)]
		i, err := w.fs.Inode(c.inode)
		if err != nil {
			return e, false, inspectError(string(w.path), err)
		}
		return e, false, w.enter(ctx, i, above)
	}
	e = action.Entry{Path: string(whole), ArtifactType: typeFile, SizeBytes: c.size}
	switch c.kind {
	case ext4.Directory:
		e.ArtifactType, e.SizeBytes = typeDirectory, 0
	case ext4.Symlink:
		i, err := w.fs.Inode(c.inode)
		if err != nil {
			return e, false, inspectError(e.Path, err)
		}
		e, err = describe(e.Path, i)
		return e, err == nil, err
	}
	return e, true, nil
}

// enter reads a directory, whose path is in w.path, and sorts its children.
func (w *walk) enter(ctx context.Context, dir *ext4.Inode, above int) error {
	if w.seen[dir.Number] || len(w.seen) >= maxDirectories {
		return inspectError(string(w.path)+"/", fmt.Errorf("inode %d: %w: a directory with two names, or one too many", dir.Number, ext4.ErrDamaged))
	}
	w.seen[dir.Number] = true
	f := frame{path: above}
	for e, err := range dir.Entries() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return inspectError(string(w.path)+"/", err)
		}
		f.add(child{name: e.Name, inode: e.Inode})
		if w.held+f.held > maxHeld {
			return sandbox.Errorf(sandbox.Exhausted, "%s/ has too many names to be sorted", w.path)
		}
	}
	if err := w.types(ctx, &f); err != nil {
		return err
	}
	slices.SortFunc(f.rest, func(a, b child) int { return strings.Compare(a.name, b.name) })
	w.held += f.held
	w.stack = append(w.stack, f)
	return nil
}

// types reads the inodes of a frame, in their order, so that each block of them is read once. It takes
// out what is of none of the three types, and gives directories a turn for what is below them.
func (w *walk) types(ctx context.Context, f *frame) error {
	slices.SortFunc(f.rest, func(a, b child) int { return cmp.Compare(a.inode, b.inode) })
	all := f.rest
	f.rest, f.held = all[:0], 0
	var below []child
	for _, c := range all {
		i, err := w.fs.Inode(c.inode)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return inspectError(string(w.path)+"/"+c.name, err)
		}
		switch c.kind = i.Type(); c.kind {
		case ext4.Regular, ext4.Symlink:
			c.size = i.Size
			f.add(c)
		case ext4.Directory:
			f.add(c)
			if w.recursive {
				below = append(below, child{c.name + "/", c.inode, 0, ext4.Directory})
			}
		}
	}
	for _, c := range below {
		f.add(c)
	}
	return nil
}

func (f *frame) add(c child) {
	f.rest = append(f.rest, c)
	f.held += len(c.name) + 64 // a child, and room for more of them
}
