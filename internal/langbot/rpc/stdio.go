package rpc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	exactjson "sigs.k8s.io/json"
)

// stdioChunk is how much of a message one line carries; what is larger comes in
// several.
const stdioChunk = 16 << 10

type stdio struct {
	r     *bufio.Reader
	w     io.Writer
	close func() error

	mu sync.Mutex // one message at a time is sent
}

// NewStdio returns a connection of newline-delimited JSON. A message of over 16
// KiB is sent as chunks, each a line that the original's reader, which takes
// lines of at most 64 KiB, can hold. Lines that are no JSON object are skipped:
// a program's standard output may have other things. Receive can't be ended by
// its context: only by Close, where close ends a read.
func NewStdio(r io.Reader, w io.Writer, closeBoth func() error) Conn {
	return &stdio{r: bufio.NewReaderSize(r, 64<<10), w: w, close: closeBoth}
}

func (s *stdio) Close() error { return s.close() }

func (s *stdio) Send(ctx context.Context, message []byte) error {
	if len(message) > MaxMessage {
		return errTooLarge(len(message))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(message) <= stdioChunk {
		return s.line(message)
	}
	if err := s.json(map[string]any{"type": "chunk_start", "total_size": len(message)}); err != nil {
		return err
	}
	for offset := 0; offset < len(message); {
		part := runePrefix(message[offset:], stdioChunk)
		err := s.json(map[string]any{"type": "chunk_data", "data": string(part), "offset": offset})
		if err != nil {
			return err
		}
		offset += len(part)
	}
	return s.json(map[string]any{"type": "chunk_end"})
}

func (s *stdio) json(v any) error {
	b, err := Encode(v)
	if err != nil {
		return err
	}
	return s.line(b)
}

// line writes one line at once, so that what reads it never sees a part of it
// for long.
func (s *stdio) line(b []byte) error {
	if d, ok := s.w.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Now().Add(sendTime)) // not all files have one
	}
	if _, err := s.w.Write(append(bytes.Clone(b), '\n')); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

// chunkLine is a line that is a part of a message.
type chunkLine struct {
	Type      string  `json:"type"`
	TotalSize *int64  `json:"total_size"`
	Data      *string `json:"data"`
	Offset    *int64  `json:"offset"`
}

func (s *stdio) Receive(ctx context.Context) ([]byte, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		line, err := s.readLine()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 || line[0] != '{' || line[len(line)-1] != '}' {
			continue
		}
		c := asChunk(line)
		switch {
		case c == nil:
			return line, nil
		case c.Type == "chunk_start":
			return s.chunks(c)
		}
		// A part of a message that has not begun.
	}
}

// asChunk returns a line that is a part of a message; nil where it is one of
// its own.
func asChunk(line []byte) *chunkLine {
	if !bytes.Contains(line, []byte(`"type"`)) {
		return nil
	}
	var c chunkLine
	if err := exactjson.UnmarshalCaseSensitivePreserveInts(line, &c); err != nil {
		return nil
	}
	switch c.Type {
	case "chunk_start", "chunk_data", "chunk_end":
		return &c
	}
	return nil
}

// chunks reads the rest of a message that c began.
func (s *stdio) chunks(c *chunkLine) ([]byte, error) {
	if c.TotalSize == nil || *c.TotalSize < 0 || *c.TotalSize > MaxMessage {
		return nil, errProtocol("a message in chunks is of 0 to %d bytes", MaxMessage)
	}
	total := int(*c.TotalSize)
	message := make([]byte, 0, min(total, 1<<20)) // what is said is not yet what comes
	for range MaxFragments {
		line, err := s.readLine()
		if errors.Is(err, io.EOF) {
			return nil, errProtocol("it ended within a message")
		}
		if err != nil {
			return nil, err
		}
		c := asChunk(line)
		if c == nil {
			continue
		}
		switch c.Type {
		case "chunk_start":
			return nil, errProtocol("a message began within another")
		case "chunk_data":
			if c.Offset == nil || *c.Offset != int64(len(message)) {
				return nil, errProtocol("a chunk that does not follow the one before it, at %d", len(message))
			}
			if c.Data != nil {
				message = append(message, *c.Data...)
			}
			if len(message) > total {
				return nil, errProtocol("a message in chunks is larger than it said")
			}
		case "chunk_end":
			if len(message) != total {
				return nil, errProtocol("a message in chunks is of %d bytes and said %d", len(message), total)
			}
			return message, nil
		}
	}
	return nil, errProtocol("a message in more than %d chunks", MaxFragments)
}

// readLine reads a line of at most a message's size, without the white space
// around it.
func (s *stdio) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := s.r.ReadSlice('\n')
		if len(line)+len(part) > MaxMessage+1 {
			return nil, errProtocol("a line of over %d bytes", MaxMessage)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSpace(line), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(line)) > 0:
			return bytes.TrimSpace(line), nil // the last one may lack its end
		default:
			return nil, err
		}
	}
}

// runePrefix is the longest prefix of b of at most n bytes that splits no rune.
func runePrefix(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return b[:i]
		}
	}
	return b[:n] // no UTF-8: there is nothing to keep whole
}
