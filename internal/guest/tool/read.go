package tool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// openFlags never wait, as for the other end of a fifo, and never make a
// terminal the agent's own.
const openFlags = unix.O_NONBLOCK | unix.O_NOCTTY

// read answers what a file or a directory holds.
func (c *call) read(q *tools.ReadRequest) (res tools.ReadResult, err error) {
	r, err := newReader(q)
	if err != nil {
		return res, err
	}
	rel, abs, err := c.place(q.Path)
	if err != nil {
		return res, err
	}
	if q.Path == "" {
		return res, failf(tools.ToolInvalid, "path is missing")
	}
	r.ctx = c.ctx
	err = c.do(func(root int) error {
		fd, err := beneath.Open(root, rel, unix.O_RDONLY|openFlags)
		if err != nil {
			return explain(abs, err)
		}
		f := os.NewFile(uintptr(fd), abs)
		defer f.Close()
		res, err = r.read(f)
		return explain(abs, err)
	})
	res.OK = err == nil
	return res, err
}

// reader is a read whose request was checked.
type reader struct {
	ctx      context.Context // of the one call that this is for
	first    int64
	lines    int
	bytes    int
	exact    bool
	from     int64 // byte, where exact
	passed   int64 // bytes before the first line
	replaced bool
}

func newReader(q *tools.ReadRequest) (*reader, error) {
	r := &reader{first: max(q.Offset, 1), lines: q.Limit, bytes: q.MaxBytes, from: q.ByteOffset}
	switch {
	case q.Offset < 0 || q.Limit < 0 || q.MaxBytes < 0 || q.ByteOffset < 0:
		return nil, failf(tools.ToolInvalid, "offset, limit, max_bytes and byte_offset can't be negative")
	case q.Encoding == tools.EncodingBase64:
		r.exact = true
	case q.Encoding != "" && q.Encoding != tools.EncodingText:
		return nil, failf(tools.ToolInvalid, "encoding %.16q: use text or base64", q.Encoding)
	case q.ByteOffset > 0:
		return nil, failf(tools.ToolInvalid, "byte_offset needs the encoding base64; lines start at offset")
	}
	if r.lines == 0 {
		r.lines = tools.ReadLines
	}
	if r.bytes == 0 {
		r.bytes = tools.MaxToolBytes
	}
	r.lines, r.bytes = min(r.lines, tools.MaxReadLines), min(r.bytes, tools.MaxToolBytes)
	return r, nil
}

func (r *reader) read(f *os.File) (tools.ReadResult, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return tools.ReadResult{}, err
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return list(int(f.Fd()))
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return tools.ReadResult{}, failf(tools.ToolInvalid, "path must name a regular file or a directory")
	case r.exact:
		return r.chunk(f, st.Size)
	}
	return r.text(f)
}

// list answers the names in a directory.
func list(fd int) (res tools.ReadResult, err error) {
	d := newDirents(fd)
	var names []string
	for len(names) <= tools.MaxDirEntries {
		more, err := d.next()
		if err != nil {
			return res, err
		}
		if len(more) == 0 {
			break
		}
		for _, e := range more {
			name, _ := repaired([]byte(e.name))
			names = append(names, name)
		}
	}
	res.Listing = &tools.Listing{IsDirectory: true, Total: len(names)}
	if len(names) > tools.MaxDirEntries {
		names = names[:tools.MaxDirEntries]
		res.TruncatedBy, res.Total = tools.ByEntries, tools.MaxDirEntries+1
	}
	slices.Sort(names)
	n, size := 0, 0
	for n < len(names) && size+len(names[n]) <= tools.MaxToolBytes {
		size += len(names[n]) + 1
		n++
	}
	if n < len(names) && res.TruncatedBy == "" {
		res.TruncatedBy = tools.ByBytes
	}
	res.Content, res.Truncated = strings.Join(names[:n], "\n"), res.TruncatedBy != ""
	return res, nil
}

