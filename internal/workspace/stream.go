package workspace

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// The stream is a tar in PAX format. Its first entry is named headerName and
// its last endName; each entry says in recordKind what it is.
const (
	streamVersion = 1

	headerName = "carboy-changes"
	endName    = "carboy-end"

	kindHeader = "header"
	kindEnd    = "end"

	recordPrefix   = "CARBOY."
	recordKind     = recordPrefix + "kind"
	recordVersion  = recordPrefix + "version" // of the header
	recordSince    = recordPrefix + "since"   // of the header, ns since 1970
	recordContent  = recordPrefix + "content" // of the header: "1" where files carry their content
	recordEntries  = recordPrefix + "entries" // of the end: how many changes there were
	recordSize     = recordPrefix + "size"    // of a file: its length, which is not that of the entry's data
	recordDigest   = recordPrefix + "digest"
	recordExtents  = recordPrefix + "extents" // "offset+length,…"
	recordOpaque   = recordPrefix + "opaque"
	recordCopied   = recordPrefix + "copied"
	recordDetail   = recordPrefix + "detail"
	recordIgnored  = recordPrefix + "ignored"  // of the end: of how many files changes were left out: Left
	recordExcluded = recordPrefix + "excluded" // the same
	recordApart    = recordPrefix + "apart"    // of the header
	recordOrigin   = recordPrefix + "origin"
	recordSelf     = recordPrefix + "self"
	recordShown    = recordPrefix + "shown"

	// What is not in the stream and began as something of the base is in one entry before the end.
	asideName = "carboy-aside"
	kindAside = "aside"
)

// Header opens a stream.
type Header struct {
	// Since is when the workspace was made: what changed on the host later is
	// a conflict.
	Since time.Time
	// Content says that files carry their contents.
	Content bool
	// Apart says that nothing of the base shows in the workspace: what the base has gained since is in it only if
	// the stream names it. It is told where origins are.
	Apart bool
}

// streamWriter writes a stream. Changes must come in comparePaths' order,
// each below a directory that was written before.
type streamWriter struct {
	tw      *tar.Writer
	content bool
	entries int64
	left    Left
	aside   []byte // what is left out and has an origin, as readAside reads it
	buf     []byte // for copying contents
}

func newStreamWriter(w io.Writer, h Header) (*streamWriter, error) {
	s := &streamWriter{tw: tar.NewWriter(w), content: h.Content, buf: make([]byte, 256<<10)}
	rec := map[string]string{
		recordKind:    kindHeader,
		recordVersion: strconv.Itoa(streamVersion),
		recordSince:   strconv.FormatInt(h.Since.UnixNano(), 10),
	}
	if h.Content {
		rec[recordContent] = "1"
	}
	if h.Apart {
		rec[recordApart] = "1"
	}
	return s, s.tw.WriteHeader(record(headerName, tar.TypeReg, rec))
}

func record(name string, typ byte, rec map[string]string) *tar.Header {
	return &tar.Header{Name: name, Typeflag: typ, Format: tar.FormatPAX, PAXRecords: rec}
}

