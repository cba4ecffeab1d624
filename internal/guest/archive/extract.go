package archive

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// ExtractOptions tune Extract. The zero value works.
type ExtractOptions struct {
	// As replaces the first part of every name, which must then be the same
	// for all: it is one name, without a slash. Empty: names stay.
	As string
	// MaxEntries bounds the entries; 0: MaxEntries.
	MaxEntries int64
	// MaxBytes bounds the contents; 0: no bound but the file system's.
	MaxBytes int64
	// Own is who owns what is made, if the calling thread may give it away. A
	// directory that was there before then stays just as it is.
	Own *Owner
}

// Owner owns what Extract makes.
type Owner struct{ UID, GID uint32 }

// Extract makes the entries of the tar in r below the directory dir, which
// must exist. It runs with the rights of the calling thread, whose user owns
// what it makes.
//
// A file takes the place of another, or of a link, as a whole and at the end,
// never through a link; a directory is merged into one that is there. A
// directory and a file in each other's place are an error. So is a stream
// that ends before the archive does. After an error, what was extracted
// before stays, and the Result counts it; the file it broke off in does not.
func Extract(ctx context.Context, r io.Reader, dir string, o ExtractOptions) (Result, error) {
	if o.MaxEntries <= 0 {
		o.MaxEntries = MaxEntries
	}
	if strings.ContainsAny(o.As, "/\x00") || o.As == "." || o.As == ".." {
		return Result{}, fmt.Errorf("name %q: %w", o.As, ErrUnsafe)
	}
	t, err := openDestination(dir)
	if err != nil {
		return Result{}, err
	}
	defer t.close()
	t.own = o.Own
	return extract(ctx, r, t, o)
}

func extract(ctx context.Context, r io.Reader, t *destination, o ExtractOptions) (Result, error) {
	x := &extractor{ctx: ctx, o: o, tree: t, in: newStream(r), buf: make([]byte, bufferSize)}
	err := x.run()
	if ferr := x.finishDirs(); err == nil {
		err = ferr
	}
	return x.res, err
}

type extractor struct {
	ctx  context.Context // of the one call that this is for
	o    ExtractOptions
	tree *destination
	in   *stream
	buf  []byte
	res  Result
	top  string // the first part of all names, with o.As
	seen int64  // entries, with those skipped
	dirs []deferred
}

// deferred is a directory whose mode and time wait for what goes into it.
type deferred struct {
	rel  string
	mode uint32
	mod  time.Time
}

func (x *extractor) run() error {
	for {
		if x.ctx.Err() != nil {
			return context.Cause(x.ctx)
		}
		h, err := x.in.next()
		if err == io.EOF {
			return x.in.drain()
		}
		if err != nil {
			return err
		}
		if x.seen++; x.seen > x.o.MaxEntries {
			return fmt.Errorf("more than %d entries: %w", x.o.MaxEntries, ErrUnsafe)
		}
		if err := x.entry(h); err != nil {
			return fmt.Errorf("entry %.256q: %w", h.Name, err)
		}
	}
}

// entry makes one entry.
func (x *extractor) entry(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // comments, as git writes
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			h.Typeflag = tar.TypeGNUSparse
		}
	}
	rel, err := x.place(h.Name)
	if err != nil {
		return err
	}
	mode := uint32(h.Mode) & 0o777
	if h.Mode&0o6000 != 0 {
		x.res.skip(h.Name, "set-id bits dropped")
	}
	switch h.Typeflag {
	case tar.TypeReg:
		err = x.file(rel, mode, h)
	case tar.TypeDir:
		err = x.dir(rel, mode|uint32(h.Mode)&0o1000, h.ModTime)
	case tar.TypeSymlink:
		err = x.symlink(rel, h)
	case tar.TypeLink:
		err = x.link(rel, h)
	case tar.TypeGNUSparse:
		return fmt.Errorf("sparse entries are not read; make the archive without them: %w", ErrUnsafe)
	case tar.TypeFifo, tar.TypeChar, tar.TypeBlock:
		x.res.skip(h.Name, "fifo or device")
		return nil
	default:
		x.res.skip(h.Name, "unknown type %q", h.Typeflag)
		return nil
	}
	if err == nil {
		x.res.Entries++
	}
	return err
}

// place returns where a name of the archive goes, relative to the tree.
func (x *extractor) place(name string) (string, error) {
	rel, err := Clean(name)
	if err != nil || x.o.As == "" {
		return rel, err
	}
	top, rest, _ := strings.Cut(rel, "/")
	if x.top == "" {
		x.top = top
	}
	if top != x.top || top == "." {
		return "", fmt.Errorf("not below %q, the one entry that gets a new name: %w", x.top, ErrUnsafe)
	}
	return path.Join(x.o.As, rest), nil
}

// Clean returns a name of an archive as a relative path without "." and
// doubled slashes; "." is the directory itself. A name that is absolute, goes
// up, or can't be a path is refused.
func Clean(name string) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("the name is empty: %w", ErrUnsafe)
	case len(name) >= maxName:
		return "", fmt.Errorf("the name is longer than %d bytes: %w", maxName-1, ErrUnsafe)
	case strings.IndexByte(name, 0) >= 0:
		return "", fmt.Errorf("the name holds a NUL byte: %w", ErrUnsafe)
	case name[0] == '/':
		return "", fmt.Errorf("the name is absolute: %w", ErrUnsafe)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("the name goes up: %w", ErrUnsafe)
		}
	}
	return path.Clean(name), nil
}

