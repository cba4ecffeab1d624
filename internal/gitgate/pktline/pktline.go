// Package pktline reads and writes the lines in which git's wire protocol comes: four
// hexadecimal digits of length, and as many bytes.
//
// What it reads is hostile. It refuses lengths that are none, lines longer than git makes
// them, and input that ends within a line; it allocates one line's bytes, whatever a
// length says.
package pktline

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// Kind is what a line is.
type Kind uint8

// The kinds.
const (
	Data      Kind = iota // a line with bytes, of which there may be none
	Flush                 // 0000: the end of a message, or of a section of it
	Delimiter             // 0001: of protocol version 2
	End                   // 0002: of a response, in protocol version 2
)

// MaxData is how many bytes a line has at most.
const MaxData = 65516

// Bands of a message that carries several.
const (
	BandData     = 1
	BandProgress = 2
	BandError    = 3
)

// ErrBroken is of bytes that are no line of git's.
var ErrBroken = errors.New("not git's protocol")

// Reader reads lines.
type Reader struct {
	r   io.Reader
	buf [4 + MaxData]byte
}

// NewReader reads from r, and no further than the line that is asked for.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next reads a line. Its bytes are good until the next call. The error is io.EOF where the
// input ends before a line.
func (r *Reader) Next() (Kind, []byte, error) {
	head := r.buf[:4]
	if n, err := io.ReadFull(r.r, head); err != nil {
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, nil, fmt.Errorf("%w: a length that ends", ErrBroken)
		}
		return 0, nil, err
	}
	var length [2]byte
	if _, err := hex.Decode(length[:], head); err != nil {
		return 0, nil, fmt.Errorf("%w: %q is no length", ErrBroken, head)
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	switch {
	case n < 3:
		return Kind(n + 1), nil, nil
	case n == 3 || n > 4+MaxData:
		return 0, nil, fmt.Errorf("%w: a line of %d bytes", ErrBroken, n)
	}
	line := r.buf[4:n]
	if _, err := io.ReadFull(r.r, line); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it ends within a line", ErrBroken)
		}
		return 0, nil, err
	}
	return Data, line, nil
}

// Append appends a line of that text to b. It panics where that is longer than a line can
// be: what is cut would say another thing.
func Append(b []byte, text string) []byte {
	if len(text) > MaxData {
		panic(fmt.Sprintf("a line of %d bytes", len(text)))
	}
	return append(fmt.Appendf(b, "%04x", len(text)+4), text...)
}

// AppendFlush appends the end of a message.
func AppendFlush(b []byte) []byte { return append(b, "0000"...) }

// Band writes what it gets as lines of one band.
type Band struct {
	W    io.Writer
	Band byte
}

// Write implements io.Writer.
func (b Band) Write(p []byte) (int, error) {
	for at := 0; at < len(p); {
		n := min(len(p)-at, MaxData-1)
		line := append(fmt.Appendf(make([]byte, 0, n+5), "%04x%c", n+5, b.Band), p[at:at+n]...)
		if _, err := b.W.Write(line); err != nil {
			return at, err
		}
		at += n
	}
	return len(p), nil
}
