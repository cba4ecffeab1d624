package workspace

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Reader reads a stream that WriteChanges wrote and trusts nothing in it. Any
// breach of the format ends it with an error; what it returned before holds.
type Reader struct {
	tr      *tar.Reader
	header  Header
	entries int64
	last    string   // the path before
	left    Left     // known at the end
	aside   []aside  // the same
	dirs    []string // the directories that the next path may be in, outermost first
	err     error
}

// NewReader reads the header.
func NewReader(r io.Reader) (*Reader, error) {
	s := &Reader{tr: tar.NewReader(r), dirs: []string{"."}}
	h, err := s.tr.Next()
	if err != nil {
		return nil, broken(err)
	}
	if h.PAXRecords[recordKind] != kindHeader || h.Name != headerName {
		return nil, badStream("it does not begin with a header")
	}
	if v := h.PAXRecords[recordVersion]; v != fmt.Sprint(streamVersion) {
		return nil, sandbox.Errorf(sandbox.Unsupported, "change stream: version %q, want %d", term.Escape(v), streamVersion).
			WithHint("use the same version of carboy on both sides")
	}
	since, err := parseNumber(h.PAXRecords[recordSince], math.MaxInt64)
	if err != nil || h.Size != 0 {
		return nil, badStream("bad header")
	}
	if err := onlyRecords(h, recordVersion, recordSince, recordContent, recordApart); err != nil {
		return nil, err
	}
	s.header = Header{Since: time.Unix(0, since), Content: h.PAXRecords[recordContent] == "1", Apart: h.PAXRecords[recordApart] == "1"}
	return s, nil
}

// Header returns what the stream says of itself.
func (s *Reader) Header() Header { return s.header }

// Left returns what the stream says that was left out, once Next has returned io.EOF.
func (s *Reader) Left() Left { return s.left }

// Next returns the next change, or io.EOF after the end record. A stream that
// ends before it is an Unavailable error. The change's Body is valid until
// the next call.
func (s *Reader) Next() (Change, error) {
	if s.err != nil {
		return Change{}, s.err
	}
	c, err := s.next()
	if err != nil {
		s.err = err
	}
	return c, err
}

func (s *Reader) next() (Change, error) {
	h, err := s.tr.Next()
	if err != nil {
		return Change{}, broken(err)
	}
	if h.PAXRecords[recordKind] == kindAside && s.aside == nil {
		if s.aside, err = readAside(s.tr, h); err != nil {
			return Change{}, err
		}
		if h, err = s.tr.Next(); err != nil {
			return Change{}, broken(err)
		}
		if h.PAXRecords[recordKind] != kindEnd {
			return Change{}, badStream("changes after what is left out")
		}
	}
	if h.PAXRecords[recordKind] == kindEnd {
		return Change{}, s.end(h)
	}
	if s.entries++; s.entries > maxEntries {
		return Change{}, sandbox.Errorf(sandbox.Exhausted, "change stream: more than %d changes", maxEntries)
	}
	c, err := s.change(h)
	if err != nil {
		return Change{}, err
	}
	return c, s.place(&c)
}

func (s *Reader) end(h *tar.Header) error {
	n, err := parseNumber(h.PAXRecords[recordEntries], maxEntries)
	if err != nil || n != s.entries || h.Name != endName || h.Size != 0 {
		return badStream("its end record does not fit")
	}
	if err := onlyRecords(h, recordEntries, recordIgnored, recordExcluded); err != nil {
		return err
	}
	for name, to := range map[string]*int64{recordIgnored: &s.left.Ignored, recordExcluded: &s.left.Excluded} {
		if text, ok := h.PAXRecords[name]; ok {
			if *to, err = parseNumber(text, math.MaxInt64); err != nil {
				return badStream("its end record does not fit")
			}
		}
	}
	if _, err := s.tr.Next(); !errors.Is(err, io.EOF) {
		return badStream("it goes on after its end")
	}
	return io.EOF
}

