package interpreter

import (
	"bytes"
	"encoding/json"
	"sync"
	"unicode/utf8"
)

// outbox keeps what a cell puts out until its client has taken it. Put never
// waits; the cell is bounded by maxOutput.
type outbox struct {
	ready chan struct{} // holds one when there is something to take

	mu     sync.Mutex
	lines  [][]byte
	size   int64 // bytes that were ever put
	closed bool
}

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

// put adds an event, a line of JSON, and reports whether the cell stayed within
// its limit: what goes beyond it is left out.
func (o *outbox) put(event any) bool {
	line := encode(event)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	if o.size += int64(len(line)); o.size > maxOutput {
		return false
	}
	o.lines = append(o.lines, line)
	o.wake()
	return true
}

// say adds what is said of a cell that may have put out too much.
func (o *outbox) say(event any) {
	line := encode(event)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.lines = append(o.lines, line)
	o.wake()
}

// close says that nothing follows.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// take returns what has come since the last call, and whether that was all.
func (o *outbox) take() (lines [][]byte, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines, o.lines = o.lines, nil
	return lines, o.closed
}

// encode makes a line of JSON in ASCII: clients decode what arrives piece by
// piece, and a piece may end within a character.
func encode(event any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(event); err != nil {
		return encode(failure{Type: "error", Name: "EncodingError", Value: err.Error()})
	}
	return ascii(b.Bytes())
}

// ascii escapes what is not ASCII in a text of JSON.
func ascii(text []byte) []byte {
	i := 0
	for i < len(text) && text[i] < utf8.RuneSelf {
		i++
	}
	if i == len(text) {
		return text
	}
	out := append(make([]byte, 0, len(text)+len(text)/2), text[:i]...)
	for i < len(text) {
		r, n := utf8.DecodeRune(text[i:])
		i += n
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r < 0x10000:
			out = escape(out, r)
		default:
			r -= 0x10000
			out = escape(escape(out, 0xd800+r>>10), 0xdc00+r&0x3ff)
		}
	}
	return out
}

func escape(out []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(out, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
