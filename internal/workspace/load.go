package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sort"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Bounds of what a Set holds in memory.
const (
	maxSetNames   = 512 << 20 // bytes of paths, targets and details
	maxSetExtents = 1 << 20
	maxAttributes = 1 << 20 // bytes of a .gitattributes that are looked at
)

// Set is a stream that was read to its end: the changes in memory, and those
// contents that were asked for in a file without a name.
type Set struct {
	header  Header
	entries []entry
	spool   *os.File
	spooled int64
	left    Left // what the stream left out
	aside   []aside
}

// entry is a change and where its content lies.
type entry struct {
	Change
	stored  bool  // its content is in the spool
	off     int64 // where
	torn    bool  // the content is not what the digest says: it changed while it was read
	drivers bool  // a .gitattributes that names drivers, or may
}

// LoadOptions tune Load.
type LoadOptions struct {
	// SpoolDir is where contents wait: Load makes a file there that has no
	// name. Nil means that no contents are kept.
	SpoolDir *os.File
	// SpoolHint says what to do where no file can be made there.
	SpoolHint string
	// Keep says whose contents are kept; nil means all.
	Keep func(*Change) bool
}

// Load reads a stream to its end record. Contents that are kept are checked
// against their digests. After an error nothing is left behind.
func Load(ctx context.Context, r io.Reader, opts LoadOptions) (*Set, error) {
	in, err := NewReader(r)
	if err != nil {
		return nil, err
	}
	s := &Set{header: in.Header()}
	if opts.SpoolDir != nil && s.header.Content {
		if s.spool, err = newSpool(opts.SpoolDir, opts.SpoolHint); err != nil {
			return nil, err
		}
	}
	if err := s.load(ctx, in, opts.Keep); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Set) load(ctx context.Context, in *Reader, keep func(*Change) bool) error {
	l := &loader{Set: s, dig: newDigester(), buf: make([]byte, 256<<10)}
	names, extents := 0, 0
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		c, err := in.Next()
		if errors.Is(err, io.EOF) {
			s.left, s.aside = in.Left(), in.aside
			return nil
		}
		if err != nil {
			return err
		}
		names += len(c.Path) + len(c.Target) + len(c.Detail)
		extents += len(c.Extents)
		if names > maxSetNames || extents > maxSetExtents {
			return sandbox.Errorf(sandbox.Exhausted, "change stream: its names or extents need too much memory").
				WithHint("ask for fewer paths at a time")
		}
		e := entry{Change: c}
		e.Body = nil
		if c.Kind == File {
			if err := l.content(&e, c.Body, keep == nil || keep(&c)); err != nil {
				return err
			}
		}
		s.entries = append(s.entries, e)
	}
}

// Header returns what the stream said of itself.
func (s *Set) Header() Header { return s.header }

// Close frees the contents.
func (s *Set) Close() error {
	if s.spool == nil {
		return nil
	}
	return s.spool.Close()
}

// find returns the entry for a path, or nil.
func (s *Set) find(p string) *entry {
	i := s.search(p)
	if i < len(s.entries) && s.entries[i].Path == p {
		return &s.entries[i]
	}
	return nil
}

// search returns the index of the first entry that is not before p.
func (s *Set) search(p string) int {
	return sort.Search(len(s.entries), func(i int) bool { return comparePaths(s.entries[i].Path, p) >= 0 })
}

// copyTo writes a stored content to out, an empty file, with its holes.
func (s *Set) copyTo(ctx context.Context, e *entry, out *os.File) error {
	from := e.off
	for _, x := range e.extents() {
		n, err := copyRange(ctx, out, s.spool, x.Offset, from, x.Length)
		if err == nil && n < x.Length {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		from += x.Length
	}
	return out.Truncate(e.Size)
}

// text returns a stored content of at most limit bytes.
func (s *Set) text(e *entry, limit int64) ([]byte, error) {
	if !e.stored || e.Size > limit {
		return nil, fmt.Errorf("%s: content was not kept", term.Escape(e.Path))
	}
	p := make([]byte, e.Size)
	from := e.off
	for _, x := range e.extents() {
		if _, err := s.spool.ReadAt(p[x.Offset:x.Offset+x.Length], from); err != nil {
			return nil, fmt.Errorf("read spooled content: %w", err)
		}
		from += x.Length
	}
	return p, nil
}

// loader is one run of Load.
type loader struct {
	*Set
	dig *digester
	buf []byte
}

// content stores a file's content if it is to be kept.
func (l *loader) content(e *entry, body io.Reader, keep bool) error {
	attributes := isAttributes(e.Path)
	e.drivers = attributes // until its text says otherwise
	if body == nil || !attributes && (!keep || l.spool == nil) {
		return nil
	}
	store := keep && l.spool != nil
	e.off = l.spooled
	var text []byte
	l.dig.reset(e.Size)
	for _, x := range e.extents() {
		for off, end := x.Offset, x.Offset+x.Length; off < end; {
			p := l.buf[:min(int64(len(l.buf)), end-off)]
			if _, err := io.ReadFull(body, p); err != nil {
				return broken(err)
			}
			l.dig.add(off, p)
			off += int64(len(p))
			if attributes && e.Size <= maxAttributes {
				text = append(text, p...)
			}
			if !store {
				continue
			}
			if _, err := l.spool.WriteAt(p, l.spooled); err != nil {
				return noRoom("keep changes until they are applied", err)
			}
			l.spooled += int64(len(p))
		}
	}
	e.stored, e.torn = store, l.dig.sum() != e.Digest
	if attributes && e.Size <= maxAttributes && !e.torn {
		e.drivers = drivers(text)
	}
	return nil
}

func isAttributes(p string) bool {
	_, name := splitPath(p)
	folded := foldName(name)
	if stem, ok := cutShort(folded); ok && (stem == "gitatt" || stem == "gi7d29") {
		return true
	}
	return folded == ".gitattributes"
}

// noRoom makes an error of a full disk one that a user can act on.
func noRoom(doing string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return &sandbox.Error{
			Kind: sandbox.Exhausted, Msg: doing + ": no room left on the workspace's disk",
			Hint: "make room, or name fewer paths", Err: err,
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// tempPrefix begins the name of every file that Apply makes for a moment. No
// change may have such a name.
const tempPrefix = ".carboy-tmp-"

func tempName() string { return tempPrefix + strconv.FormatUint(rand.Uint64(), 36) }

// newSpool makes a file without a name in dir, readable by the caller alone. hint is
// that of its error.
func newSpool(dir *os.File, hint string) (*os.File, error) {
	f, err := openAt(dir, ".", unix.O_RDWR|unix.O_TMPFILE, 0o600)
	if err == nil {
		return f, nil
	}
	name := tempName() // a file system without O_TMPFILE, such as NFS
	if f, err = openAt(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600); err != nil {
		return nil, sandbox.Errorf(sandbox.Denied, "directory %s: no file can be made there: %w", term.Escape(dir.Name()), err).WithHint("%s", hint)
	}
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("remove name of temporary file: %w", err)
	}
	return f, nil
}
