package workspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Options select what WriteChanges writes.
type Options struct {
	sandbox.ChangesOptions
	// Since is when the workspace was made. A Copy that was given none takes
	// it from its manifest.
	Since time.Time
	// Mark names what has the view mounted; "": nothing has.
	Mark string
}

// Source is a workspace to read changes from: OverlayUpper or Copy.
type Source interface {
	since() time.Time
	write(p *producer) error
}

// WriteChanges writes the changes of src as a stream that Read understands.
// The workspace may be in use: what vanishes meanwhile is left out, and a file
// that changes while it is read carries a digest that does not fit it, which
// the consumer notices. A name too deep to be written, a device, a fifo, a
// socket, a file that only others may read and a huge sparse file of very many pieces are
// named as Special.
//
// After an error the stream lacks its end record, so that no reader takes it
// for complete.
func WriteChanges(ctx context.Context, w io.Writer, src Source, opts Options) error {
	sel, err := newSelection(opts.Paths)
	if err == nil {
		err = CheckFilter(opts.Filter)
	}
	if err != nil {
		return err
	}
	_, apart := src.(*copySource)
	h := Header{Since: opts.Since, Content: opts.Content, Apart: apart && opts.Origins}
	if h.Since.IsZero() {
		h.Since = src.since()
	}
	if h.Since.IsZero() {
		return errors.New("write changes: no creation time")
	}
	out, err := newStreamWriter(w, h)
	if err != nil {
		return fmt.Errorf("write changes: %w", err)
	}
	p := &producer{
		ctx: ctx, out: out, sel: sel, filter: newFilter(opts.Filter, sel), dig: newDigester(), small: make([]byte, smallFile+1),
		whole: opts.Whole, origins: opts.Origins, selves: opts.Selves, mark: opts.Mark,
	}
	if opts.Shape != "" {
		p.shape = &summer{sha256.New()}
	}
	if err := src.write(p); err != nil {
		return fmt.Errorf("write changes: %w", err)
	}
	if opts.Shape != "" && p.shape.sum().String() != opts.Shape {
		return ErrLoose
	}
	if err := out.close(); err != nil {
		return fmt.Errorf("write changes: %w", err)
	}
	return nil
}

// smallFile is the size up to which a file is read once, into memory, so that
// its digest and its content agree however often it changes.
const smallFile = 1 << 20

// producer is one run of WriteChanges.
type producer struct {
	ctx   context.Context
	out   *streamWriter
	sel   selection
	dig   *digester
	small []byte
	lower *opener // of an overlay: what lies below it

	origins bool           // tell what things began as
	selves  bool           // and what they are
	mark    string         // what has the view mounted; "": nothing
	aside   bool           // what is walked is not selected: only its origins are told
	whole   bool           // no directory may show one of the base at another path
	shape   *summer        // of what Shape sums; nil: nobody asks
	copies  copies         // of a copy: what its files are copies of; nil: nobody asks
	reader  *rights.Reader // who may read what is written; nil: all of it

	filter *filter
	in     verdict // about the directory that is walked
	left   *int64  // what counts the files there, which are left out; nil: they are written
}

// enter decides about a path of the directory that is walked, and makes that the current
// one. What it returns goes back to how it was.
func (p *producer) enter(rel string, dir bool) (leave func()) {
	if p.filter.all || p.aside {
		return func() {}
	}
	in, left := p.in, p.left
	p.in = p.filter.enter(rel, dir, in)
	switch hidden := p.in.out(dir, !p.filter.only.Empty()); {
	case !hidden || dir && (p.sel.leads(rel) || p.in.ignored && p.filter.ignored.Leads(rel)):
		p.left = nil
	case p.in.ignored:
		p.left = &p.out.left.Ignored
	default:
		p.left = &p.out.left.Excluded
	}
	return func() { p.in, p.left = in, left }
}

// write writes a change, or counts it where it is left out.
func (p *producer) write(c *Change, body io.ReaderAt) error {
	if p.left == nil && !p.aside {
		return p.out.write(p.ctx, c, body)
	}
	if c.Kind != Dir && !p.aside {
		*p.left++
	}
	if c.Kind == Dir && c.Shown || c.Kind != Dir && (!c.Origin.IsZero() || !c.Self.IsZero()) {
		p.out.aside = appendAside(p.out.aside, c)
	}
	return context.Cause(p.ctx)
}

