package inject

import (
	"bufio"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	maxCodings = 3       // that are applied one upon another
	maxWindow  = 8 << 20 // of zstd, as RFC 8878 wants it at least
)

// codings splits the values of a Content-Encoding field. Those that change
// nothing which matters here are left out: aws-chunked puts signatures
// between pieces.
func codings(values []string) (names []string) {
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "", "identity", "aws-chunked":
			default:
				names = append(names, name)
			}
		}
	}
	return names
}

// readable reports whether decoded can undo names.
func readable(names []string) bool {
	for _, name := range names {
		switch name {
		case "gzip", "x-gzip", "deflate", "br", "zstd":
		default:
			return false
		}
	}
	return len(names) <= maxCodings
}

// decoder undoes names, which are readable, the last first. Nothing is read
// from src before the first Read.
type decoder struct {
	src   io.Reader
	names []string
	r     io.Reader
	err   error // why there is no r
}

// Read implements io.Reader.
func (d *decoder) Read(p []byte) (int, error) {
	if d.r == nil && d.err == nil {
		d.r, d.err = d.open()
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.r.Read(p)
}

func (d *decoder) open() (r io.Reader, err error) {
	r = d.src
	for i := len(d.names) - 1; i >= 0 && err == nil; i-- {
		r, err = undo(d.names[i], r)
	}
	return r, err
}

func undo(name string, r io.Reader) (io.Reader, error) {
	switch name {
	case "br":
		return brotli.NewReader(r), nil
	case "zstd":
		// One decoder at a time has no goroutine, so that none has to be ended.
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	case "deflate":
		return inflate(r)
	default:
		return gzip.NewReader(r)
	}
}

// inflate reads "deflate", which is zlib's format by the standard and bare in
// the hands of some.
func inflate(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err == nil && head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}