// change makes a Change of one entry.
func (s *Reader) change(h *tar.Header) (Change, error) {
	rec := h.PAXRecords
	c := Change{Path: h.Name, Kind: Kind(rec[recordKind]), Mode: uint32(h.Mode), ModTime: h.ModTime, Copied: rec[recordCopied] == "1"}
	if h.Mode < 0 || h.Mode > 0o7777 {
		return c, badStream("mode %o", h.Mode)
	}
	var typ byte = tar.TypeReg
	var err error
	for name, to := range map[string]*Origin{recordOrigin: &c.Origin, recordSelf: &c.Self} {
		if text := rec[name]; text != "" {
			if *to, err = parseOrigin(text); err != nil {
				return c, badStream("%v", err)
			}
		}
	}
	switch c.Kind {
	case File:
		err = s.file(&c, h)
	case Dir:
		typ = tar.TypeDir
		c.Path, c.Opaque = strings.TrimSuffix(h.Name, "/"), rec[recordOpaque] == "1"
		c.Shown = rec[recordShown] == "1"
		err = onlyRecords(h, recordOpaque, recordCopied, recordOrigin, recordShown)
	case Symlink:
		typ = tar.TypeSymlink
		c.Target = h.Linkname
		if c.Target == "" || len(c.Target) > maxPath || strings.IndexByte(c.Target, 0) >= 0 {
			return c, badStream("link target of %d bytes", len(c.Target))
		}
		err = onlyRecords(h, recordCopied, recordOrigin, recordSelf)
	case Deleted:
		c.Mode, c.ModTime = 0, time.Time{}
		err = onlyRecords(h)
	case Special:
		if c.Detail = rec[recordDetail]; c.Detail == "" || len(c.Detail) > 64 {
			return c, badStream("special entry without a name")
		}
		err = onlyRecords(h, recordDetail, recordCopied, recordOrigin, recordSelf)
	default:
		return c, badStream("unknown kind %q", term.Escape(string(c.Kind)))
	}
	if err == nil && (h.Typeflag != typ || c.Kind != File && h.Size != 0) {
		err = badStream("%s entry of tar type %q, %d bytes", c.Kind, h.Typeflag, h.Size)
	}
	return c, err
}

func (s *Reader) file(c *Change, h *tar.Header) (err error) {
	rec := h.PAXRecords
	if c.Size, err = parseNumber(rec[recordSize], maxFileSize); err != nil {
		return badStream("size: %v", err)
	}
	if err := c.Digest.UnmarshalText([]byte(rec[recordDigest])); err != nil || c.Digest.IsZero() {
		return badStream("file without a digest")
	}
	if err := onlyRecords(h, recordSize, recordDigest, recordExtents, recordCopied, recordOrigin, recordSelf); err != nil {
		return err
	}
	if !s.header.Content {
		if h.Size != 0 || rec[recordExtents] != "" {
			return badStream("content that the header does not announce")
		}
		return nil
	}
	switch ext := rec[recordExtents]; {
	case ext != "":
		if c.Extents, err = parseExtents(ext, c.Size); err != nil {
			return badStream("%v", err)
		}
	case h.Size == 0 && c.Size > 0:
		c.Extents = []Extent{} // one hole
	}
	if dataSize(c.extents()) != h.Size {
		return badStream("%d bytes of content, want %d", h.Size, dataSize(c.extents()))
	}
	c.Body = s.tr
	return nil
}

// place checks that c's path is good, comes after the last one and lies in a
// directory that the stream named.
func (s *Reader) place(c *Change) error {
	if err := checkPath(c.Path); err != nil {
		return badStream("%v", err)
	}
	if s.last != "" && comparePaths(s.last, c.Path) >= 0 {
		return badStream("%q after %q", term.Escape(c.Path), term.Escape(s.last))
	}
	s.last = c.Path
	parent, _ := splitPath(c.Path)
	for len(s.dirs) > 0 && s.dirs[len(s.dirs)-1] != parent {
		s.dirs = s.dirs[:len(s.dirs)-1]
	}
	if len(s.dirs) == 0 {
		return badStream("%q is in no directory", term.Escape(c.Path))
	}
	if c.Kind == Dir {
		s.dirs = append(s.dirs, c.Path)
	}
	return nil
}

// onlyRecords refuses PAX records but those that archive/tar keeps for itself
// and the named ones.
func onlyRecords(h *tar.Header, names ...string) error {
next:
	for k := range h.PAXRecords {
		switch k {
		case recordKind, "path", "linkpath", "mtime", "size":
			continue
		}
		for _, n := range names {
			if k == n {
				continue next
			}
		}
		return badStream("unexpected record %q", term.Escape(k))
	}
	return nil
}

func badStream(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, "change stream: "+format, args...)
}

// broken tells a stream that was cut from one that is no tar, and both from
// an error of the connection that carried it.
func broken(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		// Never io.EOF as the cause: that is how a whole stream ends.
		return &sandbox.Error{Kind: sandbox.Unavailable, Msg: "change stream: cut before its end", Hint: "try again", Err: io.ErrUnexpectedEOF}
	case errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong), errors.Is(err, tar.ErrInsecurePath):
		return &sandbox.Error{Kind: sandbox.Invalid, Msg: "change stream: not a stream of changes", Err: err}
	}
	return fmt.Errorf("read change stream: %w", err)
}

// Read yields the changes of a stream in order: directories before what is in
// them, siblings sorted by their bytes. The first error ends it. A change's
// Body is valid within its own turn of the loop.
func Read(r io.Reader) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		s, err := NewReader(r)
		if err != nil {
			yield(Change{}, err)
			return
		}
		for {
			c, err := s.Next()
			if err == io.EOF {
				return
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}
