package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// unpacker unpacks one layer.
type unpacker struct {
	ctx  context.Context // of the one call that this is for
	o    Options
	tree *layerTree
	in   *stream
	tar  *tar.Reader
	open bool // an entry's contents may not be read yet
	buf  []byte

	res      Result
	notes    notes
	seen     int  // entries and implied directories
	owners   bool // are set
	uid, gid int  // what new files have

	below *below
	root  found    // the root of the layers below
	via   []string // what the last walk led through
	last  trail

	dirs      map[string]dirMeta // what waits until the end
	whiteouts map[string]bool    // that were made
	hiding    map[string]bool    // directories that are opaque
	names     int                // bytes of the names of all these
}

func newUnpacker(ctx context.Context, o Options, t *layerTree, b *below, in *stream) (*unpacker, error) {
	u := &unpacker{
		ctx: ctx, o: o, tree: t, in: in, tar: tar.NewReader(in), buf: make([]byte, chunkSize),
		owners: os.Geteuid() == 0, uid: os.Geteuid(), gid: os.Getegid(),
		below: b, dirs: map[string]dirMeta{".": implied}, whiteouts: map[string]bool{}, hiding: map[string]bool{},
	}
	if int(t.gid) != u.gid {
		u.gid = -1 // new files may have the root's: always set it
	}
	var err error
	if u.root, err = b.look(b.roots, "."); err != nil {
		return nil, err
	}
	if u.root.trees != nil {
		u.dirs["."] = metaOf(&u.root.st)
	}
	return u, nil
}

func (u *unpacker) run() error {
	for {
		h, err := u.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := u.count(); err != nil {
			return inLayer(err)
		}
		if err := u.entry(h); err != nil {
			return inEntry(h.Name, err)
		}
	}
	if err := u.drain(); err != nil {
		return err
	}
	if err := u.dropWhiteouts(); err != nil {
		return err
	}
	return u.finishDirs()
}

// count counts an entry, or a directory that one implies.
func (u *unpacker) count() error {
	if u.seen++; u.seen > u.o.Limits.Entries {
		return refuse("it has more than %d entries", u.o.Limits.Entries)
	}
	return nil
}

// next returns the next header, or io.EOF after the mark that ends an
// archive. Package tar takes an archive that just stops between two entries
// for a whole one, so the mark, 512 bytes of zeros at least, is looked for.
func (u *unpacker) next() (*tar.Header, error) {
	for u.open {
		if _, err := u.read(u.buf); err != nil && err != io.EOF {
			return nil, inLayer(err)
		}
	}
	first := u.in.n == 0
	padding := -u.in.n & 511
	before := u.in.n
	h, err := u.tar.Next()
	switch {
	case err == nil || errors.Is(err, tar.ErrInsecurePath):
		u.open = true
		return h, nil
	case err == io.EOF && !u.in.ends(before, padding):
		return nil, inLayer(refuse("the archive is cut off: it has no end mark"))
	case err == io.EOF:
		return nil, io.EOF
	case first && (errors.Is(err, tar.ErrHeader) || u.in.n < 512) && (u.in.err == nil || u.in.err == io.EOF):
		return nil, inLayer(refuse("it is no tar, nor one compressed with gzip or zstd"))
	}
	return nil, inLayer(u.tarError(err))
}

// read reads of the current entry's contents.
func (u *unpacker) read(b []byte) (int, error) {
	n, err := u.tar.Read(b)
	switch {
	case err == io.EOF:
		u.open = false
	case err != nil:
		err = u.tarError(err)
	}
	return n, err
}

// tarError makes an error of package tar a refusal. Where the stream had an
// error, that is it.
func (u *unpacker) tarError(err error) error {
	switch {
	case u.in.err != nil && u.in.err != io.EOF:
		return u.in.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse("the archive is cut off in the middle")
	case errors.Is(err, tar.ErrFieldTooLong):
		return refuse("a header of the archive is longer than 1 MiB")
	case errors.Is(err, tar.ErrHeader):
		return refuse("the archive is damaged: the header before byte %d makes no sense", u.in.n)
	}
	return refuse("the archive is damaged: %s", strings.TrimPrefix(err.Error(), "archive/tar: "))
}