func (x *extractor) file(rel string, mode uint32, h *tar.Header) error {
	if rel == "." {
		return fmt.Errorf("a file can't be the directory itself: %w", ErrUnsafe)
	}
	if x.o.MaxBytes > 0 && h.Size > x.o.MaxBytes-x.res.Bytes {
		return fmt.Errorf("more than %d bytes: %w", x.o.MaxBytes, ErrUnsafe)
	}
	w, err := x.tree.create(rel)
	if err != nil {
		return err
	}
	n, err := x.copy(w)
	if err == nil {
		err = w.commit(mode, h.ModTime)
	}
	if err != nil {
		w.abort()
		return err
	}
	x.res.Bytes += n
	return nil
}

func (x *extractor) copy(w *newFile) (int64, error) {
	var total int64
	for {
		if x.ctx.Err() != nil {
			return total, context.Cause(x.ctx)
		}
		n, err := x.in.Read(x.buf)
		if n > 0 {
			if err := w.write(x.buf[:n]); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, formatError(err)
		}
	}
}

func (x *extractor) dir(rel string, mode uint32, mod time.Time) error {
	if rel == "." {
		return nil // it was there before, and is the caller's
	}
	made, err := x.tree.mkdir(rel)
	if err != nil || !made && x.o.Own != nil {
		return err
	}
	d := deferred{rel, mode, mod}
	if len(x.dirs) == maxDeferred {
		return x.tree.setDir(d) // later entries may change its time again
	}
	x.dirs = append(x.dirs, d)
	return nil
}

// finishDirs sets what waited, the innermost first. A directory that was
// there before may be another user's, or have been replaced meanwhile: it is
// left as it is, and named in the Result.
func (x *extractor) finishDirs() error {
	var first error
	for i := len(x.dirs) - 1; i >= 0; i-- {
		d := x.dirs[i]
		err := x.tree.setDir(d)
		switch {
		case err == nil:
		case skippable(err):
			x.res.skip(d.rel, "mode and time were not set")
		case first == nil:
			first = fmt.Errorf("directory %.256q: %w", d.rel, err)
		}
	}
	return first
}

func (x *extractor) symlink(rel string, h *tar.Header) error {
	if rel == "." || h.Linkname == "" || len(h.Linkname) >= maxName || strings.IndexByte(h.Linkname, 0) >= 0 {
		return fmt.Errorf("a link without a usable target or name: %w", ErrUnsafe)
	}
	return x.tree.symlink(h.Linkname, rel, h.ModTime)
}

func (x *extractor) link(rel string, h *tar.Header) error {
	old, err := x.place(h.Linkname)
	if err != nil {
		return fmt.Errorf("link to %.256q: %w", h.Linkname, err)
	}
	if rel == "." || old == "." {
		return fmt.Errorf("a hard link to or in place of a directory: %w", ErrUnsafe)
	}
	if rel == old {
		return nil
	}
	return x.tree.link(old, rel)
}

// stream reads a tar and knows whether it was whole.
type stream struct {
	tr      *tar.Reader
	in      counter
	started bool
	content int64 // read of the current entry
}

// counter counts what is read.
type counter struct {
	r    *bufio.Reader
	n    int64
	tail [512]byte // the last bytes read
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if n < len(c.tail) {
		copy(c.tail[:], c.tail[n:])
	}
	copy(c.tail[max(0, len(c.tail)-n):], b[max(0, n-len(c.tail)):n])
	return n, err
}

func newStream(r io.Reader) *stream {
	s := &stream{in: counter{r: bufio.NewReaderSize(r, bufferSize)}}
	s.tr = tar.NewReader(&s.in)
	return s
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.tr.Read(b)
	s.content += int64(n)
	return n, err
}

// next returns the next header, or io.EOF after the mark that ends an
// archive. Package tar takes a stream that just stops between two entries
// for a whole one, so the mark, 512 zero bytes at least, is looked for.
func (s *stream) next() (*tar.Header, error) {
	if s.started {
		if _, err := io.Copy(io.Discard, s); err != nil {
			return nil, formatError(err)
		}
	}
	padding := -s.content & 511
	before := s.in.n
	s.started, s.content = true, 0
	h, err := s.tr.Next()
	if err == io.EOF && (s.in.n-before < padding+512 || s.in.n&511 != 0 || s.in.tail != [512]byte{}) {
		return nil, fmt.Errorf("%w: it ends without its end mark", ErrFormat)
	}
	if err != nil && err != io.EOF {
		return nil, formatError(err)
	}
	return h, err
}

// drain reads what pads the archive, so that a compressed stream is checked
// to its end; more than that is no part of it.
func (s *stream) drain() error {
	if _, err := io.CopyN(io.Discard, &s.in, 1<<20); err != nil && err != io.EOF {
		return formatError(err)
	}
	return nil
}

func formatError(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrFieldTooLong) {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return fmt.Errorf("read the archive: %w", err)
}