// write writes c, and where the stream has content and c is a file, what body
// has at c's extents. Where body turns out shorter, zeros stand in for what is
// missing: the digest then tells the reader that the file changed meanwhile.
func (s *streamWriter) write(ctx context.Context, c *Change, body io.ReaderAt) error {
	if s.entries++; s.entries > maxEntries {
		return fmt.Errorf("more than %d changes", maxEntries)
	}
	h := record(c.Path, tar.TypeReg, map[string]string{recordKind: string(c.Kind)})
	h.Mode, h.ModTime = int64(c.Mode&0o7777), c.ModTime
	switch c.Kind {
	case Dir:
		h.Typeflag, h.Name = tar.TypeDir, c.Path+"/"
		if c.Opaque {
			h.PAXRecords[recordOpaque] = "1"
		}
	case Symlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, c.Target
	case Special:
		h.PAXRecords[recordDetail] = c.Detail
	case File:
		h.PAXRecords[recordSize] = strconv.FormatInt(c.Size, 10)
		h.PAXRecords[recordDigest] = c.Digest.String()
		if s.content {
			h.Size = dataSize(c.extents())
		}
		if s.content && c.Extents != nil && h.Size > 0 {
			h.PAXRecords[recordExtents] = formatExtents(c.Extents)
		}
	}
	if c.Copied {
		h.PAXRecords[recordCopied] = "1"
	}
	if !c.Origin.IsZero() {
		h.PAXRecords[recordOrigin] = c.Origin.String()
	}
	if !c.Self.IsZero() {
		h.PAXRecords[recordSelf] = c.Self.String()
	}
	if c.Shown {
		h.PAXRecords[recordShown] = "1"
	}
	if err := s.tw.WriteHeader(h); err != nil {
		return err
	}
	if h.Size == 0 {
		return nil
	}
	return s.writeBody(ctx, c.extents(), body)
}

func (s *streamWriter) writeBody(ctx context.Context, ext []Extent, body io.ReaderAt) error {
	for _, e := range ext {
		for off, end := e.Offset, e.Offset+e.Length; off < end; {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			p := s.buf[:min(int64(len(s.buf)), end-off)]
			n, err := body.ReadAt(p, off)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			clear(p[n:])
			if _, err := s.tw.Write(p); err != nil {
				return err
			}
			off += int64(len(p))
		}
	}
	return nil
}

// close writes the end record. Without it a reader takes the stream for cut.
func (s *streamWriter) close() error {
	if len(s.aside) > 0 {
		h := record(asideName, tar.TypeReg, map[string]string{recordKind: kindAside})
		h.Size = int64(len(s.aside))
		if err := s.tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := s.tw.Write(s.aside); err != nil {
			return err
		}
	}
	rec := map[string]string{recordKind: kindEnd, recordEntries: strconv.FormatInt(s.entries, 10)}
	for name, n := range map[string]int64{recordIgnored: s.left.Ignored, recordExcluded: s.left.Excluded} {
		if n > 0 {
			rec[name] = strconv.FormatInt(n, 10)
		}
	}
	if err := s.tw.WriteHeader(record(endName, tar.TypeReg, rec)); err != nil {
		return err
	}
	return s.tw.Close()
}

func formatExtents(ext []Extent) string {
	var b []byte
	for i, e := range ext {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, e.Offset, 10)
		b = append(b, '+')
		b = strconv.AppendInt(b, e.Length, 10)
	}
	return string(b)
}

// parseExtents reads what formatExtents wrote: ascending pieces with holes
// between them, within size bytes.
func parseExtents(s string, size int64) ([]Extent, error) {
	n := strings.Count(s, ",") + 1
	if n > maxExtents {
		return nil, fmt.Errorf("%d extents, at most %d", n, maxExtents)
	}
	ext := make([]Extent, 0, n)
	end := int64(0)
	for piece := range strings.SplitSeq(s, ",") {
		a, b, _ := strings.Cut(piece, "+")
		off, err1 := parseNumber(a, size)
		length, err2 := parseNumber(b, size)
		if err1 != nil || err2 != nil || length == 0 || off < end || length > size-off {
			return nil, fmt.Errorf("extent %q in a file of %d bytes", piece, size)
		}
		end = off + length
		ext = append(ext, Extent{off, length})
	}
	return ext, nil
}

// parseNumber reads a decimal from 0 to limit, without sign or leading zero.
func parseNumber(s string, limit int64) (int64, error) {
	if s == "" || len(s) > 1 && s[0] == '0' || s[0] < '0' || s[0] > '9' {
		return 0, fmt.Errorf("%q is no number", s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > limit {
		return 0, fmt.Errorf("%q is no number up to %d", s, limit)
	}
	return n, nil
}
