package workspace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"
)

// A manifest lists what a Copy began as, in comparePaths' order: a magic line
// and the time, one record per path, an end record with the count and a
// checksum over all before it. Paths are written as the number of bytes shared
// with the one before, and the rest; numbers are varints. The first version did not say
// which file of the base each one is a copy of.

const (
	manifestMagic    = "carboy manifest 2\n"
	manifestMagicOne = "carboy manifest 1\n"
)

// The types of a manifest's records.
const (
	manifestEnd = iota
	manifestFile
	manifestDir
	manifestLink
	manifestDigested = 0x80 // added to manifestFile: a digest follows
)

// manifestEntry is one path as the copy began.
type manifestEntry struct {
	path   string
	kind   Kind
	mode   uint32
	size   int64
	mtime  int64 // ns since 1970
	ctime  int64 // of the copy: what the agent can't set
	target string
	digest Digest // zero where none was asked for

	// Of a file or a link: which of the base's it is a copy of, and how the copy is known at whatever path.
	origin Origin // zero: it is not known, or has several names
	ino    uint64
	born   int64 // ns since 1970; 0: not known
}

var errManifest = errors.New("damaged manifest")

// manifestWriter writes a manifest.
type manifestWriter struct {
	w     *bufio.Writer
	sum   uint32
	last  string
	count uint64
	buf   []byte
}

func newManifestWriter(w io.Writer, since time.Time) *manifestWriter {
	m := &manifestWriter{w: bufio.NewWriterSize(w, 64<<10)}
	m.buf = binary.AppendVarint(append(m.buf, manifestMagic...), since.UnixNano())
	m.put(m.buf)
	return m
}

// put writes p; bufio keeps the first error for Flush.
func (m *manifestWriter) put(p []byte) {
	m.sum = crc32.Update(m.sum, crcTable, p)
	m.w.Write(p)
}

var crcTable = crc32.MakeTable(crc32.Castagnoli)

func (m *manifestWriter) add(e *manifestEntry) {
	b := m.buf[:0]
	switch {
	case e.kind == Dir:
		b = append(b, manifestDir)
	case e.kind == Symlink:
		b = append(b, manifestLink)
	case e.digest.IsZero():
		b = append(b, manifestFile)
	default:
		b = append(b, manifestFile|manifestDigested)
	}
	shared := 0
	for shared < min(len(m.last), len(e.path)) && m.last[shared] == e.path[shared] {
		shared++
	}
	b = binary.AppendUvarint(b, uint64(shared))
	b = appendString(b, e.path[shared:])
	b = binary.AppendUvarint(b, uint64(e.mode))
	b = binary.AppendUvarint(b, uint64(e.size))
	b = binary.AppendVarint(b, e.mtime)
	b = binary.AppendVarint(b, e.ctime)
	if e.kind != Dir {
		b = binary.AppendUvarint(append(b, e.origin[:]...), e.ino)
		b = binary.AppendVarint(b, e.born)
	}
	if e.kind == Symlink {
		b = appendString(b, e.target)
	}
	if !e.digest.IsZero() {
		b = append(b, e.digest[:]...)
	}
	m.put(b)
	m.buf, m.last, m.count = b, e.path, m.count+1
}