// chunk answers a range of bytes, exactly.
func (r *reader) chunk(f *os.File, size int64) (res tools.ReadResult, err error) {
	buf := make([]byte, r.bytes+1)
	n, err := f.ReadAt(buf, r.from)
	if err != nil && err != io.EOF {
		return res, err
	}
	b := &tools.ByteRange{Encoding: tools.EncodingBase64, ByteOffset: r.from, SizeBytes: size, HasMore: n > r.bytes}
	b.Length = min(n, r.bytes)
	if b.HasMore {
		next := r.from + int64(b.Length)
		b.NextByteOffset = &next
		res.TruncatedBy = tools.ByBytes
	}
	res.Content, res.ByteRange, res.MaxBytes = base64.StdEncoding.EncodeToString(buf[:b.Length]), b, r.bytes
	res.Truncated = b.HasMore
	return res, nil
}

// text answers whole lines.
func (r *reader) text(f *os.File) (res tools.ReadResult, err error) {
	in := bufio.NewReaderSize(f, 64<<10)
	line, err := r.pass(in)
	if err != nil {
		return res, err
	}
	var out []string
	total := 0
	for ; ; line++ {
		raw, err := r.line(in)
		if err == io.EOF {
			break
		}
		if err != nil {
			return res, err
		}
		text, replaced := repaired(raw)
		switch {
		case len(out) == r.lines:
			res.TruncatedBy = tools.ByLines
		case total+len(text) > r.bytes:
			res.TruncatedBy = tools.ByBytes
		}
		if res.TruncatedBy != "" {
			break
		}
		r.replaced = r.replaced || replaced
		total += len(text)
		out = append(out, strings.TrimSuffix(text, "\n"))
	}
	t := &tools.TextRange{StartLine: r.first, EndLine: line - 1, MaxLines: r.lines, Replaced: r.replaced}
	res.Content = strings.Join(out, "\n")
	if res.TruncatedBy != "" {
		t.NextOffset = &line
		if len(out) == 0 {
			res.Content = fmt.Sprintf("[line %d exceeds the %s read limit: read it by bytes with the encoding base64, "+
				"use exec to cut it, or read from another offset]", line, size(r.bytes))
		}
	}
	res.TextRange, res.Truncated, res.MaxBytes = t, res.TruncatedBy != "", r.bytes
	return res, nil
}

// pass goes to the first line and returns its number.
func (r *reader) pass(in *bufio.Reader) (int64, error) {
	line, begun := int64(1), false
	for line < r.first {
		piece, err := in.ReadSlice('\n')
		r.passed += int64(len(piece))
		begun = begun && err != nil || err == bufio.ErrBufferFull
		switch {
		case err == nil:
			line++
		case err == io.EOF && r.passed == 0:
			return r.first, nil // an empty file
		case err == io.EOF:
			if begun || len(piece) > 0 {
				line++
			}
			return 0, failf(tools.ToolInvalid, "offset %d is beyond the end of the file, which has %d lines", r.first, line-1)
		case !errors.Is(err, bufio.ErrBufferFull):
			return 0, err
		}
		if r.passed > tools.ReadScanBytes {
			return 0, failf(tools.ToolTooLarge, "line %d is more than %d MiB into the file; use exec to get at it", r.first, tools.ReadScanBytes>>20)
		}
		if r.ctx.Err() != nil {
			return 0, context.Cause(r.ctx)
		}
	}
	if _, err := in.Peek(1); err == io.EOF && r.passed > 0 {
		return 0, failf(tools.ToolInvalid, "offset %d is beyond the end of the file, which has %d lines", r.first, line-1)
	}
	return line, nil
}

// line returns the next line with its newline. Of one beyond the limit a part
// is returned that is beyond it too; nothing is read after that.
func (r *reader) line(in *bufio.Reader) ([]byte, error) {
	var whole []byte
	for {
		piece, err := in.ReadSlice('\n')
		whole = append(whole, piece...)
		switch {
		case err == nil || len(whole) > r.bytes:
			return whole, nil
		case err == io.EOF && len(whole) > 0:
			return whole, nil
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}

// size says a number of bytes as people do.
func size(n int) string {
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	return fmt.Sprintf("%.1fKB", float64(n)/1024)
}

// all returns what is in f, at most limit bytes and one more.
func all(f *os.File, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	_, err := buf.ReadFrom(io.LimitReader(io.NewSectionReader(f, 0, limit+1), limit+1))
	return buf.Bytes(), err
}
