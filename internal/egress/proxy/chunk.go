package proxy

import (
	"bytes"
	"net/http"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// chunkState is where in a chunked body a reader is.
type chunkState uint8

const (
	chunkSize chunkState = iota // the digits of a size
	chunkExt                    // after them, up to the line's end
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	chunkTrailer // lines after the last chunk
)

// chunks follows the framing of one chunked body (RFC 9112, 7.1). The zero
// value is at its beginning.
type chunks struct {
	state   chunkState
	digits  int
	line    int    // bytes of the size's line so far
	left    int64  // of the chunk
	trailer []byte // of the trailer section: what has come of the line
	total   int    // bytes of the trailer section
}

// scan returns how much of data belongs to the body and is sound, and whether
// the body ends there.
func (c *chunks) scan(data []byte) (n int, done bool, bad *Refusal) {
	for n < len(data) {
		if c.state == chunkData {
			k := min(c.left, int64(len(data)-n))
			n += int(k)
			if c.left -= k; c.left == 0 {
				c.state = chunkDataCR
			}
			continue
		}
		b := data[n]
		if c.state == chunkTrailer {
			done, bad = c.trailerByte(b)
		} else {
			bad = c.sizeByte(b)
		}
		if bad != nil {
			return n, false, bad
		}
		if n++; done {
			return n, true, nil
		}
	}
	return n, false, nil
}

func (c *chunks) sizeByte(b byte) *Refusal {
	if c.line++; c.line > maxChunkLine {
		return badRequest("a chunk whose extensions are too long")
	}
	switch c.state {
	case chunkSize:
		return c.sizeDigit(b)
	case chunkExt:
		switch {
		case b == '\r':
			c.state = chunkSizeLF
		case b < ' ' && b != '\t' || b == 0x7f:
			return badRequest("a chunk's extension has a control character")
		}
	case chunkSizeLF:
		if b != '\n' {
			return badRequest("a chunk's size that does not end in CR LF")
		}
		c.state = chunkData
		if c.left == 0 {
			c.state = chunkTrailer
		}
		c.digits, c.line = 0, 0
	case chunkDataCR, chunkDataLF:
		want := byte('\r')
		if c.state == chunkDataLF {
			want = '\n'
		}
		if b != want {
			return badRequest("a chunk that is longer than its size")
		}
		if c.state++; want == '\n' {
			c.state = chunkSize
		}
		c.line = 0
	}
	return nil
}

func (c *chunks) sizeDigit(b byte) *Refusal {
	var d byte
	switch {
	case '0' <= b && b <= '9':
		d = b - '0'
	case 'a' <= b && b <= 'f':
		d = b - 'a' + 10
	case 'A' <= b && b <= 'F':
		d = b - 'A' + 10
	case b == '\r' && c.digits > 0:
		c.state = chunkSizeLF
		return nil
	case b == ';' && c.digits > 0:
		c.state = chunkExt
		return nil
	default:
		return badRequest("a chunk's size is no hexadecimal number")
	}
	if c.digits++; c.digits > maxChunkDigit {
		return badRequest("a chunk's size has too many digits")
	}
	c.left = c.left<<4 | int64(d)
	return nil
}

// trailerByte takes the trailer section line by line.
func (c *chunks) trailerByte(b byte) (done bool, bad *Refusal) {
	if c.total++; c.total > maxTrailer {
		return false, refuse(http.StatusRequestHeaderFieldsTooLarge, CodeBadRequest, "a trailer section of more than 16 KiB")
	}
	c.trailer = append(c.trailer, b)
	if b != '\n' {
		return false, nil
	}
	line, ok := bytes.CutSuffix(c.trailer, crlf)
	if !ok {
		return false, badRequest("a trailer field that does not end in CR LF")
	}
	if len(line) == 0 {
		return true, nil
	}
	name, _, bad := checkField(line)
	if bad != nil {
		return false, bad
	}
	if !trailerAllowed(string(name)) {
		return false, badRequest("a trailer field that belongs into the head")
	}
	c.trailer = c.trailer[:0]
	return false, nil
}

// trailerAllowed refuses in a trailer what decides about the message: its
// framing, its route, its rights and how it is read (RFC 9110, 6.5.1), however
// that is spelled: some servers lay trailers beside the head's fields.
func trailerAllowed(name string) bool {
	folded := field.Fold(name)
	if field.Of(folded)&(field.Method|field.Path|field.Read) != 0 {
		return false
	}
	switch folded {
	case "transfer-encoding", "content-length", "trailer", "te", "host", "connection", "upgrade",
		"keep-alive", "proxy-connection", "expect", "max-forwards", "range", "if-range",
		"authorization", "proxy-authorization", "cookie", "set-cookie", "www-authenticate",
		"content-encoding", "content-type", "content-range", "cache-control":
		return false
	}
	return true
}