// without reports whether what is walked is left out.
func (p *producer) without() bool { return p.left != nil || p.aside }

// wants reports whether a path is to be written, as selected or as the parent
// of something that is.
func (p *producer) wants(rel string) bool { return p.sel.has(rel) || p.sel.leads(rel) }

// tooDeep reports whether what is in directory rel may have paths that are
// longer than a stream allows.
func tooDeep(rel string, depth int) bool {
	return depth >= MaxDepth || len(rel) > maxPath-maxName-1
}

// node is what is not a directory, by its name in an open one.
type node struct {
	dir   *os.File
	name  string
	lower bool // it is the base's, and read as that is
	known bool // the base has it now: that it was copied from there says no more
}

// open opens the regular file that n is.
func (p *producer) open(n node) (*os.File, unix.Stat_t, error) {
	if !n.lower {
		return openFileAt(n.dir, n.name)
	}
	f, err := p.openHere(n.dir, n.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, unix.Stat_t{}, err
	}
	st, err := regular(f)
	return f, st, err
}

// readlink reads the link that n is.
func (p *producer) readlink(n node) (target string, err error) {
	if !n.lower {
		return readlinkAt(n.dir, n.name)
	}
	err = p.lower.do(func() (err error) {
		target, err = readlinkAt(n.dir, n.name)
		return err
	})
	return target, err
}

// origins returns what n began as, and, with selves, what it is in the upper layer.
func (n node) origins(selves bool) (origin, self Origin) {
	if n.lower {
		return identify(n.dir, n.name), Origin{}
	}
	if selves {
		self = identify(n.dir, n.name)
	}
	return originAt(n.dir, n.name), self
}

// entry writes what is not a directory. What is gone is left out.
func (p *producer) entry(n node, rel string, st *unix.Stat_t, copied bool) error {
	c := Change{Path: rel, Mode: st.Mode & 0o7777, ModTime: statTime(st.Mtim), Copied: copied}
	c.Kind, c.Detail = kindOf(st)
	if p.origins {
		c.Origin, c.Self = n.origins(p.selves)
		if p.copies != nil {
			c.Origin = p.copies.of(n.dir, n.name, st)
		}
	}
	if p.without() {
		return p.write(&c, nil)
	}
	switch c.Kind {
	case File:
		return p.file(n, c)
	case Symlink:
		target, err := p.readlink(n)
		if errors.Is(err, unix.EINVAL) || err != nil && gone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read link: %w", err)
		}
		c.Target = target
	}
	return p.write(&c, nil)
}

func (p *producer) file(n node, c Change) error {
	f, st, err := p.open(n)
	if err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("open file: %w", err)
	}
	defer f.Close()
	c.Mode, c.ModTime = st.Mode&0o7777, statTime(st.Mtim)
	c.Copied = c.Copied || !n.known && hasOrigin(f)
	if !n.lower && !p.reader.May(st.Uid, st.Gid, st.Mode, hasACL(f)) {
		c.Kind, c.Detail, c.Mode = Special, detailUnreadable, 0 // as one is that was not copied yet
		return p.write(&c, nil)
	}
	if st.Size <= smallFile {
		n, err := readUpTo(f, p.small)
		if err != nil {
			return fmt.Errorf("read file: %w", err)
		}
		if n <= smallFile {
			c.Size, c.Digest = int64(n), p.dig.digestBytes(p.small[:n])
			return p.write(&c, memory(p.small[:n]))
		}
		if st, err = statFile(f); err != nil { // it grew
			return fmt.Errorf("stat file: %w", err)
		}
	}
	c.Size = st.Size
	c.Extents, err = fileExtents(f, st.Size, st.Blocks)
	if errors.Is(err, errFragmented) || st.Size > maxFileSize {
		c.Kind, c.Detail, c.Size = Special, "too fragmented", 0
		return p.write(&c, nil)
	}
	if err != nil {
		return err
	}
	if c.Digest, err = p.dig.digestFile(p.ctx, f, c.Size, c.extents(), p.out.buf); err != nil {
		return fmt.Errorf("read file: %w", err)
	}
	return p.write(&c, f)
}

// memory is a file's content as an io.ReaderAt.
type memory []byte

func (m memory) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(m)) {
		return 0, io.EOF
	}
	n := copy(p, m[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readUpTo fills buf from the start of f and returns how much there was.
func readUpTo(f io.ReaderAt, buf []byte) (int, error) {
	n, err := f.ReadAt(buf, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
