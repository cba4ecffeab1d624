package pack

import (
	"bufio"
	"compress/zlib"
	"errors"
	"hash"
	"hash/crc32"
	"io"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// tee is what a scan reads from: it passes on, sums up and counts each byte that was
// taken, and no byte more.
type tee struct {
	r      *bufio.Reader
	w      io.Writer
	hash   hash.Hash
	buf    []byte // taken, not passed on yet
	at     int64  // how many were taken
	limit  int64
	check  uint32 // of the bytes of buf before from, since startCRC
	from   int    // of buf, where what is not in check begins
	failed error  // of the source or the target, or that there is too much
}

const teeSize = 64 << 10

func newTee(r io.Reader, w io.Writer, f Format, limit int64) *tee {
	return &tee{r: bufio.NewReaderSize(r, teeSize), w: w, hash: f.New(), buf: make([]byte, 0, teeSize), limit: limit}
}

// ReadByte implements io.ByteReader, so that an inflater takes nothing beyond its end.
func (t *tee) ReadByte() (byte, error) {
	b, err := t.r.ReadByte()
	if err != nil {
		return 0, t.fail(err)
	}
	return b, t.took(b)
}

// Read implements io.Reader.
func (t *tee) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil {
		err = t.fail(err)
	}
	for rest := p[:n]; len(rest) > 0; {
		part := rest[:min(len(rest), teeSize-len(t.buf))]
		rest = rest[len(part):]
		if terr := t.took(part...); terr != nil {
			return n, terr
		}
	}
	return n, err
}

// took notes bytes for which buf has room.
func (t *tee) took(b ...byte) error {
	t.buf = append(t.buf, b...)
	t.at += int64(len(b))
	if t.at > t.limit {
		return t.fail(sandbox.Errorf(sandbox.Denied, "the sandbox's objects: packed they have more than the %s that may be", bytesText(t.limit)).
			WithHint("--max-size allows more"))
	}
	if len(t.buf) == teeSize {
		return t.flush()
	}
	return nil
}

// fail keeps the first error that is no end.
func (t *tee) fail(err error) error {
	if t.failed == nil && err != io.EOF {
		t.failed = err
	}
	return err
}

// reason is why a scan failed: what it read from says that better than what it read.
func (t *tee) reason(err error) error {
	if t.failed != nil {
		return t.failed
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refused("the pack is cut short")
	}
	return err
}

func (t *tee) flush() error {
	t.note()
	_, err := t.w.Write(t.buf)
	t.buf, t.from = t.buf[:0], 0
	if err != nil {
		return t.fail(err)
	}
	return nil
}

// note brings the sums up to date.
func (t *tee) note() {
	rest := t.buf[t.from:]
	t.check = crc32.Update(t.check, crc32.IEEETable, rest)
	_, _ = t.hash.Write(rest) // a hash never fails
	t.from = len(t.buf)
}

// startCRC begins an entry.
func (t *tee) startCRC() {
	t.note()
	t.check = 0
}

// crc is the sum since startCRC.
func (t *tee) crc() uint32 {
	t.note()
	return t.check
}

// sum is that of all that was taken.
func (t *tee) sum() []byte {
	t.note()
	return t.hash.Sum(nil)
}

// inflater inflates one entry after another.
type inflater struct {
	z   io.ReadCloser
	buf []byte
}

// inflate reads what is packed at r, which has exactly size bytes, and hands it to w
// where that is not nil.
func (i *inflater) inflate(r *tee, size int64, w io.Writer) error {
	var err error
	if i.z == nil {
		i.buf = make([]byte, teeSize)
		i.z, err = zlib.NewReader(r)
	} else {
		err = i.z.(zlib.Resetter).Reset(r, nil)
	}
	var n int64
	for err == nil && n <= size {
		var m int
		m, err = i.z.Read(i.buf)
		n += int64(m)
		if w != nil {
			_, _ = w.Write(i.buf[:m]) // a prefix, which never fails
		}
	}
	switch {
	case n > size || err == io.EOF && n < size:
		return refused("an object is not as large as it says")
	case err == io.EOF:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return err
	}
	return refused("an object's compressed bytes are broken")
}

// prefix keeps the first bytes that it is given.
type prefix struct{ b []byte }

// Write never fails.
func (p *prefix) Write(b []byte) (int, error) {
	p.b = append(p.b, b[:min(len(b), cap(p.b)-len(p.b))]...)
	return len(b), nil
}