func (m *manifestWriter) close() error {
	m.put(binary.AppendUvarint(append(m.buf[:0], manifestEnd), m.count))
	m.w.Write(binary.BigEndian.AppendUint32(nil, m.sum))
	return m.w.Flush()
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// manifestReader reads a manifest with one record of memory.
type manifestReader struct {
	r     *bufio.Reader
	sum   uint32
	one   bool // it is of the first version
	since time.Time
	count uint64
	next  *manifestEntry // nil after the last
	cur   manifestEntry
}

func newManifestReader(r io.Reader) (*manifestReader, error) {
	m := &manifestReader{r: bufio.NewReaderSize(r, 64<<10)}
	magic, err := m.bytes(len(manifestMagic))
	m.one = string(magic) == manifestMagicOne
	if err != nil || string(magic) != manifestMagic && !m.one {
		return nil, errManifest
	}
	ns, err := binary.ReadVarint(m)
	if err != nil {
		return nil, errManifest
	}
	m.since = time.Unix(0, ns)
	return m, m.advance()
}

// ReadByte lets encoding/binary read varints, and sums what it reads.
func (m *manifestReader) ReadByte() (byte, error) {
	c, err := m.r.ReadByte()
	if err == nil {
		m.sum = crc32.Update(m.sum, crcTable, []byte{c})
	}
	return c, err
}

func (m *manifestReader) bytes(n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(m.r, b); err != nil {
		return nil, err
	}
	m.sum = crc32.Update(m.sum, crcTable, b)
	return b, nil
}

func (m *manifestReader) text(limit int) (string, error) {
	n, err := binary.ReadUvarint(m)
	if err != nil || n > uint64(limit) {
		return "", errManifest
	}
	b, err := m.bytes(int(n))
	return string(b), err
}

// advance reads the next record into next.
func (m *manifestReader) advance() error {
	typ, err := m.ReadByte()
	if err != nil {
		return errManifest
	}
	if typ == manifestEnd {
		return m.end()
	}
	if err := m.record(typ); err != nil {
		return errManifest
	}
	m.next = &m.cur
	m.count++
	return nil
}

func (m *manifestReader) end() error {
	m.next = nil
	count, err := binary.ReadUvarint(m)
	want := m.sum
	sum, err2 := m.bytes(4)
	if err != nil || err2 != nil || count != m.count || binary.BigEndian.Uint32(sum) != want {
		return errManifest
	}
	return nil
}

func (m *manifestReader) record(typ byte) error {
	e := manifestEntry{}
	switch typ &^ manifestDigested {
	case manifestFile:
		e.kind = File
	case manifestDir:
		e.kind = Dir
	case manifestLink:
		e.kind = Symlink
	}
	if e.kind == "" || typ&manifestDigested != 0 && e.kind != File {
		return errManifest
	}
	shared, err := binary.ReadUvarint(m)
	if err != nil || shared > uint64(len(m.cur.path)) {
		return errManifest
	}
	rest, err := m.text(maxPath)
	if err != nil {
		return err
	}
	e.path = m.cur.path[:shared] + rest
	if checkPath(e.path) != nil || m.count > 0 && comparePaths(m.cur.path, e.path) >= 0 {
		return errManifest
	}
	if err := m.numbers(&e); err != nil {
		return err
	}
	if e.kind != Dir && !m.one {
		if err := m.copyOf(&e); err != nil {
			return err
		}
	}
	if e.kind == Symlink {
		if e.target, err = m.text(maxPath); err != nil {
			return err
		}
	}
	if typ&manifestDigested != 0 {
		b, err := m.bytes(len(e.digest))
		if err != nil {
			return err
		}
		copy(e.digest[:], b)
	}
	m.cur = e
	return nil
}

// copyOf reads what a file or a link is a copy of.
func (m *manifestReader) copyOf(e *manifestEntry) error {
	b, err := m.bytes(len(e.origin))
	if err != nil {
		return err
	}
	copy(e.origin[:], b)
	if e.ino, err = binary.ReadUvarint(m); err != nil {
		return err
	}
	e.born, err = binary.ReadVarint(m)
	return err
}

func (m *manifestReader) numbers(e *manifestEntry) error {
	mode, err1 := binary.ReadUvarint(m)
	size, err2 := binary.ReadUvarint(m)
	var err3, err4 error
	e.mtime, err3 = binary.ReadVarint(m)
	e.ctime, err4 = binary.ReadVarint(m)
	if err := errors.Join(err1, err2, err3, err4); err != nil || mode > 0o7777 || size > math.MaxInt64 {
		return fmt.Errorf("bad number: %w", errManifest)
	}
	e.mode, e.size = uint32(mode), int64(size)
	return nil
}
