package layer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	chunkSize  = 256 << 10 // what one goroutine hands the other
	chunks     = 4
	zstdWindow = 128 << 20 // of memory, what zstd --ultra --long uses
)

// stream is the uncompressed archive. A goroutine of its own decompresses and
// digests it ahead of who reads it, by chunks*chunkSize at most.
type stream struct {
	ctx    context.Context // of the one call that this is for
	limits Limits
	src    *source
	unzip  func(error) error // tells a decompressor's errors
	z      io.Reader
	free   func()
	sum    hash.Hash

	full  chan chunk
	empty chan []byte
	stop  chan struct{}
	ended chan struct{} // closed when the goroutine is gone

	buf   []byte // what is left of whole
	whole []byte
	n     int64     // bytes read
	tail  [512]byte // the last of them
	err   error     // sticky; io.EOF at the end
}

type chunk struct {
	data []byte
	err  error // after data
}

// source counts what is read of the layer as it came, and remembers an error
// that is not the layer's fault.
type source struct {
	r   io.Reader
	n   atomic.Int64
	err error // owned by the goroutine that reads
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.n.Add(int64(n))
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// openStream finds out how r is compressed and starts to read it.
func openStream(ctx context.Context, r io.Reader, l Limits) (*stream, error) {
	s := &stream{
		ctx: ctx, limits: l, src: &source{r: r}, sum: sha256.New(), free: func() {},
		full: make(chan chunk, chunks), empty: make(chan []byte, chunks),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	if err := s.detect(bufio.NewReaderSize(s.src, chunkSize)); err != nil {
		if s.src.err != nil {
			return nil, s.readError()
		}
		return nil, inLayer(err)
	}
	for range chunks {
		s.empty <- make([]byte, chunkSize)
	}
	go s.pump()
	return s, nil
}

func (s *stream) readError() error { return fmt.Errorf("read the layer: %w", s.src.err) }

// detect chooses the decompressor by the first bytes.
func (s *stream) detect(in *bufio.Reader) error {
	head, err := in.Peek(6)
	if err != nil && err != io.EOF {
		return err
	}
	switch {
	case len(head) == 0:
		return refuse("it is empty")
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		s.unzip = gzipError
		z, err := gzip.NewReader(in)
		if err != nil {
			return refuse("its gzip header is damaged or cut off")
		}
		s.z = z
	case isZstd(head):
		s.unzip = zstdError
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return zstdError(err)
		}
		s.z, s.free = z, z.Close
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return refuse("it is compressed with xz; compress it with gzip or zstd")
	case bytes.HasPrefix(head, []byte("BZh")):
		return refuse("it is compressed with bzip2; compress it with gzip or zstd")
	default:
		s.z, s.unzip = in, func(err error) error { return err }
	}
	return nil
}

// isZstd knows a frame, and one that decoders skip.
func isZstd(b []byte) bool {
	return len(b) >= 4 && (bytes.Equal(b[:4], []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		b[0]&0xf0 == 0x50 && bytes.Equal(b[1:4], []byte{0x2a, 0x4d, 0x18}))
}

func gzipError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse("its gzip stream is cut off")
	case errors.Is(err, gzip.ErrChecksum):
		return refuse("its gzip checksum is wrong")
	case errors.Is(err, gzip.ErrHeader):
		return refuse("something that is no gzip follows its gzip stream")
	}
	return refuse("its gzip stream is damaged: %v", err)
}

func zstdError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse("its zstd stream is cut off")
	case errors.Is(err, zstd.ErrCRCMismatch):
		return refuse("its zstd checksum is wrong")
	case errors.Is(err, zstd.ErrMagicMismatch):
		return refuse("something that is no zstd follows its zstd stream")
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return refuse("its zstd stream needs a window of more than %d bytes", zstdWindow)
	case errors.Is(err, zstd.ErrUnknownDictionary):
		return refuse("its zstd stream needs a dictionary")
	}
	return refuse("its zstd stream is damaged: %v", err)
}

// pump fills chunks until an error, which the last one brings.
func (s *stream) pump() {
	defer close(s.ended)
	defer s.free()
	for {
		var b []byte
		select {
		case b = <-s.empty:
		case <-s.stop:
			return
		}
		n, err := s.fill(b)
		s.sum.Write(b[:n])
		s.full <- chunk{b[:n], err} // there is room for all there are
		if err != nil {
			return
		}
	}
}

// fill reads until b is full. Its error is fit to return.
func (s *stream) fill(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		select {
		case <-s.stop:
			return n, io.ErrClosedPipe // nobody reads on
		default:
		}
		var m int
		m, err = s.z.Read(b[n:])
		n += m
	}
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case s.src.err != nil:
		return n, s.readError()
	}
	return n, inLayer(s.unzip(err))
}

// Read reads the archive within the limits. Each of its errors is fit to
// return from Unpack, but io.EOF.
func (s *stream) Read(b []byte) (int, error) {
	for len(s.buf) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.next()
	}
	n := copy(b, s.buf)
	s.buf = s.buf[n:]
	s.n += int64(n)
	if n < len(s.tail) {
		copy(s.tail[:], s.tail[n:])
	}
	copy(s.tail[max(0, len(s.tail)-n):], b[max(0, n-len(s.tail)):n])
	return n, nil
}

// ends reports whether what was read since before, which was padding bytes
// short of a whole block, ends with a block of zeros, as archives do.
func (s *stream) ends(before, padding int64) bool {
	return s.n-before >= padding+512 && s.n&511 == 0 && s.tail == [512]byte{}
}

// next takes the next chunk, or sets err.
func (s *stream) next() {
	if s.whole != nil {
		s.empty <- s.whole[:chunkSize]
		s.whole = nil
	}
	if s.ctx.Err() != nil {
		s.err = context.Cause(s.ctx)
		return
	}
	var c chunk
	select {
	case c = <-s.full:
	case <-s.ctx.Done():
		s.err = context.Cause(s.ctx)
		return
	}
	s.whole, s.buf, s.err = c.data, c.data, c.err
	out, in := s.n+int64(len(c.data)), s.src.n.Load()
	switch {
	case out > s.limits.Bytes:
		s.buf, s.err = nil, inLayer(refuse("it unpacks to more than %d bytes", s.limits.Bytes))
	case out > s.limits.RatioFrom && (out-s.limits.RatioFrom)/s.limits.Ratio > in:
		s.buf, s.err = nil, inLayer(refuse("it is a compression bomb: %d bytes unpacked to more than %d, over %d for each",
			in, out, s.limits.Ratio))
	}
}

// close ends the goroutine. Nothing may be read afterwards.
func (s *stream) close() {
	close(s.stop)
	<-s.ended
}

// digest returns the digest of a stream that was read to its end.
func (s *stream) digest() string {
	<-s.ended
	return "sha256:" + hex.EncodeToString(s.sum.Sum(nil))
}