// drain reads what is behind the end mark, which may be nothing but zeros.
func (u *unpacker) drain() error {
	for {
		n, err := u.in.Read(u.buf)
		if len(bytes.TrimLeft(u.buf[:n], "\x00")) > 0 {
			return inLayer(refuse("something other than zeros follows the archive"))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// entry does what an entry says.
func (u *unpacker) entry(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		if len(h.PAXRecords) > 1 || h.PAXRecords["comment"] == "" {
			u.notes.add("global headers left out", h.Name)
		}
		return nil
	}
	rel, err := place(h.Name, u.o.Limits.Path)
	if err != nil {
		return err
	}
	if h.Uid < 0 || h.Uid > maxID || h.Gid < 0 || h.Gid > maxID {
		return refuse("its owner %d:%d is not within 0 to %d", h.Uid, h.Gid, maxID)
	}
	attrs, err := u.xattrs(h)
	if err != nil {
		return err
	}
	m, target, err := marks(rel)
	if err != nil {
		return err
	}
	if m == ordinary {
		return u.node(rel, h, attrs)
	}
	if m == forAufs {
		u.notes.add("bookkeeping of aufs left out", h.Name)
		return nil
	}
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeLink {
		return refuse("a whiteout that is no plain file")
	}
	if h.Typeflag == tar.TypeReg && h.Size > 0 {
		return refuse("a whiteout with contents")
	}
	u.res.Entries++
	if m == hidesAll {
		return u.opaque(target)
	}
	return u.whiteout(target)
}

// node makes what is no whiteout.
func (u *unpacker) node(rel string, h *tar.Header, attrs map[string]string) error {
	if rel == "." && h.Typeflag != tar.TypeDir {
		return refuse("the layer's root can only be a directory")
	}
	if h.Mode&0o6000 != 0 && h.Typeflag != tar.TypeLink {
		u.notes.add("set-uid and set-gid bits left out", h.Name)
	}
	if !u.owners && (h.Uid != u.uid || h.Gid != u.gid) {
		u.notes.add("owners left out, for want of root", h.Name)
	}
	var err error
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		err = u.file(rel, h, attrs)
	case tar.TypeDir:
		err = u.mkdir(rel, h, attrs)
	case tar.TypeSymlink:
		err = u.symlink(rel, h)
	case tar.TypeLink:
		err = u.link(rel, h)
	case tar.TypeFifo:
		err = u.fifo(rel, h)
	case tar.TypeChar:
		if h.Devmajor == 0 && h.Devminor == 0 {
			return refuse("a character device 0:0 forges a whiteout of overlayfs")
		}
		u.notes.add("devices left out", h.Name)
		return u.leaveOut(rel)
	case tar.TypeBlock:
		u.notes.add("devices left out", h.Name)
		return u.leaveOut(rel)
	case 's':
		u.notes.add("sockets left out", h.Name)
		return u.leaveOut(rel)
	default:
		return refuse("its type %q is not known", h.Typeflag)
	}
	if err == nil {
		u.res.Entries++
	}
	return err
}

// finishDirs gives the directories their owners, modes and times, the
// innermost first: afterwards nothing changes a time, and no mode is in the
// way of what is inside.
func (u *unpacker) finishDirs() error {
	rels := make([]string, 0, len(u.dirs))
	for rel := range u.dirs {
		if rel != "." {
			rels = append(rels, rel)
		}
	}
	slices.SortFunc(rels, func(a, b string) int { return strings.Compare(b, a) })
	for i, rel := range append(rels, ".") {
		if i%256 == 0 && u.ctx.Err() != nil {
			return context.Cause(u.ctx)
		}
		dir, err := u.tree.open(path.Dir(rel))
		if err == nil {
			err = u.finishDir(dir, path.Base(rel), u.dirs[rel])
		}
		if err != nil {
			return inEntry(rel, err)
		}
	}
	return nil
}
